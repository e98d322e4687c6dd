"""Thin clients over the stubs: ``Client`` for threads, ``AsyncClient`` for asyncio."""

from headrace.client.aio_client import AsyncClient
from headrace.client.aio_stream import AsyncTokenStream
from headrace.client.client import Client
from headrace.client.errors import (
    Aborted,
    AlreadyExists,
    Cancelled,
    DeadlineExceeded,
    FieldViolation,
    HeadraceError,
    InternalFailure,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    Resource,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from headrace.client.reattach import ReattachPolicy
from headrace.client.requests import GenerateOptions, PromptLike, build_prompt, build_request
from headrace.client.retry import RetryPolicy
from headrace.client.status import error_from_batch
from headrace.client.stream import TokenStream
from headrace.client.trace import TraceContext

__all__ = [
    "Aborted",
    "AlreadyExists",
    "AsyncClient",
    "AsyncTokenStream",
    "Cancelled",
    "Client",
    "DeadlineExceeded",
    "FieldViolation",
    "GenerateOptions",
    "HeadraceError",
    "InternalFailure",
    "InvalidRequest",
    "NotFound",
    "PermissionDenied",
    "PromptLike",
    "ReattachPolicy",
    "Resource",
    "ResourceExhausted",
    "RetryPolicy",
    "TokenStream",
    "TraceContext",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "build_prompt",
    "build_request",
    "error_from_batch",
]
