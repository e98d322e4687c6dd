"""Sessions with workers: who may connect, which partition they serve, and what is said.

The border to gRPC: everything behind it speaks of plain values (``common.wire.session``).
"""
