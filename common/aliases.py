"""Names that point at models: which of its targets a request gets, and what a promotion makes of a name. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A model, at one revision or (empty) at the one that new requests get; ``weight`` is its share of the traffic."""

    model: str
    revision: str = ""
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Alias:
    """A name. ``fallback`` is for when no worker serves anything of ``current``.

    It is also for when more than ``fallback_above_waiting`` requests wait for each model of ``current``, if that is set.
    """

    name: str
    current: tuple[Target, ...]
    fallback: tuple[Target, ...] = ()
    fallback_above_waiting: int | None = None


class NoFallback(Exception):
    """A name is to be swapped with its fallback and has none."""


def choose(
    alias: Alias,
    is_served: Callable[[Target], bool],
    num_waiting: Callable[[Target], int],
    draw: float,
) -> Target:
    """The target for a request; ``draw`` is a number from 0 to below 1.

    What nobody serves is passed over as long as anything else is served; if nothing is, requests wait where they would
    have gone. So is, where the name has a threshold, what more requests wait for than that: the fallback must be served,
    however many wait for it.
    """
    current, fallback = (
        [target for target in targets if target.weight and is_served(target)]
        for targets in (alias.current, alias.fallback)
    )
    most = alias.fallback_above_waiting
    short = [target for target in current if most is None or num_waiting(target) <= most]
    for targets in (short, fallback, current):
        if targets:
            return _by_weight(targets, draw)
    return _by_weight([target for target in alias.current if target.weight], draw)


def promoted(alias: Alias, revision: str) -> Alias:
    """The name after a promotion: all traffic to a revision, or (empty) back to the fallback; the former is the fallback.

    What was before is a way back and no help under load: a threshold ends with the fallback that it was set for.

    Raises:
        NoFallback: there is nothing to go back to.
    """
    if not revision:
        if not alias.fallback:
            raise NoFallback
        return Alias(alias.name, alias.fallback, alias.current)
    model = max(alias.current, key=lambda target: target.weight).model
    return Alias(alias.name, (Target(model, revision),), alias.current)


def _by_weight(targets: Sequence[Target], draw: float) -> Target:
    place = draw * sum(target.weight for target in targets)
    for target in targets:
        place -= target.weight
        if place < 0:
            return target
    return targets[-1]
