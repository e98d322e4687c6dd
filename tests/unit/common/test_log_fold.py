"""Which records of a reply log count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.domain import FinishReason
from common.log_fold import LogFold, LogGapError
from common.records import (
    FenceRecord,
    FinishRecord,
    LogRecord,
    Progress,
    PromptRecord,
    TokensRecord,
)


def tokens(seq: int, *ids: int, epoch: int = 1, index: int = 0) -> LogRecord:
    text = "".join(chr(97 + i % 26) for i in ids)
    return LogRecord("r", epoch, TokensRecord(seq, index, ids, text, (1,) * len(ids)))


def finish(seq: int, *, epoch: int = 1, last: bool = True, index: int = 0) -> LogRecord:
    return LogRecord("r", epoch, FinishRecord(seq, index, FinishReason.STOP, last=last))


def fence(epoch: int) -> LogRecord:
    return LogRecord("r", epoch, FenceRecord())


def fold(records: list[LogRecord]) -> Progress:
    state, progress = LogFold(), Progress()
    for record in records:
        fact = state.apply(record)
        if fact is not None:
            progress.add(fact)
    return progress


def test_repeated_appends_count_once():
    """An append of unknown answer is repeated with identical bytes: readers skip the repeat, whole or in part."""
    progress = fold([tokens(0, 1, 2), tokens(0, 1, 2), tokens(1, 2, 3), tokens(2, 3)])
    assert progress.choices[0].token_ids == [1, 2, 3]
    assert progress.choices[0].text == "bcd"


def test_a_fence_silences_lower_epochs():
    """A scheduler that was paused and wakes up can neither repeat nor alter a token behind the fence."""
    progress = fold([tokens(0, 1), fence(2), tokens(1, 9), tokens(1, 2, epoch=2), tokens(2, 9)])
    assert progress.choices[0].token_ids == [1, 2]


def test_what_an_old_epoch_logged_before_the_fence_counts():
    """The new owner goes on behind everything that stands in front of its fence."""
    assert fold([tokens(0, 1), tokens(1, 2), fence(2)]).choices[0].token_ids == [1, 2]


def test_nothing_counts_after_the_last_finish():
    """A finish that ends the request outranks whatever is written later, by anybody."""
    progress = fold([tokens(0, 1), finish(1), fence(2), tokens(1, 2, epoch=2), finish(1, epoch=2)])
    assert progress.next_seq == 1
    assert progress.last_finish is not None


def test_a_prompt_record_counts_once():
    """A resumed request's second worker reports the prompt again; usage must not change."""
    prompts = [LogRecord("r", epoch, PromptRecord(epoch, "w")) for epoch in (1, 2)]
    assert fold(prompts).prompt == PromptRecord(1, "w")


@pytest.mark.parametrize("record", [tokens(1, 5), finish(1)])
def test_a_gap_is_an_error(record):
    """A reader that misses tokens must start again from the checkpoint, not deliver a hole."""
    with pytest.raises(LogGapError):
        LogFold().apply(record)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=12), st.data())
def test_replay_equals_what_was_added(parts, data):
    """A replay from any seq gives the same tokens, choices and text as the log did from there on."""
    seq, whole = 0, Progress()
    expected: list[tuple[int, int]] = []
    for index, count in parts:
        record = tokens(seq, *range(seq, seq + count), index=index)
        whole.add(record.fact)
        expected += [(index, token) for token in range(seq, seq + count)]
        seq += count
    from_seq = data.draw(st.integers(0, seq))
    facts = [fact for fact in whole.replay(from_seq) if isinstance(fact, TokensRecord)]
    assert [(f.index, t) for f in facts for t in f.token_ids] == expected[from_seq:]
    assert [f.seq for f in facts[:1]] == ([from_seq] if from_seq < seq else [])
    assert all(len(f.text) == len(f.token_ids) for f in facts)


@given(st.integers(0, 8), st.integers(0, 8))
def test_a_reader_behind_a_checkpoint_sees_the_rest(cut, log_start):
    """Progress up to a checkpoint plus the log from any position before it equals the whole log."""
    log = [tokens(i, i) for i in range(8)] + [finish(8)]
    before = fold(log[:cut])
    state = LogFold.behind(before)
    for record in log[min(cut, log_start) :]:
        fact = state.apply(record)
        if fact is not None:
            before.add(fact)
    assert before == fold(log)


def test_a_checkpoint_carries_its_fence():
    """The fence may have been trimmed away: a reader behind a checkpoint of epoch 2 ignores epoch 1."""
    state = LogFold.behind(Progress(epoch=2))
    assert state.apply(tokens(0, 1, epoch=1)) is None
