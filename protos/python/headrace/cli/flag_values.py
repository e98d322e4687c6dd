"""What a flag's value may be, as far as a request can hold it: the error names the flag, as for any wrong usage."""

import argparse
from collections.abc import Callable
from typing import TypeVar

Number = TypeVar("Number", int, float)

LONGEST_S = 365 * 86_400.0
"""A year: no request lives as long, and what waits for an answer can count it."""


def whole(minimum: int, bits: int) -> Callable[[str], int]:
    """A whole number from ``minimum`` that an integer of so many value bits holds."""
    return lambda text: _between(_whole(text), minimum, (1 << bits) - 1)


def seconds(text: str) -> float:
    """A span of time above nothing."""
    value = _number(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be above 0, is {text}")
    return _between(value, 0.0, LONGEST_S)


def grace(text: str) -> float:
    """A span of time that may be nothing."""
    return _between(_number(text), 0.0, LONGEST_S)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _between(value: Number, minimum: Number, maximum: Number) -> Number:
    if not minimum <= value <= maximum:
        raise argparse.ArgumentTypeError(f"must be from {minimum} to {maximum}, is {value}")
    return value
