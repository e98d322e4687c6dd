"""Names that point at models: which of its targets a request gets, and what a promotion makes of a name. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Target:
    """A model, at one revision or (empty) at the one that new requests get; ``weight`` is its share of the traffic."""

    model: str
    revision: str = ""
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Alias:
    """A name. ``fallback`` is for when no worker serves anything of ``current``."""

    name: str
    current: tuple[Target, ...]
    fallback: tuple[Target, ...] = ()


class NoFallback(Exception):
    """A name is to be swapped with its fallback and has none."""


def choose(alias: Alias, is_served: Callable[[Target], bool], draw: float) -> Target:
    """The target for a request; ``draw`` is a number from 0 to below 1.

    What nobody serves is passed over as long as anything else is served; if nothing is, requests wait where they would
    have gone.
    """
    for targets in (alias.current, alias.fallback):
        served = [target for target in targets if target.weight and is_served(target)]
        if served:
            return _by_weight(served, draw)
    return _by_weight([target for target in alias.current if target.weight], draw)


def promoted(alias: Alias, revision: str) -> Alias:
    """The name after a promotion: all traffic to a revision, or (empty) back to the fallback; the former is the fallback.

    Raises:
        NoFallback: there is nothing to go back to.
    """
    if not revision:
        if not alias.fallback:
            raise NoFallback
        return replace(alias, current=alias.fallback, fallback=alias.current)
    model = max(alias.current, key=lambda target: target.weight).model
    return replace(alias, current=(Target(model, revision),), fallback=alias.current)


def _by_weight(targets: Sequence[Target], draw: float) -> Target:
    place = draw * sum(target.weight for target in targets)
    for target in targets:
        place -= target.weight
        if place < 0:
            return target
    return targets[-1]
