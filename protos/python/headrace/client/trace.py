"""W3C trace context of a call: given, or the current OpenTelemetry span's, or a new one."""

import re
import secrets
import sys
from dataclasses import dataclass
from typing import Self

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """What a call sends as ``traceparent`` and ``tracestate``."""

    traceparent: str
    tracestate: str = ""

    def __post_init__(self) -> None:
        """Refuses what a server would have to throw away."""
        match = _TRACEPARENT.fullmatch(self.traceparent)
        if match is None or match[1] == "ff" or not int(match[2], 16) or not int(match[3], 16):
            raise ValueError(f"not a W3C traceparent: {self.traceparent!r}")

    @property
    def trace_id(self) -> str:
        """The 32 hexadecimal digits to search for."""
        return self.traceparent[3:35]

    @classmethod
    def new(cls) -> Self:
        """A new trace, asking to be recorded."""
        # Zero is not a valid id; or-ing one in costs a bit of randomness and no loop.
        trace_id, span_id = secrets.randbits(128) | 1, secrets.randbits(64) | 1
        return cls(f"00-{trace_id:032x}-{span_id:016x}-01")

    @classmethod
    def current(cls) -> Self | None:
        """The current OpenTelemetry span's context, if there is a span."""
        # A program that never imported OpenTelemetry has no span, so nothing is imported for it.
        if "opentelemetry.trace" not in sys.modules:
            return None
        from opentelemetry import trace

        span = trace.get_current_span().get_span_context()
        if not span.is_valid:
            return None
        parent = f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
        return cls(parent, span.trace_state.to_header())

    @classmethod
    def for_call(cls, given: "TraceContext | None") -> "TraceContext":
        """The context that a call uses."""
        return given or cls.current() or cls.new()

    def headers(self) -> list[tuple[str, str]]:
        """The call's metadata."""
        state = [("tracestate", self.tracestate)] if self.tracestate else []
        return [("traceparent", self.traceparent), *state]
