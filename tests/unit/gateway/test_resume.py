"""A client that attaches again and again, through mailbox, messages and cursor: each character once, in its place."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from common.domain import FinishReason, Usage
from common.log_fold import LogFold
from common.records import Fact, FinishRecord, LogRecord, Progress, PromptRecord, TokensRecord
from common.wire import public
from gateway.relay.events import Delta, Event
from gateway.relay.mailbox import Mailbox
from headrace.client.cursor import Cursor
from headrace.v1 import inference_service_pb2 as pb

NUM_CHOICES = 2


@dataclass(frozen=True)
class Connection:
    """One attempt to follow: what the record shows of the log, how far the log has got, and when it breaks."""

    checkpoint: int
    num_records: int
    num_events: int
    take_each: bool


def message_of(event: Event) -> pb.GenerateStreamResponse:
    """The event as it is sent."""
    if isinstance(event, Delta):
        return public.delta_event(
            event.seq, event.index, event.text, event.token_ids, Usage(), 0, with_ids=True
        )
    if isinstance(event, FinishRecord):
        return public.finish_event(event, Usage())
    return public.prompt_event(event, Usage(), 0)


pieces = st.tuples(
    st.integers(0, NUM_CHOICES - 1),
    st.lists(st.sampled_from(["", "a", "bc"]), min_size=1, max_size=3),
)


@st.composite
def logs(draw: st.DrawFn) -> list[Fact]:
    """Tokens of two choices; one ends somewhere on the way, both with text that was held back."""
    facts: list[Fact] = [PromptRecord(0, "w")]
    seq, ends = 0, 0
    early, at = draw(st.integers(0, NUM_CHOICES - 1)), draw(st.integers(0, 6))
    held_back = draw(st.lists(st.sampled_from(["", "x", "yy"]), min_size=2, max_size=2))

    def finish(index: int) -> FinishRecord:
        last = ends == NUM_CHOICES
        return FinishRecord(seq, index, FinishReason.STOP, text=held_back[index], last=last)

    for number, (index, texts) in enumerate(draw(st.lists(pieces, max_size=8))):
        if number == at:
            ends = 1
            facts.append(finish(early))
        if ends and index == early:
            index = 1 - early
        ids = tuple(range(seq, seq + len(texts)))
        facts.append(TokensRecord(seq, index, ids, "".join(texts), tuple(map(len, texts))))
        seq += len(texts)
    for index in [1 - early] if ends else range(NUM_CHOICES):
        ends += 1
        facts.append(finish(index))
    return facts


connections = st.lists(
    st.builds(
        Connection, st.integers(0, 30), st.integers(0, 30), st.integers(0, 8), st.booleans()
    ),
    max_size=5,
)


def served(facts: list[Fact], from_seq: int, how: Connection) -> list[Event]:
    """What a follower of such a connection is given."""
    records = [LogRecord("r", 1, fact) for fact in facts]
    known = Progress(epoch=1)
    for fact in facts[: how.checkpoint]:
        known.add(fact)
    mailbox = Mailbox(1, from_seq)
    mailbox.rebase(known)
    events = mailbox.take()
    for one in records[how.checkpoint : how.num_records]:
        mailbox.push(one)
        if how.take_each:
            events += mailbox.take()
    return events + mailbox.take()


@given(facts=logs(), attempts=connections)
def test_exactly_the_log(facts: list[Fact], attempts: list[Connection]) -> None:
    """Wherever the stream breaks, also between the text that an end releases and the end itself."""
    cursor, texts = Cursor(), dict.fromkeys(range(NUM_CHOICES), "")
    ids: list[int] = []
    for attempt in [*attempts, Connection(0, len(facts), 1000, take_each=False)]:
        for event in served(facts, cursor.next_seq, attempt)[: attempt.num_events]:
            new = cursor.take(message_of(event))
            if new is not None and new.HasField("delta"):
                texts[new.delta.index] += new.delta.text
                ids += new.delta.token_ids
        cursor.reattached()
    whole, fold = Progress(), LogFold()
    for fact in facts:
        assert fold.apply(LogRecord("r", 1, fact)) is fact
        whole.add(fact)
    assert ids == list(range(whole.next_seq))
    assert texts == {index: whole.choices[index].text for index in range(NUM_CHOICES)}
    assert cursor.answered
