"""Delays between attempts: exponential, jittered so that many who failed together do not return together."""

from collections.abc import Callable, Iterator

Random = Callable[[], float]
"""Uniform in [0, 1); ``random.random`` outside of tests."""


def backoff_delays_s(
    random: Random, *, first_s: float = 0.1, max_s: float = 5.0, factor: float = 2.0
) -> Iterator[float]:
    """Delays without end: the n-th lies in the upper half of ``min(max_s, first_s * factor**n)``.

    Half is fixed so that a broken peer is never hammered; half is random so that peers spread out. After
    a success the caller begins a new iterator.
    """
    assert 0 < first_s <= max_s, (first_s, max_s)
    assert factor >= 1, factor
    ceiling_s = first_s
    while True:
        yield ceiling_s * (0.5 + 0.5 * random())
        ceiling_s = min(max_s, ceiling_s * factor)
