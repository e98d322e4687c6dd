"""Names of prefixes: equal for equal beginnings of one owner, and for nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.domain import GenerationRequest, SamplingParams, StopConditions
from common.prefix_keys import (
    KEY_BYTES,
    MAX_HASHES,
    block_keys,
    root_key,
    sampled_hashes,
    short_hash,
)

TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=40)
WORDS = st.text(max_size=6)


@given(first=st.tuples(WORDS, WORDS, WORDS, WORDS), second=st.tuples(WORDS, WORDS, WORDS, WORDS))
def test_roots_differ_in_every_part(
    first: tuple[str, str, str, str], second: tuple[str, str, str, str]
) -> None:
    """A salt is combined with the tenant: whatever another tenant writes there, it never becomes this root."""

    def root(parts: tuple[str, str, str, str]) -> bytes:
        tenant, salt, revision, adapter = parts
        return root_key(tenant=tenant, salt=salt, revision=revision, adapter=adapter)

    assert (root(first) == root(second)) == (first == second)


@given(text=TOKENS, other=TOKENS, size=st.integers(1, 8))
def test_keys_agree_as_far_as_the_texts_do(text: list[int], other: list[int], size: int) -> None:
    """Block by block, and from the first difference on never again."""
    root = root_key(tenant="t")
    keys, others = list(block_keys(root, text, size)), list(block_keys(root, other, size))
    assert len(keys) == len(text) // size
    for index, (one, two) in enumerate(zip(keys, others, strict=False)):
        end = (index + 1) * size
        assert (one == two) == (text[:end] == other[:end])
    assert len(set(keys)) == len(keys)


def test_keys_are_the_same_everywhere() -> None:
    """Schedulers compare them with what workers report: a change of the rule shows here."""
    keys = list(block_keys(root_key(tenant="t", salt="s", revision="r"), range(32), 16))
    assert [key.hex() for key in keys] == [
        "75e824074456676cd94329690dcf66c2",
        "d6107088fa07f08b7516e990055a9041",
    ]
    assert all(len(key) == KEY_BYTES for key in keys)
    assert short_hash(keys[0]) == int.from_bytes(keys[0][:8], "little")


def hashes_of(tokens: int, block_size: int = 4, **changes) -> tuple[tuple[int, ...], int]:
    """What a request for a prompt of so many tokens says of it."""
    request = GenerationRequest(
        "i", "m", "r", tuple(range(tokens)), SamplingParams(1), StopConditions(1), **changes
    )
    return sampled_hashes(request, block_size)


def test_a_short_prompt_names_each_of_its_full_blocks():
    """As workers report them, and the step is a block."""
    root = root_key(tenant="t", salt="s", revision="r")
    expected = tuple(short_hash(key) for key in block_keys(root, range(23), 4))
    assert hashes_of(23, tenant="t", cache_salt="s") == (expected, 4)
    assert len(expected) == 5


@pytest.mark.parametrize("blocks", [33, 64, 65, 500, 513, 5000])
def test_a_long_prompt_names_a_bounded_number_of_beginnings(blocks):
    """Evenly spread ones, each of them a block that workers report."""
    hashes, step_tokens = hashes_of(blocks * 4 + 3)
    root = root_key(tenant="", revision="r")
    every = [short_hash(key) for key in block_keys(root, range(min(blocks, 512) * 4), 4)]
    stride = step_tokens // 4
    assert hashes == tuple(every[stride - 1 :: stride])
    assert MAX_HASHES / 2 <= len(hashes) <= MAX_HASHES


def test_whoever_shares_nothing_names_nothing():
    """Caching bypassed, a block size that nobody knows, a prompt without a full block."""
    assert hashes_of(40, bypass_prefix_cache=True) == ((), 0)
    assert hashes_of(40, block_size=0) == ((), 0)
    assert hashes_of(3) == ((), 0)
