"""Shares of tenants as an operator writes them: ``name=weight``."""

from collections.abc import Mapping, Sequence


def weights_of(pairs: Sequence[str]) -> Mapping[str, float]:
    """The weights that ``pairs`` name.

    Raises:
        ValueError: one of them is no name with a positive number.
    """
    weights: dict[str, float] = {}
    for pair in pairs:
        name, _, number = pair.partition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = 0.0
        if not name or not 0 < weight < float("inf"):
            raise ValueError(f"{pair!r} is not name=weight with a weight above 0")
        weights[name] = weight
    return weights


def problem_with(pairs: Sequence[str]) -> str | None:
    """What is wrong with ``pairs``, or None."""
    try:
        weights_of(pairs)
    except ValueError as error:
        return str(error)
    return None
