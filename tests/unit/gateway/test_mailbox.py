"""What a follower is given is what the log says, however it is cut, repeated, lagged behind or begun anew."""

from hypothesis import given
from hypothesis import strategies as st

from common.domain import FinishReason, Usage
from common.records import (
    Fact,
    FenceRecord,
    FinishRecord,
    LogRecord,
    Progress,
    PromptRecord,
    TokensRecord,
)
from gateway.relay.events import Delta, Event
from gateway.relay.mailbox import Mailbox

PROMPT = PromptRecord(cached_tokens=2, worker_id="w")


def tokens(seq: int, count: int, index: int = 0) -> TokensRecord:
    """Made-up tokens; every second one holds back its text."""
    texts = [f"<{n}>" if n % 2 else "" for n in range(seq, seq + count)]
    return TokensRecord(
        seq, index, tuple(range(seq, seq + count)), "".join(texts), tuple(map(len, texts))
    )


def record(fact: Fact, epoch: int = 1) -> LogRecord:
    """The fact as logged."""
    return LogRecord("m:0:" + "0" * 32, epoch, fact)


def deltas(events: list[Event]) -> list[Delta]:
    """The output among the events."""
    return [event for event in events if isinstance(event, Delta)]


def contents(events: list[Event]) -> tuple[list[int], str]:
    """Token ids and text of all deltas, which follow one another without a gap."""
    ids: list[int] = []
    seq = None
    for delta in deltas(events):
        assert seq is None or delta.seq == seq
        seq = delta.end_seq
        ids += delta.token_ids
    return ids, "".join(delta.text for delta in deltas(events))


@st.composite
def logs(draw: st.DrawFn) -> tuple[int, list[LogRecord]]:
    """A log of one request, with repeats of what was appended before; and its number of tokens."""
    records = [record(PROMPT)]
    seq = 0
    for count in draw(st.lists(st.integers(1, 4), max_size=12)):
        records.append(record(tokens(seq, count)))
        seq += count
        if draw(st.booleans()):
            back = draw(st.integers(0, seq - 1))
            records.append(record(tokens(back, seq - back)))
    records.append(record(FinishRecord(seq, 0, FinishReason.STOP, text="end")))
    return seq, records


@given(log=logs(), data=st.data())
def test_concatenation_is_preserved(log: tuple[int, list[LogRecord]], data: st.DataObject) -> None:
    """However often the follower looks, ids and text add up to the log's, from any seq on."""
    num_tokens, records = log
    from_seq = data.draw(st.integers(0, num_tokens))
    mailbox = Mailbox(5, from_seq)
    events: list[Event] = []
    for one in records:
        mailbox.push(one)
        if data.draw(st.booleans()):
            taken = mailbox.take()
            assert sum(bool(delta.token_ids) for delta in deltas(taken)) <= 1
            events += taken
    events += mailbox.take()
    expected = tokens(0, num_tokens).without_first(from_seq)
    assert contents(events) == (list(expected.token_ids), expected.text + "end")
    assert isinstance(events[-1], FinishRecord)
    assert mailbox.is_done
    assert mailbox.usage(num_tokens) == Usage(5, num_tokens, 2)


@given(log=logs(), data=st.data())
def test_starting_again_from_a_checkpoint(
    log: tuple[int, list[LogRecord]], data: st.DataObject
) -> None:
    """A rebase at any moment, on any checkpoint, followed by the log from there, repeats and loses nothing."""
    num_tokens, records = log
    cut = data.draw(st.integers(0, len(records)))
    checkpoint = data.draw(st.integers(0, num_tokens))
    progress = Progress(epoch=1)
    progress.add(PROMPT)
    if checkpoint:
        progress.add(tokens(0, checkpoint))
    mailbox = Mailbox(5)
    for one in records[:cut]:
        mailbox.push(one)
    events = mailbox.take()
    mailbox.rebase(progress)
    mailbox.hold()
    for one in records[cut:]:
        mailbox.push(one)
    assert not mailbox.is_done or cut == len(records)
    for one in records:
        mailbox.read(one)
    mailbox.release()
    events += mailbox.take()
    expected = tokens(0, num_tokens)
    assert contents(events) == (list(expected.token_ids), expected.text + "end")
    assert sum(isinstance(event, PromptRecord) for event in events) == 1
    assert sum(isinstance(event, FinishRecord) for event in events) == 1


def test_a_fenced_writer_is_not_heard() -> None:
    """Records of a lower epoch behind the fence do not count."""
    mailbox = Mailbox(1)
    for one in (
        record(tokens(0, 2)),
        record(FenceRecord(), epoch=2),
        record(tokens(2, 3), epoch=1),
        record(tokens(2, 1), epoch=2),
    ):
        mailbox.push(one)
    assert contents(mailbox.take())[0] == [0, 1, 2]


def test_a_gap_breaks_it_until_the_record_mends_it() -> None:
    """Nothing behind a gap is given out; a result serves what was missing."""
    mailbox = Mailbox(1)
    mailbox.push(record(tokens(0, 1)))
    mailbox.push(record(tokens(3, 1)))
    assert mailbox.is_broken
    mailbox.push(record(tokens(4, 1)))
    assert contents(mailbox.take())[0] == [0]
    progress = Progress()
    progress.add(PROMPT)
    progress.add(tokens(0, 5))
    progress.add(FinishRecord(5, 0, FinishReason.LENGTH))
    mailbox.rebase(progress)
    assert not mailbox.is_broken
    assert contents(mailbox.take())[0] == [1, 2, 3, 4]
    assert mailbox.is_done


def test_choices_are_not_mixed() -> None:
    """Deltas merge within a choice and in the order of seq."""
    mailbox = Mailbox(1)
    for seq, index in ((0, 0), (1, 1), (2, 1), (3, 0)):
        mailbox.push(record(tokens(seq, 1, index)))
    found = [(delta.seq, delta.index, delta.token_ids) for delta in deltas(mailbox.take())]
    assert found == [(0, 0, [0]), (1, 1, [1, 2]), (3, 0, [3])]


def test_it_wakes_its_follower() -> None:
    """Once for each record, and not while older ones are read."""
    woken: list[None] = []
    mailbox = Mailbox(1)
    mailbox.wake = lambda: woken.append(None)
    mailbox.push(record(tokens(0, 1)))
    mailbox.hold()
    mailbox.push(record(tokens(1, 1)))
    assert len(woken) == 1
