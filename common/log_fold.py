"""Which records of a reply log count: the one rule that gateways, takeovers and the protocol's model share.

Reading one request's records in log order:

- a fence of epoch E makes every later record of a lower epoch void;
- tokens whose seq is already known are repeats of an append with unknown answer, and are skipped;
- nothing counts after the finish that ends the request.

The log is totally ordered, so every reader that applies this rule sees the same tokens, and a scheduler that
was paused and wakes up can neither repeat nor alter one.
"""

from dataclasses import dataclass, field

from common.records import (
    Fact,
    FenceRecord,
    FinishRecord,
    LogRecord,
    Progress,
    PromptRecord,
    TokensRecord,
)


class LogGapError(Exception):
    """Tokens are missing in front of a record: the reader has to start again from the checkpoint."""


@dataclass(slots=True)
class LogFold:
    """A reader's state for one request: three numbers, and which choices have ended."""

    next_seq: int = 0
    fence_epoch: int = 0
    has_prompt: bool = False
    finished_choices: set[int] = field(default_factory=set)
    is_done: bool = False

    @classmethod
    def behind(cls, progress: Progress) -> "LogFold":
        """The state of a reader that knows ``progress`` and goes on behind its log position."""
        return cls(
            next_seq=progress.next_seq,
            fence_epoch=progress.epoch,
            has_prompt=progress.prompt is not None,
            finished_choices={c.index for c in progress.choices.values() if c.finish is not None},
            is_done=progress.last_finish is not None,
        )

    def apply(self, record: LogRecord) -> Fact | None:
        """The part of ``record`` that is new and counts, or None.

        Raises:
            LogGapError: tokens between the last known and this record are missing.
        """
        if record.epoch < self.fence_epoch or self.is_done:
            return None
        match record.fact:
            case FenceRecord():
                self.fence_epoch = record.epoch
                return None
            case TokensRecord() as tokens:
                return self._apply_tokens(tokens)
            case PromptRecord() as prompt:
                is_repeat, self.has_prompt = self.has_prompt, True
                return None if is_repeat else prompt
            case FinishRecord() as finish:
                return self._apply_finish(finish)

    def _apply_tokens(self, tokens: TokensRecord) -> TokensRecord | None:
        if tokens.end_seq <= self.next_seq:
            return None
        if tokens.seq > self.next_seq:
            raise LogGapError(f"expected seq {self.next_seq}, found {tokens.seq}")
        known = self.next_seq - tokens.seq
        new = tokens.without_first(known) if known else tokens
        self.next_seq = new.end_seq
        return new

    def _apply_finish(self, finish: FinishRecord) -> FinishRecord | None:
        if finish.index in self.finished_choices:
            return None
        if finish.seq > self.next_seq:
            raise LogGapError(f"expected seq {self.next_seq}, found a finish at {finish.seq}")
        self.finished_choices.add(finish.index)
        self.is_done = finish.last
        return finish
