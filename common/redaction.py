"""Redaction: what configured patterns match never reaches a log line or an exported span.

patterns = ['\\b\\d{3}-\\d{2}-\\d{4}\\b']     # TOML; each match is shown as [redacted]
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

MARK = "[redacted]"


class Redactor:
    """Replaces matches in texts, however deep they lie."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """``patterns`` are regular expressions (ValueError: one cannot be used)."""
        try:
            self._patterns = [re.compile(pattern) for pattern in patterns]
        except re.error as error:
            raise ValueError(f"{error.pattern!r}: {error}") from error

    @classmethod
    def of(cls, path: Path | None) -> "Redactor":
        """As a file says; one that replaces nothing without a file.

        Raises:
            ValueError: it says nothing that can be used.
            OSError: it cannot be read.
        """
        if path is None:
            return cls(())
        patterns = tomllib.loads(path.read_text()).get("patterns")
        if not isinstance(patterns, list) or not all(isinstance(one, str) for one in patterns):
            raise ValueError("patterns must be a list of regular expressions")
        return cls(patterns)

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def redacted(self, value: Any) -> Any:
        """The value with everything redacted that is text in it."""
        if isinstance(value, str):
            for pattern in self._patterns:
                value = pattern.sub(MARK, value)
            return value
        if isinstance(value, Mapping):
            return {key: self.redacted(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)([self.redacted(item) for item in value])
        return value


class RedactingExporter(SpanExporter):
    """Exports spans whose attributes, events and states are redacted; names of spans are ours."""

    def __init__(self, exporter: SpanExporter, redactor: Redactor) -> None:
        """In front of ``exporter``."""
        self._exporter = exporter
        self._redactor = redactor

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export copies: a span that is done is not changed."""
        return self._exporter.export([self._copy(span) for span in spans])

    def shutdown(self) -> None:
        """End the exporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what is left."""
        return self._exporter.force_flush(timeout_millis)

    def _copy(self, span: ReadableSpan) -> ReadableSpan:
        clean = self._redactor.redacted
        return ReadableSpan(
            name=span.name,
            context=span.context,
            parent=span.parent,
            resource=span.resource,
            attributes=clean(dict(span.attributes or {})),
            events=[
                Event(event.name, clean(dict(event.attributes or {})), event.timestamp)
                for event in span.events
            ],
            links=span.links,
            kind=span.kind,
            status=span.status,
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=span.instrumentation_scope,
        )


def problem_with(path: Path | None) -> str | None:
    """A check of a setting."""
    try:
        Redactor.of(path)
    except (OSError, ValueError) as error:
        return str(error)
    return None
