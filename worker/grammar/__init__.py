"""Grammars that an output has to follow: compiled off the step loop, followed token by token."""
