"""Names for the beginnings of texts, so that equal beginnings are found again: pure, and the same on every service.

    root ──▶ key of block 0 ──▶ key of block 1 ──▶ …       each hashes its parent and the tokens of its block

A key stands for everything in front of it. The root holds whose text it is, what model computes it and whatever else
may not be shared, so that no text is ever found from under another root. Keys are too long to be met by chance or on
purpose; what is only compared to estimate goes by their first eight bytes.
"""

import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b

KEY_BYTES = 16


def root_key(*, tenant: str, salt: str = "", revision: str = "", adapter: str = "") -> bytes:
    """The root of a tenant's texts. ``salt`` divides them further; it never joins two tenants."""
    digest = blake2b(digest_size=KEY_BYTES, person=b"headrace-prefix")
    for part in (tenant, salt, revision, adapter):
        data = part.encode()
        digest.update(struct.pack("<I", len(data)) + data)
    return digest.digest()


def next_key(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """The key of a block with ``token_ids`` behind ``parent``."""
    tokens = struct.pack(f"<{len(token_ids)}I", *token_ids)
    return blake2b(parent + tokens, digest_size=KEY_BYTES).digest()


def block_keys(root: bytes, token_ids: Sequence[int], block_size: int) -> Iterator[bytes]:
    """The keys of all full blocks of a text."""
    key = root
    for end in range(block_size, len(token_ids) + 1, block_size):
        key = next_key(key, token_ids[end - block_size : end])
        yield key


def short_hash(key: bytes) -> int:
    """What a key is reported as: enough to tell blocks apart, not to prove anything."""
    return int.from_bytes(key[:8], "little")
