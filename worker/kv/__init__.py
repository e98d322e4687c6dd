"""KV memory: which block belongs to whom (pure), and what the blocks hold (torch)."""
