"""The border between the engine, which is plain Python, and whatever computes: a model or a simulation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from common.domain import SamplingParams
from worker.engine.constraint import Constraint
from worker.engine.seen_tokens import SeenTokens


@dataclass(frozen=True, slots=True)
class Draw:
    """How to draw a row's next token; the generator is keyed by (seed, choice, position).

    ``seen`` is there where a penalty asks for it. ``forbidden`` tokens cannot be drawn. With ``num_top`` the token's
    log probability is wanted, and those of so many of the likeliest. Only what ``constraint`` allows can be drawn.
    """

    params: SamplingParams
    choice: int
    position: int
    seen: SeenTokens | None = None
    forbidden: Sequence[int] = ()
    num_top: int | None = None
    constraint: Constraint | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence's share of a step: known tokens to compute, at consecutive positions.

        positions   0 ........ start ........ start + len(token_ids)
                    in the cache │ token_ids: computed now
        block_ids   cover all of it; entry i holds positions i*block_size .. (i+1)*block_size - 1

    ``draw`` is None when the step ends inside known tokens, so that nothing is to be drawn. ``targets`` are the known
    tokens behind the first of ``token_ids``, one by one, whose log probabilities are wanted with ``num_top`` alternatives.

    ``guesses`` are computed behind ``token_ids``, and behind each of them is drawn as ``later_draws`` say (`speculation`);
    the blocks cover them too.
    """

    token_ids: Sequence[int]
    start: int
    block_ids: Sequence[int]
    draw: Draw | None
    inject_nan: bool = False
    targets: Sequence[int] = ()
    num_top: int = 0
    guesses: Sequence[int] = ()
    later_draws: Sequence[Draw] = ()


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Log probability of a token, and the likeliest ones (token, log probability) at its place, best first."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Drawn:
    """The next token of a row, with its scores where they were wanted."""

    token_id: int
    scores: TokenScores | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """The next tokens of a row with guesses: all but the last were guessed right."""

    drawn: tuple[Drawn, ...]


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores of a row's targets, and the token that was drawn behind them, if one was."""

    scores: tuple[TokenScores, ...]
    drawn: Drawn | None = None


@dataclass(frozen=True, slots=True)
class RowFailed:
    """A row failed alone; ``reason`` is a stable label such as NUMERIC."""

    reason: str
    message: str


NUMERIC = "NUMERIC"
DEAD_END = "CONSTRAINT_DEAD_END"
"""Reasons why a row failed: its numbers are none, or nothing that its grammar allows may follow."""

RowResult = Drawn | Checked | Scored | RowFailed | None


def checked(
    found: Sequence[Drawn | RowFailed], guesses: Sequence[int]
) -> Drawn | Checked | RowFailed:
    """Of what was ``found`` behind a row and behind each of its guesses, what counts."""
    first, *later = found
    if isinstance(first, RowFailed) or not guesses:
        return first
    drawn = [first]
    for guess, one in zip(guesses, later, strict=True):
        # What fails behind a right guess fails again in the next step, as it would without speculation.
        if guess != drawn[-1].token_id or isinstance(one, RowFailed):
            break
        drawn.append(one)
    return Checked(tuple(drawn))


class ModelRunner(Protocol):
    """Computes steps over a paged KV cache of ``num_blocks`` blocks of ``block_size`` tokens."""

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        ...

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        ...

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        """Compute the rows in one step.

        Writes the rows' keys and values into their blocks and draws one token for each row that asks.
        Rows never influence one another. Returns one result for each row, in order.

        Raises:
            Exception: the step failed as a whole; no row's blocks may be trusted behind ``start``.
        """
        ...
