"""Texts for the kinds of tokenizers there are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders

from common.domain import StopConditions
from tests.support.engines import make_job
from tests.support.sample_tokenizers import byte_level_tokenizer, fallback_tokenizer
from worker.text.texts import Texts

KINDS = {"byte level": byte_level_tokenizer(), "byte fallback": fallback_tokenizer()}
TEXTS = {name: Texts(tokenizer.to_str().encode()) for name, tokenizer in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_deltas_and_flush_are_the_whole_text(kind: str, data: st.DataObject) -> None:
    """Whatever the decoder and the stop strings, what is told up to a stop is a beginning of the whole text."""
    tokenizer = KINDS[kind]
    # Visible tokens only: a prompt of special tokens gives the text no context.
    ids = data.draw(st.lists(st.integers(2, tokenizer.get_vocab_size() - 1), max_size=30))
    stops = data.draw(st.lists(st.text("the .é", min_size=1, max_size=3), max_size=2))
    job = make_job(prompt="", stop=StopConditions(max_tokens=99, stop=tuple(stops)))
    stream = TEXTS[kind].text_of(job)
    whole = tokenizer.decode(ids, skip_special_tokens=True)
    told = ""
    for token_id in ids:
        delta = stream.push(token_id, may_stop=True)
        told += delta.text
        if delta.matched_stop is not None:
            assert whole.startswith(told + delta.matched_stop)
            assert stream.flush() == ""
            return
    assert told + stream.flush() == whole


def test_no_half_character_where_a_decoder_does_more_than_bytes():
    """Such a one is asked for text only, and tokens of one byte make characters all the same: each comes when it is whole."""
    text = "👨‍👩‍👧‍👦 水車 물레방아 טחנה é ü"
    tokenizer = byte_level_tokenizer()
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace("¤", "$")])
    ids = tokenizer.encode(text).ids
    assert len(ids) > len(text)
    stream = Texts(tokenizer.to_str().encode()).text_of(make_job(prompt=""))
    deltas = [stream.push(token_id, may_stop=True).text for token_id in ids]
    assert not any("\ufffd" in delta for delta in deltas)
    assert "".join(deltas) + stream.flush() == text
