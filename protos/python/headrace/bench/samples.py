"""What became of the requests of one level of load, and the figures made of it. Pure."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Sample:
    """One request. ``first_s`` is None where no token came; ``error`` names what went wrong, empty if nothing did."""

    took_s: float
    first_s: float | None
    tokens: int
    error: str = ""

    @property
    def per_token_s(self) -> float | None:
        """Mean time between tokens after the first."""
        if self.first_s is None or self.tokens < 2:
            return None
        return (self.took_s - self.first_s) / (self.tokens - 1)


@dataclass(frozen=True, slots=True)
class Objective:
    """What a good answer is: so soon, and so fast. None demands nothing."""

    first_s: float | None = None
    per_token_s: float | None = None

    def met_by(self, sample: Sample) -> bool:
        """Whether a request was answered as it should be."""
        if sample.error or sample.first_s is None:
            return False
        pace_s = sample.per_token_s
        in_time = self.first_s is None or sample.first_s <= self.first_s
        return in_time and (
            self.per_token_s is None or pace_s is None or pace_s <= self.per_token_s
        )


@dataclass(frozen=True, slots=True)
class Level:
    """The figures of one level. ``load``: requests at once, or wanted each second where ``is_open``."""

    load: float
    is_open: bool
    requests: int
    errors: int
    seconds: float
    requests_per_s: float
    tokens_per_s: float
    goodput_per_s: float
    first_p50_ms: float
    first_p99_ms: float
    per_token_p50_ms: float
    per_token_p99_ms: float
    total_p50_ms: float
    total_p99_ms: float

    @classmethod
    def of(
        cls,
        load: float,
        samples: Sequence[Sample],
        seconds: float,
        objective: Objective,
        *,
        is_open: bool,
    ) -> Self:
        """Made of the samples of ``seconds``."""
        answered = [one for one in samples if not one.error]
        firsts = [one.first_s for one in answered if one.first_s is not None]
        paces = [pace for one in answered if (pace := one.per_token_s) is not None]
        totals = [one.took_s for one in answered]
        return cls(
            load=load,
            is_open=is_open,
            requests=len(samples),
            errors=len(samples) - len(answered),
            seconds=seconds,
            requests_per_s=len(answered) / seconds,
            tokens_per_s=sum(one.tokens for one in samples) / seconds,
            goodput_per_s=sum(map(objective.met_by, samples)) / seconds,
            first_p50_ms=percentile_ms(firsts, 50),
            first_p99_ms=percentile_ms(firsts, 99),
            per_token_p50_ms=percentile_ms(paces, 50),
            per_token_p99_ms=percentile_ms(paces, 99),
            total_p50_ms=percentile_ms(totals, 50),
            total_p99_ms=percentile_ms(totals, 99),
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which knows no NaN: what was not measured is null."""
        return {
            key: None if isinstance(value, float) and math.isnan(value) else value
            for key, value in asdict(self).items()
        }

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Self:
        """What ``as_dict`` gave.

        Raises:
            KeyError: a figure is missing.
        """
        values: dict[str, Any] = {
            f.name: math.nan if found[f.name] is None else found[f.name] for f in fields(cls)
        }
        return cls(**values)


def percentile_ms(values_s: Sequence[float], percent: float) -> float:
    """By rank, in milliseconds: a value that was measured; NaN where nothing was."""
    if not values_s:
        return math.nan
    rank = math.ceil(len(values_s) * percent / 100)
    return sorted(values_s)[max(0, rank - 1)] * 1e3
