"""Guesses by a draft model: a smaller model of the same tokenizer reads along and draws ahead, for all texts at once.

    text     │ known tokens ....................... │
    cache    │ num_read │ read with the first guess   │ g1 g2: read while the next was drawn, and kept where right
             └ caught up in parts beside steps, while more than a few are unread

It has blocks of its own, for running sequences only: one that makes room for others, or comes back, is read anew. It draws
with the numbers that the model itself will draw with at these places, so both draw the same token where they think alike.

Whatever fails here ends guessing: for a sequence where its rows fail or memory is short, for good where the runner is
broken. The sequence goes on without guesses.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from common.logs import get_log
from worker.engine.block_store import PagedRunner
from worker.engine.containment import Contained, EngineFailed, run_contained
from worker.engine.runner import Draw, Drawn, Row, RowFailed
from worker.engine.sequence import Sequence
from worker.engine.step_times import StepTimes
from worker.kv.block_table import BlockTable
from worker.kv.blocks import BlockPool

FEW_TOKENS = 16
"""So many unread tokens are read along with the first guess; more are read before, which makes steps longer."""

_log = get_log(__name__)


@dataclass(slots=True)
class _Reading:
    """What the draft model has of one text in its cache: so many known tokens, and guesses behind them."""

    blocks: BlockTable
    num_read: int = 0
    guesses: list[int] = field(default_factory=list)
    is_off: bool = False

    def follow(self, text: Sequence) -> int:
        """See which guesses became known tokens; how many known tokens are unread."""
        for guess in self.guesses:
            if self.num_read >= text.num_known or text.token_ids[self.num_read] != guess:
                break
            self.num_read += 1
        self.guesses = []
        # The last one is read to draw behind it, also where it was read before.
        self.num_read = min(self.num_read, text.num_known - 1)
        return text.num_known - self.num_read

    def close(self) -> None:
        """Part with everything for good."""
        self.is_off = True
        self.blocks.release()


@dataclass(frozen=True, slots=True)
class DraftLimits:
    """``context_tokens`` of the draft model, ``vocab_tokens`` of the model itself, and the tokens of a step that are read
    to catch up.
    """

    context_tokens: int
    vocab_tokens: int
    max_catch_up_tokens: int


class DraftProposer:
    """A draft model beside one engine."""

    kind = "draft"

    def __init__(self, runner: PagedRunner, limits: DraftLimits, times: StepTimes) -> None:
        """``times`` are those of ``runner``, of which nobody else holds a block."""
        self.pool = BlockPool(runner.num_blocks, runner.block_size)
        self._runner = runner
        self._limits = limits
        self._times = times
        self._readings: dict[Sequence, _Reading] = {}
        self._is_broken = False

    def ready(self, wanted: Mapping[Sequence, int]) -> dict[Sequence, int]:
        """As ``Proposer``: of texts that are read but for a few tokens."""
        if self._is_broken:
            return {}
        ready: dict[Sequence, int] = {}
        behind: dict[Sequence, int] = {}
        for text, count in wanted.items():
            reading = self._readings.setdefault(text, _Reading(BlockTable(self.pool)))
            if reading.is_off or not self._has_room(text, reading, count):
                continue
            num_unread = reading.follow(text)
            if num_unread > FEW_TOKENS:
                behind[text] = num_unread
            else:
                ready[text] = count
        self._catch_up(behind)
        return ready

    def propose(self, counts: Mapping[Sequence, int]) -> dict[Sequence, list[int]]:
        """As ``Proposer``: one step of the draft model for each further token."""
        guesses: dict[Sequence, list[int]] = {text: [] for text in counts}
        going = dict(counts)
        while going:
            rows = [self._next_row(text, guesses[text]) for text in going]
            results = self._run(rows)
            for text, result in zip(list(going), results, strict=False):
                token_id = self._drawn(text, result)
                if token_id is not None:
                    guesses[text].append(token_id)
                if token_id is None or len(guesses[text]) == going[text]:
                    del going[text]
            if self._is_broken:
                return {}
        for text, found in guesses.items():
            reading = self._readings[text]
            if not reading.is_off and found:
                # The last guess was drawn, not read.
                reading.num_read, reading.guesses = text.num_known, found[:-1]
        return guesses

    def guess_s(self, num_texts: int) -> float:
        """As ``Proposer``."""
        return self._times.of(num_texts)

    def retain(self, texts: Iterable[Sequence]) -> None:
        """As ``Proposer``: blocks of other texts are free."""
        for text in self._readings.keys() - set(texts):
            self._readings.pop(text).blocks.release()

    def check_integrity(self) -> None:
        """Assert that the readings hold exactly the blocks that are not free."""
        self.pool.check_integrity(reading.blocks.held for reading in self._readings.values())

    def _has_room(self, text: Sequence, reading: _Reading, count: int) -> bool:
        """Whether blocks cover the text and its guesses; where they run out, its blocks are left to others."""
        num_tokens = text.num_known + count
        if num_tokens > self._limits.context_tokens:
            reading.close()
            return False
        if not reading.blocks.try_grow(num_tokens):
            reading.blocks.release()
            reading.num_read, reading.guesses = 0, []
            return False
        return True

    def _catch_up(self, behind: Mapping[Sequence, int]) -> None:
        """Read the next part of each text, oldest first, but for its last token."""
        left = self._limits.max_catch_up_tokens
        parts: dict[Sequence, int] = {}
        for text, num_unread in behind.items():
            if taken := min(left, num_unread - 1):
                parts[text] = taken
                left -= taken
        rows = []
        for text, count in parts.items():
            reading = self._readings[text]
            tokens = text.token_ids[reading.num_read : reading.num_read + count]
            rows.append(Row(tokens, reading.num_read, reading.blocks.block_ids, None))
        for (text, count), result in zip(parts.items(), self._run(rows), strict=False):
            if result is None:
                self._readings[text].num_read += count
            else:
                self._give_up(text, result)

    def _next_row(self, text: Sequence, guesses: list[int]) -> Row:
        """What is unread, or the last guess, and a draw behind it."""
        reading = self._readings[text]
        if guesses:
            start, tokens = text.num_known + len(guesses) - 1, guesses[-1:]
        else:
            start = reading.num_read
            tokens = text.token_ids[start:]
        return Row(tokens, start, reading.blocks.block_ids, _draw_behind(text, len(guesses)))

    def _drawn(self, text: Sequence, result: Contained) -> int | None:
        """The token of a row; None where there is none that the model itself could draw."""
        if not isinstance(result, Drawn):
            self._give_up(text, result)
            return None
        return result.token_id if result.token_id < self._limits.vocab_tokens else None

    def _run(self, rows: list[Row]) -> list[Contained]:
        """Results of the rows; none at all, and never any more, where the runner is broken."""
        if not rows:
            return []
        try:
            return run_contained(self._runner, rows)
        except EngineFailed as error:
            _log.error("draft_model_off", error=str(error), exc_info=error)
            self._is_broken = True
            for reading in self._readings.values():
                reading.close()
            return []

    def _give_up(self, text: Sequence, result: Contained) -> None:
        reason = result.reason if isinstance(result, RowFailed) else "no memory"
        _log.warning("draft_off", request_id=text.job.ticket.request_id, reason=reason)
        self._readings[text].close()


def _draw_behind(text: Sequence, num_guesses: int) -> Draw:
    """As the model itself will draw there; nobody asks what else was likely."""
    draw = text.draw_behind(text.num_known + num_guesses)
    assert draw is not None, "a text without output has no guesses"
    return replace(draw, num_top=None)
