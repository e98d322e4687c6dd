"""The only door to Redis: one module per thing stored, and the Lua scripts beside them.

Payloads (headers, bodies, checkpoints, log batches, cards) are opaque bytes here; ``common.wire`` makes them.
"""
