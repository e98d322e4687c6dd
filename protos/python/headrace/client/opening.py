"""What both clients do without waiting for anybody: streams are opened, and calls get their limits."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar, Unpack

from headrace.client.cursor import Cursor
from headrace.client.reattach import Reattach, ReattachPolicy
from headrace.client.requests import GenerateOptions, PromptLike, build_request, with_timeout
from headrace.client.trace import TraceContext
from headrace.v1 import inference_service_pb2 as pb

_Stream = TypeVar("_Stream")


class OpensStreams(ABC, Generic[_Stream]):
    """A client with streams of one kind."""

    def __init__(self, timeout_s: float | None) -> None:
        """``timeout_s``: of calls that name none."""
        self._timeout_s = timeout_s

    def stream(
        self,
        prompt: PromptLike | pb.GenerateRequest,
        *,
        timeout_s: float | None = None,
        trace: TraceContext | None = None,
        reattach: bool | ReattachPolicy = True,
        **options: Unpack[GenerateOptions],
    ) -> _Stream:
        """Generates and streams events; a break after acceptance is mended unless ``reattach`` is off."""
        timeout_s = self._timeout(timeout_s)
        request = build_request(prompt, **options)
        with_timeout(request, timeout_s)
        return self._open(
            Cursor(), Reattach.of(reattach), TraceContext.for_call(trace), timeout_s, request
        )

    def attach(
        self,
        request_id: str,
        from_seq: int = 0,
        *,
        timeout_s: float | None = None,
        trace: TraceContext | None = None,
        reattach: bool | ReattachPolicy = True,
    ) -> _Stream:
        """Follows a request that was accepted earlier."""
        return self._open(
            Cursor(request_id, from_seq),
            Reattach.of(reattach),
            TraceContext.for_call(trace),
            self._timeout(timeout_s),
            None,
        )

    def _timeout(self, given_s: float | None) -> float | None:
        return self._timeout_s if given_s is None else given_s

    def _limited(
        self, requests: Sequence[pb.GenerateRequest], timeout_s: float | None
    ) -> pb.BatchGenerateRequest:
        """A batch of which each request has the limit."""
        batch = pb.BatchGenerateRequest(requests=requests)
        for request in batch.requests:
            with_timeout(request, timeout_s)
        return batch

    @abstractmethod
    def _open(
        self,
        cursor: Cursor,
        reattach: Reattach,
        trace: TraceContext,
        timeout_s: float | None,
        request: pb.GenerateRequest | None,
    ) -> _Stream:
        """A stream from a cursor on; ``request`` begins a new one."""
