"""What one follower of one request has not been given yet.

The log reader pushes records in log order; the follower takes events when it can. What arrives meanwhile is
merged, so a follower that lags holds one growing delta and not a queue of them.

``seq`` is counted twice here, because the two may differ after a look at the record: the fold knows up to where
the log was read, ``_next_out`` up to where the follower was served.

        checkpoint            served up to              log read up to
    ─────────┼────────────────────┼───────────────────────────┼──▶ seq
             └ fold goes on here after a rebase: everything below `_next_out` is read again and dropped
"""

from typing import TYPE_CHECKING

from common.domain import Usage
from common.log_fold import LogFold, LogGapError
from common.records import Fact, FinishRecord, LogRecord, Progress, PromptRecord, TokensRecord
from gateway.relay.events import Delta, Event

if TYPE_CHECKING:
    from collections.abc import Callable


class Mailbox:
    """One follower's state; pure, and driven by one event loop."""

    def __init__(self, prompt_tokens: int, from_seq: int = 0) -> None:
        """The follower wants tokens from ``from_seq`` on."""
        self.wake: Callable[[], None] = lambda: None
        self.is_broken = False
        """A record did not fit: tokens are missing, and the request's record has to be looked at."""
        self.is_from_cache = False
        """Whether all of it is the answer to an earlier equal request."""
        self.from_seq = from_seq
        self._prompt_tokens = prompt_tokens
        self._fold = LogFold()
        self._next_out = from_seq
        self._seen: set[int | None] = set()
        self._pending: list[Event] = []
        self._held: list[LogRecord] | None = None
        self.prompt: PromptRecord | None = None

    @property
    def is_done(self) -> bool:
        """Whether the end of the request was read."""
        return self._fold.is_done

    @property
    def has_news(self) -> bool:
        """Whether the follower can take something."""
        return bool(self._pending)

    @property
    def next_seq(self) -> int:
        """Behind the last token that was read or skipped."""
        return max(self._next_out, self._fold.next_seq)

    @property
    def prompt_usage(self) -> Usage:
        """Usage of the prompt alone; nothing counts before it was taken up."""
        return self.usage(0)

    def usage(self, completion_tokens: int) -> Usage:
        """Usage with so many tokens generated."""
        if self.prompt is None:
            return Usage(from_response_cache=self.is_from_cache)
        return Usage(
            self._prompt_tokens,
            completion_tokens,
            self.prompt.cached_tokens,
            from_response_cache=self.is_from_cache,
        )

    def push(self, record: LogRecord) -> None:
        """A record from the log's end, in log order."""
        if self._held is not None:
            self._held.append(record)
            return
        self.read(record)
        self.wake()

    def hold(self) -> None:
        """Keep new records back until ``release``: older ones are being read."""
        self._held = []

    def release(self) -> None:
        """The older records have been read: go on with what was kept back."""
        held, self._held = self._held or [], None
        for record in held:
            self.read(record)

    def rebase(self, progress: Progress) -> None:
        """Start again behind ``progress``, a checkpoint or a result, and serve what it has of news."""
        self._fold = LogFold.behind(progress)
        self.is_broken = False
        for fact in progress.replay(self._next_out):
            self._emit(fact)

    def read(self, record: LogRecord) -> None:
        """Apply one record."""
        if self.is_broken:
            return
        try:
            fact = self._fold.apply(record)
        except LogGapError:
            self.is_broken = True
            return
        if fact is not None:
            self._emit(fact)

    def take(self) -> list[Event]:
        """Everything that the follower has not been given, in order."""
        taken, self._pending = self._pending, []
        return taken

    def _emit(self, fact: Fact) -> None:
        match fact:
            case TokensRecord():
                if fact.end_seq > self._next_out:
                    if fact.seq < self._next_out:
                        fact = fact.without_first(self._next_out - fact.seq)
                    self._add(Delta.of(fact))
                    self._next_out = fact.end_seq
            case PromptRecord() if None not in self._seen:
                self._seen.add(None)
                self.prompt = fact
                self._pending.append(fact)
            case FinishRecord() if fact.index not in self._seen:
                self._seen.add(fact.index)
                if fact.text:
                    # A delta of its own, without tokens, at the place that was reached: a client that attaches again
                    # by seq gets it a second time, and knows it by its count of 0.
                    self._pending.append(Delta(self.next_seq, fact.index, [], [fact.text]))
                self._pending.append(fact)

    def _add(self, delta: Delta) -> None:
        last = self._pending[-1] if self._pending else None
        if isinstance(last, Delta) and last.can_take(delta):
            last.take(delta)
        else:
            self._pending.append(delta)
