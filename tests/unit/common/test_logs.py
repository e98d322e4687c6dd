"""Logs: one JSON object a line, with the ids that find a request again and without what people wrote."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from opentelemetry.sdk.resources import Resource

from common.domain import TraceContext
from common.log_repeats import REPEAT_INTERVAL_S, RepeatFilter
from common.logs import configure_logs, for_request, get_log, set_log_level
from common.redaction import Redactor
from common.service_settings import LogFormat, LogLevel
from common.tracing import Tracing, context_of
from tests.support.fake_clock import FakeClock

PARENT = TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where the lines go; the process's logging is as before afterwards."""
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    yield io.StringIO()
    structlog.reset_defaults()
    root.handlers, root.level = before
    logging.captureWarnings(capture=False)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_says_when_who_and_what(stream):
    """Time, level, service and instance on every line."""
    configure_logs("gateway", instance="g1", stream=stream).info("serving", port=1)
    (line,) = lines(stream)
    assert line.pop("timestamp")
    assert line == {
        "event": "serving",
        "level": "info",
        "service": "gateway",
        "instance": "g1",
        "port": 1,
    }


def test_the_standard_library_logs_through_it(stream):
    """Lines of libraries have the same shape, with the logger's name."""
    configure_logs("worker", stream=stream)
    logging.getLogger("some.library").warning("careful: %s", "hot")
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["logger"]) == (
        "careful: hot",
        "warning",
        "some.library",
    )
    assert line["service"] == "worker"


def test_a_line_inside_a_current_span_names_it(stream):
    """Logs and traces meet by trace_id."""
    log = configure_logs("scheduler", stream=stream)
    with Tracing(Resource({})).span("x", parent=PARENT, current=True):
        log.info("inside")
    log.info("outside")
    inside, outside = lines(stream)
    assert inside["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert "trace_id" not in outside


def test_a_request_is_bound_explicitly(stream):
    """In a loop that serves many requests, only the bound ids count."""
    log = configure_logs("scheduler", stream=stream)
    tracing = Tracing(Resource({}))
    with tracing.span("another request", current=True) as span:
        for_request(log, "m:0:abc", PARENT).info("dispatched")
    (line,) = lines(stream)
    assert line["request_id"] == "m:0:abc"
    assert line["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert line["trace_id"] not in context_of(span).traceparent


def test_what_people_wrote_stays_out(stream):
    """Whoever logs a prompt or an answer, by mistake or not, it is not written."""
    log = configure_logs("gateway", stream=stream)
    log.info("refused", prompt="my secret", text="the secret", messages=["secret"])
    assert "secret" not in stream.getvalue()


def test_a_traceback_shows_no_local_variables(stream):
    """Frames hold prompts; names and lines of code are enough."""
    log = configure_logs("worker", stream=stream)

    def fail(hidden: str) -> None:
        raise ValueError(len(hidden))

    try:
        fail("my " + "secret")
    except ValueError:
        log.exception("failed")
    (line,) = lines(stream)
    assert "ValueError: 9" in str(line["exception"])
    assert "my secret" not in stream.getvalue()


def test_the_level_changes_at_run_time_for_loggers_in_use(stream):
    """An operator turns debug on without a restart."""
    configure_logs("gateway", level=LogLevel.WARNING, stream=stream)
    log = get_log("relay")
    log.info("not written")
    set_log_level(LogLevel.DEBUG)
    log.debug("written")
    assert [line["event"] for line in lines(stream)] == ["written"]


def test_what_clients_make_the_library_complain_of_is_said_once(stream):
    """A header that is no text costs no line for each call, whatever bytes it has."""
    configure_logs("gateway", stream=stream)
    for number in range(100):
        logging.getLogger("grpc._cython.cygrpc").error("Invalid encoding on %s", bytes([number]))
    assert [line["event"] for line in lines(stream)] == ["Invalid encoding on b'\\x00'"]


def test_the_console_format_is_for_people(stream):
    """No JSON, no colours where there is no terminal."""
    configure_logs("gateway", log_format=LogFormat.CONSOLE, stream=stream).info("serving", port=1)
    assert "serving" in stream.getvalue()
    assert "{" not in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_values_that_json_does_not_know_are_written_as_text(stream):
    """A log line never raises."""
    configure_logs("gateway", stream=stream).info("odd", value=object(), raw=b"\xff")
    (line,) = lines(stream)
    assert "object object" in str(line["value"])


def test_a_complaint_that_repeats_is_written_once_in_a_while():
    """A telemetry receiver that is away costs a line a minute, other loggers and messages stay whole."""
    clock = FakeClock()
    repeats = RepeatFilter(("noisy",), clock)

    def passes(name: str, message: str, *args: object) -> bool:
        return repeats.filter(logging.LogRecord(name, 30, "", 0, message, args, None))

    assert passes("noisy.export", "failed: %s", 1)
    assert not passes("noisy.export", "failed: %s", 2)
    assert passes("noisy.export", "something else")
    assert passes("quiet", "failed: %s", 1)
    assert passes("quiet", "failed: %s", 1)
    clock.advance(REPEAT_INTERVAL_S)
    assert passes("noisy.export", "failed: %s", 3)


def test_patterns_are_redacted(stream: io.StringIO) -> None:
    """Fields, messages and tracebacks; the line stays JSON."""
    log = configure_logs("test", stream=stream, redactor=Redactor([r"\d{3}-\d{4}", "secret"]))
    try:
        raise ValueError("555-1234 was told")
    except ValueError as error:
        log.error("a secret", detail="555-1234", exc_info=error)
    line = stream.getvalue()
    assert "555-1234" not in line
    assert json.loads(line)["detail"] == "[redacted]"
    assert "was told" in json.loads(line)["exception"]
