"""Logs: structlog, one JSON object a line on stderr, and the standard library's loggers routed into it.

A line is for an event of a request or of a process, never of a token. What people wrote to the model
and what it answered stays out: fields that carry such text are replaced, whoever logs them.
"""

import logging
import sys
from collections.abc import Mapping
from typing import Any, TextIO, cast

import structlog
from opentelemetry import trace
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from common.domain import TraceContext
from common.log_repeats import RepeatFilter
from common.redaction import Redactor
from common.service_settings import LogFormat, LogLevel

Log = FilteringBoundLogger

_CONTENT_FIELDS = frozenset(
    {"prompt", "text", "messages", "content", "completion", "delta", "token_ids", "stop"}
)
_WITHHELD = "(withheld)"
# Chatty at INFO about connections that our own lines report with the request or worker concerned.
_QUIET_LOGGERS = ("grpc", "asyncio", "urllib3", "transformers", "filelock", "httpx")

_NUMBERS = {name.lower(): number for name, number in logging.getLevelNamesMapping().items()}

# Exporters complain for as long as their receiver is away, gRPC of every header that is no text.
_REPEATING_LOGGERS = ("opentelemetry", "grpc")


def configure_logs(
    service: str,
    *,
    instance: str = "",
    level: LogLevel = LogLevel.INFO,
    log_format: LogFormat = LogFormat.JSON,
    stream: TextIO | None = None,
    redactor: Redactor | None = None,
) -> Log:
    """Set up the process's logging, once, and return the service's logger; ``redactor`` has a look at every line."""

    def redact(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        return event if redactor is None else cast("EventDict", redactor.redacted(event))

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _Constant({"service": service} | ({"instance": instance} if instance else {})),
        add_current_span,
        withhold_content,
        structlog.processors.StackInfoRenderer(),
    ]
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    renderers = _renderers(log_format, handler.stream, redact)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *renderers,
            ],
        )
    )
    handler.addFilter(RepeatFilter(_REPEATING_LOGGERS))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    logging.captureWarnings(capture=True)
    set_log_level(level)
    # Our own lines do not pass through the standard library: that would cost as much again as making them.
    structlog.configure(
        processors=[drop_below_level, *shared, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        logger_factory=structlog.WriteLoggerFactory(handler.stream),
        cache_logger_on_first_use=True,
    )
    return get_log(service)


def get_log(name: str) -> Log:
    """A logger; it may be made before ``configure_logs``, which it obeys from its first line on."""
    return cast("Log", structlog.get_logger(name))


def set_log_level(level: LogLevel) -> str:
    """Change how much is written, at any time; the level that was in force."""
    former = logging.getLevelName(logging.getLogger().level).lower()
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(number)
    for name in _QUIET_LOGGERS:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))
    return former


def for_request(log: Log, request_id: str, context: TraceContext | None = None) -> Log:
    """``log`` with the ids by which a request is found again."""
    fields = {"request_id": request_id}
    parts = context.traceparent.split("-") if context is not None else []
    if len(parts) >= 4:
        fields |= {"trace_id": parts[1], "span_id": parts[2]}
    return log.bind(**fields)


def drop_below_level(_: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Lets pass what is important enough now: ``set_log_level`` works on loggers that exist."""
    if _NUMBERS[method] < logging.getLogger().level:
        raise structlog.DropEvent
    return event


def add_current_span(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Trace and span id of the current span, if there is one and the caller bound none."""
    context = trace.get_current_span().get_span_context()
    if context.is_valid and "trace_id" not in event:
        event["trace_id"] = f"{context.trace_id:032x}"
        event["span_id"] = f"{context.span_id:016x}"
    return event


def withhold_content(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Replaces fields that carry what people wrote or the model answered."""
    for name in _CONTENT_FIELDS & event.keys():
        event[name] = _WITHHELD
    return event


class _Constant:
    """Adds the same fields to every line."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = dict(fields)

    def __call__(self, _: WrappedLogger, __: str, event: EventDict) -> EventDict:
        for name, value in self._fields.items():
            event.setdefault(name, value)
        return event


def _renderers(log_format: LogFormat, stream: TextIO, redact: Processor) -> list[Processor]:
    if log_format is LogFormat.CONSOLE:
        return [
            redact,
            structlog.dev.ConsoleRenderer(
                colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    # Tracebacks as plain text: the richer renderers show local variables, prompts among them.
    return [
        structlog.processors.format_exc_info,
        structlog.processors.UnicodeDecoder(),
        redact,
        structlog.processors.JSONRenderer(default=_as_text, ensure_ascii=False),
    ]


def _as_text(value: Any) -> str:
    return str(value)
