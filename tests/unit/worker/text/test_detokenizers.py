"""Detokenizing token by token."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.sample_tokenizers import byte_level_tokenizer, fallback_tokenizer
from worker.text.byte_level import ByteLevelDetokenizer, bytes_of_tokens
from worker.text.detokenizer import Detokenizer
from worker.text.windowed import TokenKinds, WindowedDetokenizer

BYTE_LEVEL = byte_level_tokenizer()
TOKEN_BYTES = bytes_of_tokens(BYTE_LEVEL)
FALLBACK = fallback_tokenizer()
KINDS = TokenKinds.of(FALLBACK)


def windowed(prompt: list[int] | None = None) -> WindowedDetokenizer:
    return WindowedDetokenizer(FALLBACK, KINDS, prompt or [])


def deltas(detokenizer: Detokenizer, token_ids: list[int]) -> list[str]:
    return [*(detokenizer.push(token_id) for token_id in token_ids), detokenizer.flush()]


@given(st.lists(st.integers(0, BYTE_LEVEL.get_vocab_size() - 1), max_size=60))
def test_byte_level_equals_decoding_at_once(token_ids: list[int]) -> None:
    """For any tokens, the deltas together are the decoding of all tokens."""
    parts = deltas(ByteLevelDetokenizer(TOKEN_BYTES), token_ids)
    assert "".join(parts) == BYTE_LEVEL.decode(token_ids, skip_special_tokens=True)


@given(st.text(max_size=40))
def test_byte_level_never_gives_out_half_a_character(text: str) -> None:
    """For tokens of a real text there is no replacement character in any delta but those of the text itself."""
    token_ids = BYTE_LEVEL.encode(text, add_special_tokens=False).ids
    parts = deltas(ByteLevelDetokenizer(TOKEN_BYTES), token_ids)
    assert "".join(parts) == text
    assert parts[-1] == ""


@pytest.mark.parametrize(("char", "num_bytes"), [("é", 1), ("日", 1), ("日", 2), ("🙂", 3)])
def test_cut_in_a_character_leaves_one_replacement_at_the_end(char: str, num_bytes: int) -> None:
    """Tokens that end inside a character give one U+FFFD, with the flush and not before."""
    id_of_byte = {value: token_id for token_id, value in TOKEN_BYTES.items() if len(value) == 1}
    token_ids = [id_of_byte[bytes([byte])] for byte in char.encode()[:num_bytes]]
    parts = deltas(ByteLevelDetokenizer(TOKEN_BYTES), token_ids)
    assert parts == [""] * num_bytes + ["\ufffd"]


@given(st.lists(st.integers(0, FALLBACK.get_vocab_size() - 1), max_size=40))
def test_windowed_equals_decoding_at_once(token_ids: list[int]) -> None:
    """For any tokens of a vocabulary with byte fallback, the deltas together are the decoding of all tokens."""
    parts = deltas(windowed(), token_ids)
    assert "".join(parts) == FALLBACK.decode(token_ids, skip_special_tokens=True)


@given(st.lists(st.integers(0, 9), max_size=8), st.lists(st.integers(0, 9), max_size=20))
def test_windowed_continues_the_prompt(prompt: list[int], token_ids: list[int]) -> None:
    """Behind a prompt, the deltas are what decoding prompt and output together adds to the prompt."""
    visible = [token_id for token_id in prompt if token_id > 1][-1:]
    whole = FALLBACK.decode(visible + token_ids, skip_special_tokens=True)
    expected = whole[len(FALLBACK.decode(visible, skip_special_tokens=True)) :]
    assert "".join(deltas(windowed(visible), token_ids)) == expected


def test_leading_space_of_a_word_behind_a_prompt_is_kept() -> None:
    """A decoder that strips the first space of a text does not strip it inside of one."""
    the, wheel = FALLBACK.token_to_id("▁the"), FALLBACK.token_to_id("▁wheel")
    assert deltas(windowed([the]), [wheel])[0] == " wheel"
    assert deltas(windowed(), [wheel])[0] == "wheel"


def test_kinds_of_decoders_are_told_apart() -> None:
    """The two sample tokenizers are of the kinds they stand for."""
    assert json.loads(BYTE_LEVEL.to_str())["decoder"]["type"] == "ByteLevel"
    assert len(KINDS.byte) == 256
