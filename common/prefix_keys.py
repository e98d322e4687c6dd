"""Names for the beginnings of texts, so that equal beginnings are found again: pure, and the same on every service.

    root ──▶ key of block 0 ──▶ key of block 1 ──▶ …       each hashes its parent and the tokens of its block

A key stands for everything in front of it. The root holds whose text it is, what model computes it and whatever else
may not be shared, so that no text is ever found from under another root. Keys are too long to be met by chance or on
purpose; what is only compared to estimate goes by their first eight bytes.
"""

import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import islice

from common.domain import GenerationRequest

KEY_BYTES = 16
# A request's header has 256 bytes of hashes at most, made of a prompt's first blocks in less than a millisecond.
MAX_HASHES = 32
MAX_HASHED_BLOCKS = 512


def root_key(*, tenant: str, salt: str = "", revision: str = "", adapter: str = "") -> bytes:
    """The root of a tenant's texts. ``salt`` divides them further; it never joins two tenants."""
    digest = blake2b(digest_size=KEY_BYTES, person=b"headrace-prefix")
    for part in (tenant, salt, revision, adapter):
        data = part.encode()
        digest.update(struct.pack("<I", len(data)) + data)
    return digest.digest()


def root_of(request: GenerationRequest) -> bytes | None:
    """Where the keys of a request's text begin; None: it takes no part in prefix caching."""
    if request.bypass_prefix_cache:
        return None
    return root_key(
        tenant=request.tenant, salt=request.cache_salt, revision=request.model_revision
    )


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


def sampled_hashes(request: GenerationRequest, block_size: int) -> tuple[tuple[int, ...], int]:
    """What a request says of its prompt: the hashes of some of its beginnings, and the tokens from one to the next.

    prompt of 9 blocks, 4 hashes at most   |0 1 2|3 4 5|6 7 8|     stride 3: the keys of blocks 2, 5 and 8

    Each key stands for everything in front of it, so that evenly spread ones tell to 1/MAX_HASHES of the prompt how
    much of it somebody holds. A ``block_size`` of 0 is unknown.
    """
    root, tokens = root_of(request), request.prompt_token_ids
    num_blocks = min(MAX_HASHED_BLOCKS, len(tokens) // block_size) if block_size else 0
    if root is None or not num_blocks:
        return (), 0
    stride = -(-num_blocks // MAX_HASHES)
    keys = block_keys(root, tokens[: num_blocks * block_size], block_size)
    return tuple(map(short_hash, islice(keys, stride - 1, None, stride))), stride * block_size
