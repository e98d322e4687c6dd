"""The cursor: whatever breaks where, a reader gets each token and each character once, in order."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.cursor import Cursor
from headrace.client.errors import InternalFailure
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb


@dataclass(frozen=True)
class Token:
    """One token of one choice in the server's log."""

    index: int
    text: str


def _delta(seq: int, tokens: list[Token]) -> pb.GenerateStreamResponse:
    text = "".join(token.text for token in tokens)
    ids = range(seq, seq + len(tokens))
    return pb.GenerateStreamResponse(
        seq=seq,
        count=len(tokens),
        delta=gen.Delta(index=tokens[0].index, text=text, token_ids=ids),
    )


def _flush(seq: int, index: int, text: str) -> pb.GenerateStreamResponse:
    return pb.GenerateStreamResponse(seq=seq, delta=gen.Delta(index=index, text=text))


def _finish(seq: int, index: int, *, last: bool) -> pb.GenerateStreamResponse:
    end = gen.ChoiceFinished(index=index, finish_reason=gen.FINISH_REASON_STOP, last=last)
    return pb.GenerateStreamResponse(seq=seq, finish=end)


@dataclass(frozen=True)
class Log:
    """What a server has of a request: tokens of two choices, and text that was held back to the end."""

    tokens: list[Token]
    held_back: list[str]

    def replay(
        self, from_seq: int, sizes: list[int], *, is_live: bool
    ) -> list[pb.GenerateStreamResponse]:
        """The events from a seq on, merged as a server likes: ``sizes`` are the most tokens per delta.

        Live, a choice ends where it ended; of what is over, all tokens come before all ends.
        """
        accepted = gen.Accepted(request_id="r")
        events = [pb.GenerateStreamResponse(seq=from_seq, accepted=accepted)]
        at, turn = from_seq, 0
        open_choices = list(range(len(self.held_back)))
        while at < len(self.tokens):
            if is_live:
                for index in [i for i in open_choices if self._end(i) <= at]:
                    open_choices.remove(index)
                    events.append(_flush(at, index, self.held_back[index]))
                    events.append(_finish(at, index, last=False))
            most = sizes[turn % len(sizes)]
            end = at + 1
            while end < len(self.tokens) and end - at < most:
                if self.tokens[end].index != self.tokens[at].index:
                    break
                end += 1
            events.append(_delta(at, self.tokens[at:end]))
            at, turn = end, turn + 1
        for index in open_choices:
            events.append(_flush(at, index, self.held_back[index]))
            events.append(_finish(at, index, last=index == open_choices[-1]))
        return events

    def _end(self, index: int) -> int:
        """Seq behind the choice's last token."""
        return max(
            (seq + 1 for seq, token in enumerate(self.tokens) if token.index == index), default=0
        )


tokens = st.builds(Token, st.integers(0, 1), st.sampled_from(["a", "bc", "", "é"]))
held_back = st.lists(st.sampled_from(["", "x", "yz", "yyz"]), min_size=2, max_size=2)
logs = st.builds(Log, st.lists(tokens, max_size=12), held_back)
sizes = st.lists(st.integers(1, 4), min_size=1, max_size=4)
# How many events of each connection arrive before it breaks.
cuts = st.lists(st.tuples(st.integers(0, 8), sizes, st.booleans()), max_size=5)


@given(log=logs, cuts=cuts, final=sizes)
def test_no_repeat_and_no_gap(
    log: Log, cuts: list[tuple[int, list[int], bool]], final: list[int]
) -> None:
    """However often and wherever the stream breaks, and however the server merges what it replays."""
    cursor, text = Cursor(), {0: "", 1: ""}
    ids: list[int] = []
    ends: list[int] = []
    for count, merge, is_live in [*cuts, (1000, final, False)]:
        for event in log.replay(cursor.next_seq, merge, is_live=is_live)[:count]:
            new = cursor.take(event)
            if new is not None and new.HasField("delta"):
                text[new.delta.index] += new.delta.text
                ids += new.delta.token_ids
            elif new is not None and new.HasField("finish"):
                ends.append(new.finish.index)
        cursor.reattached()
    assert ids == list(range(len(log.tokens)))
    assert sorted(ends) == [0, 1]
    for index in (0, 1):
        said = "".join(token.text for token in log.tokens if token.index == index)
        assert text[index] == said + log.held_back[index]
    assert cursor.answered


def test_a_gap_is_refused() -> None:
    """Tokens that are missing are never skipped silently."""
    cursor = Cursor()
    with pytest.raises(InternalFailure, match="seq 1 where 0 is due"):
        cursor.take(_delta(1, [Token(0, "b")]))


def test_a_delta_that_overlaps_is_refused() -> None:
    """Its new part cannot be told from its old one, so it is not guessed."""
    cursor = Cursor("r", from_seq=1)
    with pytest.raises(InternalFailure):
        cursor.take(_delta(0, [Token(0, "a"), Token(0, "b")]))


def test_an_unhappy_end_is_no_answer() -> None:
    """After a cancelled choice the call's status is still worth waiting for."""
    cursor = Cursor()
    end = gen.ChoiceFinished(finish_reason=gen.FINISH_REASON_CANCELLED, last=True)
    cursor.take(pb.GenerateStreamResponse(finish=end))
    assert cursor.ended
    assert not cursor.answered
