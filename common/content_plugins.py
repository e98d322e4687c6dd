"""Finds content filters by name among the entry points of what is installed.

An entry point of the group ``headrace.content_filters`` is a function from the setting's argument to a ``ContentFilter``:
``--output-filters patterns=/etc/headrace/patterns.toml`` calls ``patterns`` with the path.
"""

import hashlib
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points

from common.content_filter import ContentFilter
from common.server import CannotServe

GROUP = "headrace.content_filters"


def load_filters(specs: Sequence[str], flag: str) -> tuple[ContentFilter, ...]:
    """The filters that a setting names, in its order.

    Raises:
        CannotServe: one is not installed, or refuses its argument.
    """
    return tuple(_load(spec, flag) for spec in specs)


def identity_of(filters: Sequence[ContentFilter]) -> str:
    """One name for what several filters do together; empty for none."""
    if not filters:
        return ""
    named = [(one.name, one.identity, one.hold_back) for one in filters]
    return hashlib.sha256(repr(named).encode()).hexdigest()[:16]


def _load(spec: str, flag: str) -> ContentFilter:
    name, _, argument = spec.partition("=")
    installed = {point.name: point for point in entry_points(group=GROUP)}
    if name not in installed:
        known = ", ".join(sorted(installed)) or "none"
        raise CannotServe(f"{flag}: no content filter {name} is installed (there is {known})")
    try:
        make: Callable[[str], ContentFilter] = installed[name].load()
        return make(argument)
    except (ImportError, AttributeError, ValueError) as error:
        raise CannotServe(f"{flag}: {spec}: {error}") from error
