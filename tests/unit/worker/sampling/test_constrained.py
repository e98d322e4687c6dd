"""What a grammar leaves of a row's logits."""

import dataclasses

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from common.domain import SamplingParams
from worker.engine.runner import DEAD_END, Draw, Drawn, RowFailed
from worker.sampling.adjust import adjust
from worker.sampling.sampler import sample


@dataclasses.dataclass
class Place:
    """Where a sequence stands in a grammar that allows these tokens, as bits."""

    bits: bytes
    is_over: bool = False
    failure: str = ""
    fails_when_asked: str = ""

    def accept(self, token_id: int) -> None:
        raise NotImplementedError

    def allowed(self) -> bytes:
        self.failure = self.failure or self.fails_when_asked
        return self.bits


def draw_of(place: Place | None, forbidden: tuple[int, ...] = ()) -> Draw:
    return Draw(
        SamplingParams(seed=1, temperature=0.0), 0, 5, forbidden=forbidden, constraint=place
    )


@given(data=st.data(), vocab=st.integers(1, 70), num_bytes=st.integers(0, 10))
def test_what_is_not_allowed_cannot_be_drawn(
    data: st.DataObject, vocab: int, num_bytes: int
) -> None:
    """And all else is as it was: for masks shorter and longer than the vocabulary, and rows without any. What ends the
    output is put off, but not where nothing else may follow."""
    rows = data.draw(st.lists(st.none() | st.binary(min_size=num_bytes, max_size=num_bytes)))
    ends = tuple(data.draw(st.sets(st.integers(0, vocab - 1), max_size=2)))
    before = torch.arange(len(rows) * vocab, dtype=torch.float32).view(len(rows), vocab) - 5.0
    after = before.clone()
    adjust(after, [draw_of(bits if bits is None else Place(bits), ends) for bits in rows])
    for row, bits in enumerate(rows):
        if bits is None:
            allowed = set(range(vocab)) - set(ends)
        else:
            ones = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little").nonzero()[0]
            allowed = {token for token in ones.tolist() if token < vocab}
            allowed = allowed - set(ends) or allowed
        for token in range(vocab):
            wanted = before[row, token] if token in allowed else float("-inf")
            assert after[row, token] == wanted, (row, token)


def test_a_row_whose_grammar_fails_over_the_question_fails_alone():
    """What it answered then does not count, which may well be an end; the row beside it is drawn as ever."""
    places = [Place(b"\xff" * 2, fails_when_asked="too many states"), Place(b"\x02\x00"), None]
    logits = torch.arange(48, dtype=torch.float32).view(3, 16)
    failed, drawn, free = sample(logits, [draw_of(place) for place in places])
    assert isinstance(failed, RowFailed)
    assert failed.reason == DEAD_END
    assert "too many states" in failed.message
    assert [drawn, free] == [Drawn(1), Drawn(15)]


def test_an_end_is_put_off_while_anything_else_may_follow():
    """Before min_tokens; where nothing else may, the output ends early rather than break its grammar."""
    logits = torch.arange(32, dtype=torch.float32).view(2, 16)
    only_end, more = Place(b"\x00\x80"), Place(b"\x01\x80")
    drawn = sample(logits, [draw_of(place, forbidden=(15,)) for place in (only_end, more)])
    assert drawn == [Drawn(15), Drawn(0)]
