"""Redaction of configured patterns: in values and in exported spans."""

from pathlib import Path

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from common.domain import TraceContext
from common.redaction import MARK, RedactingExporter, Redactor, problem_with
from common.tracing import Tracing

REDACTOR = Redactor([r"\b\d{3}-\d{4}\b", "secret"])


def test_texts_however_deep() -> None:
    """In lists and mappings too; what is no text stays."""
    value = {"a": ["call 555-1234", 5], "b": ("no secrets", None), "secret": True}
    expected = {"a": [f"call {MARK}", 5], "b": (f"no {MARK}s", None), "secret": True}
    assert REDACTOR.redacted(value) == expected
    assert Redactor.of(None).redacted("secret") == "secret"


def test_spans() -> None:
    """Attributes and events of what is exported; ids and times are the span's."""
    memory = InMemorySpanExporter()
    tracing = Tracing(Resource({}), SimpleSpanProcessor(RedactingExporter(memory, REDACTOR)))
    with tracing.span("name", parent=TraceContext()) as span:
        span.set_attribute("text", "call 555-1234")
        span.set_attribute("texts", ["secret"])
        span.add_event("told", {"what": "secret"})
        context = span.get_span_context()
    (exported,) = memory.get_finished_spans()
    assert exported.context == context
    assert dict(exported.attributes or {}) == {"text": f"call {MARK}", "texts": (MARK,)} or dict(
        exported.attributes or {}
    ) == {"text": f"call {MARK}", "texts": [MARK]}
    assert (exported.events[0].attributes or {})["what"] == MARK
    tracing.shutdown(1)


@pytest.mark.parametrize("content", ["", "patterns = 'a'", "patterns = ['(']", "patterns"])
def test_files_that_say_nothing(tmp_path: Path, content: str) -> None:
    """They are a problem of the settings."""
    path = tmp_path / "redact.toml"
    path.write_text(content)
    assert problem_with(path)
    assert problem_with(tmp_path / "none")
    path.write_text("patterns = ['a']")
    assert problem_with(path) is None
