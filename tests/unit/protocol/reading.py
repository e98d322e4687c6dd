"""What a reader of the model's log knows: folded by the real code, kept as a hashable value.

A token's value tells its whole history: digit by digit (base 32) which epoch and attempt made it and each one
before it. So tokens that were generated from a prefix other than the logged one are visible in their values.
"""

from functools import cache
from typing import NamedTuple

from common.domain import FinishReason
from common.log_fold import LogFold, LogGapError
from common.records import (
    ChoiceProgress,
    FenceRecord,
    FinishRecord,
    LogRecord,
    Progress,
    TokensRecord,
)

__all__ = ["EMPTY", "Entry", "LogGapError", "Rec", "Summary", "as_log_record", "fold", "fold_one"]

BASE = 32


class Rec(NamedTuple):
    """One fact about one request in the log; tokens, a finish or (neither) a fence."""

    request: int
    epoch: int
    seq: int = 0
    tokens: tuple[int, ...] = ()
    finish: FinishReason | None = None

    @property
    def is_fence(self) -> bool:
        return not self.tokens and self.finish is None


Entry = tuple[Rec, ...]
"""One append."""


class Summary(NamedTuple):
    """A reader's knowledge of one request."""

    tokens: tuple[int, ...] = ()
    finish: FinishReason | None = None
    fence_epoch: int = 0


EMPTY = Summary()


def as_log_record(rec: Rec) -> LogRecord:
    """The record as the services have it."""
    fact: FenceRecord | FinishRecord | TokensRecord
    if rec.tokens:
        fact = TokensRecord(rec.seq, 0, rec.tokens, "", (0,) * len(rec.tokens))
    elif rec.finish is not None:
        fact = FinishRecord(rec.seq, 0, rec.finish)
    else:
        fact = FenceRecord()
    return LogRecord(str(rec.request), rec.epoch, fact)


def as_progress(summary: Summary) -> Progress:
    """A reader's knowledge as a checkpoint holds it."""
    progress = Progress(epoch=summary.fence_epoch)
    if summary.tokens or summary.finish is not None:
        choice = ChoiceProgress(0, list(summary.tokens), "", [0] * len(summary.tokens))
        if summary.finish is not None:
            choice.finish = FinishRecord(len(summary.tokens), 0, summary.finish)
        progress.choices[0] = choice
    return progress


@cache
def fold_one(summary: Summary, rec: Rec) -> Summary:
    """``summary`` and one more record, by the rule that gateways and takeovers use.

    Raises:
        LogGapError: tokens in front of the record are missing.
    """
    progress = as_progress(summary)
    log_fold = LogFold.behind(progress)
    fact = log_fold.apply(as_log_record(rec))
    if fact is not None:
        progress.add(fact)
    tokens = tuple(progress.choices[0].token_ids) if progress.choices else ()
    finish = progress.last_finish
    return Summary(tokens, finish.reason if finish else None, log_fold.fence_epoch)


@cache
def fold(summary: Summary, request: int, entries: tuple[Entry, ...]) -> Summary:
    """``summary`` and everything that ``entries`` say of ``request``."""
    for entry in entries:
        for rec in entry:
            if rec.request == request:
                summary = fold_one(summary, rec)
    return summary


def next_token(tokens: tuple[int, ...], epoch: int, attempt: int) -> int:
    """What a worker generates behind ``tokens``."""
    return (tokens[-1] if tokens else 0) * BASE + epoch * 4 + attempt


def is_chain(tokens: tuple[int, ...]) -> bool:
    """Whether each token was generated behind those that precede it here."""
    return all(
        token // BASE == before for before, token in zip((0, *tokens), tokens, strict=False)
    )
