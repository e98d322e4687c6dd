"""Tokens to text, as far as it is certain: incremental detokenizing and stop strings."""
