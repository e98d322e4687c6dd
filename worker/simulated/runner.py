"""A runner that computes hashes where a model computes keys and values.

The cache is real: for each position it stores the token and a rolling hash of everything up to it, in the block that the
row's table names. What is drawn depends on the hash before it and on a few earlier positions read through the
table, as attention would. So a wrong block, a position computed twice with other content or a block that somebody
else overwrote gives other tokens, and the tests that compare tokens see it.
"""

import time
from collections.abc import Callable, Sequence

from worker.engine.costs import StepCosts
from worker.engine.runner import (
    DEAD_END,
    NUMERIC,
    Draw,
    Drawn,
    Row,
    RowFailed,
    RowResult,
    Scored,
    checked,
)
from worker.engine.step_times import StepTimes
from worker.simulated.blocks import SimulatedBlocks
from worker.simulated.choice import LOOK_BACK_TOKENS, choose_allowed, choose_token
from worker.simulated.scores import scores_of
from worker.simulated.settings import SimulatedSettings
from worker.simulated.vocabulary import VOCAB_SIZE

_MASK = (1 << 64) - 1
_NUM_ATTENDED = 3
_DECISIVE_BIAS = 100.0
_NUM_TRIES = 16


class SimulatedRunner:
    """Deterministic tokens at a set speed: ``step_ms`` a step, and ``prefill_tokens_per_s`` on top."""

    def __init__(
        self, settings: SimulatedSettings, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """An empty cache."""
        self._settings = settings
        self._sleep = sleep
        self.blocks = SimulatedBlocks(settings.kv_blocks, settings.block_size)
        self._hashes = self.blocks.hashes
        self._tokens = self.blocks.tokens

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return self._settings.kv_blocks

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._settings.block_size

    @property
    def costs(self) -> StepCosts:
        """What was set, as if it had been measured."""
        rate = self._settings.prefill_tokens_per_s
        decodes = StepTimes.flat(self._settings.step_ms / 1000)
        return StepCosts(1 / rate if rate else 0.0, block_copy_s=0.0, decodes=decodes)

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        """Compute the rows; see ``ModelRunner``."""
        duration_s = self._duration_s(rows)
        if duration_s > 0:
            self._sleep(duration_s)
        return [self._check(row) if row.guesses else self._compute(row) for row in rows]

    def _duration_s(self, rows: Sequence[Row]) -> float:
        # A row of one token that draws is a decode; its time is the step's.
        prefill_tokens = sum(
            len(row.token_ids) for row in rows if len(row.token_ids) > 1 or row.draw is None
        )
        rate = self._settings.prefill_tokens_per_s
        return self._settings.step_ms / 1000 + (prefill_tokens / rate if rate else 0.0)

    def _check(self, row: Row) -> RowResult:
        """Compute every guess, whether it is right or not, as a model does."""
        first = self._compute(row)
        assert isinstance(first, Drawn | RowFailed)
        found = [first]
        guessed = zip(row.guesses, row.later_draws, strict=True)
        for position, (guess, draw) in enumerate(guessed, row.start + len(row.token_ids)):
            later = self._compute(Row([guess], position, row.block_ids, draw))
            assert isinstance(later, Drawn | RowFailed)
            found.append(later)
        return checked(found, row.guesses)

    def _compute(self, row: Row) -> RowResult:
        value = self._hashes[self._slot(row, row.start - 1)] if row.start else 0
        for position, token_id in enumerate(row.token_ids, row.start):
            value = _mix(value, token_id + 1)
            slot = self._slot(row, position)
            self._hashes[slot] = value
            self._tokens[slot] = token_id
        if row.inject_nan:
            return RowFailed(NUMERIC, "the logits are not numbers")
        scores = tuple(
            scores_of(self._hashes[self._slot(row, position)], token_id, row.num_top)
            for position, token_id in enumerate(row.targets, row.start)
        )
        drawn = None if row.draw is None else self._drawn(row, row.draw, value)
        if not scores or isinstance(drawn, RowFailed):
            return drawn
        return Scored(scores, drawn)

    def _draw(self, row: Row, draw: Draw, value: int) -> int | None:
        num_known = row.start + len(row.token_ids)
        for _ in range(_NUM_ATTENDED):
            attended = value % num_known
            value = _mix(value, self._hashes[self._slot(row, attended)])
        if draw.params.temperature > 0:
            for part in (draw.params.seed, draw.choice, draw.position):
                value = _mix(value, part)
        last = [
            self._tokens[self._slot(row, position)]
            for position in range(max(0, num_known - LOOK_BACK_TOKENS), num_known)
        ]
        return self._choose(_penalized(value, draw), last, draw)

    def _drawn(self, row: Row, draw: Draw, value: int) -> Drawn | RowFailed:
        token_id = self._draw(row, draw, value)
        if token_id is None:
            assert draw.constraint is not None
            return RowFailed(DEAD_END, draw.constraint.failure or "nothing may follow")
        wanted = draw.num_top
        return Drawn(token_id, None if wanted is None else scores_of(value, token_id, wanted))

    def _choose(self, value: int, last: Sequence[int], draw: Draw) -> int | None:
        if draw.constraint is not None:
            return choose_allowed(value, draw)
        bias = draw.params.logit_bias
        wanted = max(bias, key=bias.__getitem__, default=None)
        if wanted is not None and bias[wanted] >= _DECISIVE_BIAS:
            return wanted
        hidden = {token_id for token_id, less in bias.items() if less <= -_DECISIVE_BIAS}
        hidden.update(draw.forbidden)
        for _ in range(_NUM_TRIES):
            token_id = choose_token(value, last, eos_every=self._settings.eos_every)
            if token_id not in hidden:
                return token_id
            value = _mix(value, token_id)
        return next(token_id for token_id in range(VOCAB_SIZE) if token_id not in hidden)

    def _slot(self, row: Row, position: int) -> int:
        block, offset = divmod(position, self._settings.block_size)
        return row.block_ids[block] * self._settings.block_size + offset


def _penalized(value: int, draw: Draw) -> int:
    """Where a model's penalties look at the tokens so far, the hash does: one that was forgotten or counted twice shows."""
    if draw.seen is None:
        return value
    for token_id, count in zip(draw.seen.token_ids, draw.seen.counts, strict=True):
        if count:
            value = _mix(value, token_id * 1_000_003 + round(count))
    return value


def _mix(value: int, part: int) -> int:
    """A hash of two numbers: multiply and fold, with the constants of SplitMix64."""
    value = (value + 0x9E3779B97F4A7C15 + (part & _MASK) * 0xBF58476D1CE4E5B9) & _MASK
    value ^= value >> 30
    value = value * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)
