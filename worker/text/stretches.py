"""Stretches of a long text, for what would take too long on all of it."""

from collections.abc import Sequence


def stretches_of(token_ids: Sequence[int], num_tokens: int, most: int) -> list[list[int]]:
    """At most so many stretches of ``num_tokens``, spread evenly over the text; none where it is shorter than one."""
    count = min(most, len(token_ids) // num_tokens)
    step = len(token_ids) // max(1, count)
    return [list(token_ids[i * step : i * step + num_tokens]) for i in range(count)]
