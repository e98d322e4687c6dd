"""Collects everything that is wrong with a request, so that the caller hears of all of it at once."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from common.errors import INVALID_REQUEST, FieldViolation, InvalidRequest

# A message of a million bad ids must not become a million findings; the trailer holds a few dozen anyway.
MAX_FINDINGS = 100
UINT32_MAX = 2**32 - 1
"""No id on the wire is above it; where no model is known nobody looks at a million of them."""


class Findings:
    """Refused fields so far."""

    def __init__(self) -> None:
        """Nothing is wrong yet."""
        self._violations: list[FieldViolation] = []
        self._special: InvalidRequest | None = None

    @property
    def violations(self) -> Sequence[FieldViolation]:
        """What was found, in the order of the checks."""
        return self._violations

    def has(self, field: str) -> bool:
        """Whether a field, or something within it, was refused."""
        return any(found.field.startswith(field) for found in self._violations)

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """What is refused within is found beside the rest; the first reason of its own names the whole."""
        try:
            yield
        except InvalidRequest as error:
            for violation in error.violations:
                self.add(violation.field, violation.description)
            if self._special is None and error.reason != INVALID_REQUEST:
                self._special = error

    def add(self, field: str, description: str) -> None:
        """``field`` is a path in the request; ``description`` says what is wrong and which limit applies."""
        if len(self._violations) < MAX_FINDINGS:
            self._violations.append(FieldViolation(field, description))

    def number(
        self,
        field: str,
        value: float | None,
        low: float,
        high: float,
        *,
        open_low: bool = False,
    ) -> None:
        """A finite number between the bounds, or unset."""
        if value is None:
            return
        if math.isfinite(value) and (low < value if open_low else low <= value) and value <= high:
            return
        left = f"above {low:g}" if open_low else f"at least {low:g}"
        self.add(field, f"must be {left} and at most {high:g}, is {value:g}")

    def size(self, field: str, text: str, max_bytes: int) -> None:
        """Text of at most so many bytes."""
        # A character has at least one byte, so huge strings are refused before they are encoded.
        if len(text) > max_bytes or len(text.encode()) > max_bytes:
            self.add(field, f"must have at most {max_bytes} bytes")

    def vocabulary(self, field: str, ids: Sequence[int], vocab_size: int, first: int = 0) -> None:
        """Token ids that the model knows; ``first`` is the index of the first of them."""
        if vocab_size > UINT32_MAX or not ids or max(ids) < vocab_size:
            return
        for index, token_id in enumerate(ids, first):
            if token_id >= vocab_size:
                self.add(f"{field}[{index}]", f"must be below {vocab_size}, is {token_id}")
                if len(self._violations) >= MAX_FINDINGS:
                    return

    def raise_if_any(self) -> None:
        """End the request here if something was found."""
        if self._special is not None:
            special = self._special
            raise InvalidRequest(
                self._violations, reason=special.reason, metadata=special.metadata
            )
        if self._violations:
            raise InvalidRequest(self._violations)
