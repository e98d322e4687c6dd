"""Load tests: what to send, when to send it, and what came of it. ``headrace bench`` is their command."""
