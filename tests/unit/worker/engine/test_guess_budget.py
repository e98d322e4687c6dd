"""How many tokens are guessed follows from times and chances."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from worker.engine.guess_budget import Chance, choose_counts
from worker.engine.step_times import StepTimes

FLAT = StepTimes.flat()
STEEP = StepTimes(((1, ((0, 1.0), (1, 2.0))), (2, ((0, 2.0), (1, 4.0)))))
"""A step takes as long as it has tokens."""


def free(_: int) -> float:
    return 0.0


def choose(
    chances: dict[str, Chance],
    times: StepTimes,
    guess_s: Callable[[int], float] = free,
    max_tokens: int = 64,
) -> dict[str, int]:
    return choose_counts(chances, len(chances), times, guess_s, max_tokens)


def test_what_is_free_is_taken() -> None:
    """Up to each limit, and up to the tokens of a step, likeliest first."""
    chances = {"a": Chance(0.5, 3), "b": Chance(0.9, 5), "c": Chance(0.9, 0)}
    assert choose(chances, FLAT) == {"a": 3, "b": 5}
    assert choose(chances, FLAT, max_tokens=3 + 3) == {"b": 3}


def test_nothing_is_guessed_where_a_token_costs_a_step() -> None:
    """Not even by somebody who is nearly always right."""
    assert choose({"a": Chance(0.99, 7), "b": Chance(0.99, 7)}, STEEP) == {}


def test_time_to_guess_counts() -> None:
    """A draft model as slow as the model itself never pays; one a tenth as slow pays for some tokens."""
    chances = {"a": Chance(0.8, 7)}
    assert choose(chances, FLAT, lambda _: 1.0) == {}
    assert choose(chances, FLAT, lambda _: 0.1) == {"a": 6}
    assert choose(chances, FLAT, lambda _: 0.3) == {"a": 3}


def test_tiles_are_filled_to_their_end() -> None:
    """Where the next few tokens cost much and those behind them nothing, it looks beyond the first."""
    tiled = StepTimes(((1, ((0, 1.0), (1, 1.9), (7, 1.9))),))
    assert choose({"a": Chance(0.9, 7)}, tiled) == {"a": 7}


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 7)), min_size=1, max_size=9),
    st.floats(0.0, 2.0),
    st.floats(0.0, 1.0),
)
def test_what_is_chosen_is_never_slower(
    told: list[tuple[float, int]], slope: float, guess_s: float
) -> None:
    """By the very model of it: tokens a second are no fewer than without guesses."""
    chances = {str(i): Chance(*one) for i, one in enumerate(told)}
    times = StepTimes(tuple((n, ((0, 1.0), (1, 1.0 + slope * n))) for n in (1, 9)))
    counts = choose(chances, times, lambda n: guess_s)
    assert all(0 < count <= chances[text].limit for text, count in counts.items())
    num, depth = len(chances), max(counts.values(), default=0)
    expected = num + sum(
        chances[text].share_right ** i
        for text, count in counts.items()
        for i in range(1, count + 1)
    )
    step_s = times.of(num, sum(counts.values())) + depth * guess_s
    assert expected / step_s >= num / times.of(num) - 1e-9
