"""Waiting for something outside this process, where there is no event to wait for."""

import time
from collections.abc import Callable
from typing import TypeVar

from tests.support.time_scale import scaled

T = TypeVar("T")


def eventually(look: Callable[[], T], *, within_s: float = 60, every_s: float = 0.02) -> T:
    """The first true value of `look`; fails with its last value when the time is over."""
    deadline = time.monotonic() + scaled(within_s)
    while not (value := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"did not come true within {within_s:g} s: {value!r}")
        time.sleep(every_s)
    return value
