"""The client for asyncio.

What either client decides lives in modules that both use (`opening`, `following`, `retry`, `targets`, `cursor`). What is
left here and in `aio_stream`, `aio_admin` and `aio_channels` beside their sync counterparts is where one awaits and the
other blocks: Python has no code that does both, and either a loop in a thread behind the sync client or sources
generated from one another would cost its users more than these lines do.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from itertools import count
from types import TracebackType
from typing import Protocol, Self, TypeVar, Unpack

import grpc
from google.protobuf.message import Message

from headrace.client.aio_admin import AsyncAdmin
from headrace.client.aio_channels import AioChannels
from headrace.client.aio_stream import AsyncTokenStream
from headrace.client.connection import (
    LOOK_UP_TIMEOUT_S,
    Metadata,
    Targets,
    call_timeout_s,
    with_key,
)
from headrace.client.cursor import Cursor
from headrace.client.errors import HeadraceError
from headrace.client.opening import OpensStreams
from headrace.client.reattach import Reattach
from headrace.client.requests import (
    GenerateOptions,
    PromptLike,
    build_prompt,
    build_request,
    with_timeout,
)
from headrace.client.retry import Retries, RetryPolicy
from headrace.client.status import error_from_rpc
from headrace.client.trace import TraceContext
from headrace.v1 import inference_service_pb2 as pb

_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Message)


class _BatchCall(Protocol):
    """A running BatchGenerate."""

    def __aiter__(self) -> AsyncIterator[pb.BatchGenerateResponse]: ...
    def cancel(self) -> bool: ...


class AsyncClient(OpensStreams[AsyncTokenStream]):
    """Calls one Headrace system from one event loop; close it, or use it in an ``async with`` block."""

    def __init__(
        self,
        target: str | Sequence[str],
        *,
        timeout_s: float | None = None,
        metadata: Metadata = (),
        credentials: grpc.ChannelCredentials | None = None,
        api_key: str | None = None,
        retry: RetryPolicy | None = None,
        compression: grpc.Compression | None = None,
    ) -> None:
        """``target``: one address, or those of several gateways; ``timeout_s``: for calls that name none.

        Where neither names one, generation may take as long as the server lets it, and look-ups 15 s.
        ``metadata`` goes with every call, and so does ``api_key``, where the server asks for one.
        ``retry``: how ``generate`` is repeated where the server says that it helps; without it nothing is.
        ``compression``: of what is sent; large answers are compressed by the server in any case.
        """
        super().__init__(timeout_s)
        self._channels = AioChannels(
            Targets.of(target), credentials, with_key(metadata, api_key), compression
        )
        self._retries = Retries(retry)
        self._look_up_s = LOOK_UP_TIMEOUT_S if timeout_s is None else timeout_s
        self.admin = AsyncAdmin(self._channels, self._look_up_s)

    async def generate(
        self,
        prompt: PromptLike | pb.GenerateRequest,
        *,
        timeout_s: float | None = None,
        trace: TraceContext | None = None,
        **options: Unpack[GenerateOptions],
    ) -> pb.GenerateResponse:
        """Generates and answers when everything is done."""
        timeout_s = self._timeout(timeout_s)
        request = build_request(prompt, **options)
        with_timeout(request, timeout_s)
        wait_s = call_timeout_s(timeout_s)
        for attempt in count(1):
            method = self._channels.inference().Generate
            try:
                answer = await self._channels.unary(method, request, timeout_s=wait_s, trace=trace)
            except HeadraceError as error:
                pause_s = self._retries.next_pause_s(request, error, attempt)
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)
                continue
            self._retries.succeeded()
            return answer
        raise AssertionError("unreachable")

    def batch(
        self,
        requests: Sequence[pb.GenerateRequest],
        *,
        timeout_s: float | None = None,
        trace: TraceContext | None = None,
    ) -> AsyncGenerator[pb.BatchGenerateResponse, None]:
        """Generates for many requests (see ``build_request``); yields outcomes as they finish. Closing it cancels."""
        timeout_s = self._timeout(timeout_s)
        batch = self._limited(requests, timeout_s)
        used = self._channels.current
        call = self._channels.inference().BatchGenerate(
            batch, timeout=call_timeout_s(timeout_s), metadata=self._channels.metadata(trace)
        )
        return self._outcomes(call, used)

    async def cancel(self, request_id: str, reason: str = "") -> pb.CancelResponse:
        """Cancels a request, wherever it is."""
        request = pb.CancelRequest(request_id=request_id, reason=reason)
        return await self._unary(self._channels.inference().Cancel, request)

    async def get_request(self, request_id: str) -> pb.GetRequestResponse:
        """Tells where a request is, and its result once it has ended."""
        request = pb.GetRequestRequest(request_id=request_id)
        return await self._unary(self._channels.inference().GetRequest, request)

    async def count_tokens(
        self, prompt: PromptLike, *, model: str, return_token_ids: bool = False
    ) -> pb.CountTokensResponse:
        """Counts the tokens of a prompt exactly as generation would."""
        request = pb.CountTokensRequest(
            model=model, prompt=build_prompt(prompt), return_token_ids=return_token_ids
        )
        return await self._unary(self._channels.inference().CountTokens, request)

    async def models(self) -> list[pb.Model]:
        """All models that can be asked for."""
        found: list[pb.Model] = []
        request = pb.ListModelsRequest()
        while True:
            page = await self._unary(self._channels.inference().ListModels, request)
            found += page.models
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def model(self, name: str) -> pb.Model:
        """Describes one model."""
        request = pb.GetModelRequest(model=name)
        answer = await self._unary(self._channels.inference().GetModel, request)
        return answer.model

    async def close(self) -> None:
        """Closes all connections; running calls end as cancelled."""
        await self._channels.close()

    async def __aenter__(self) -> Self:
        """Closes at the end of the block."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes."""
        await self.close()

    async def _unary(
        self, method: "grpc.aio.UnaryUnaryMultiCallable[_Request, _Response]", request: _Request
    ) -> _Response:
        return await self._channels.unary(method, request, timeout_s=self._look_up_s)

    def _open(
        self,
        cursor: Cursor,
        reattach: Reattach,
        trace: TraceContext,
        timeout_s: float | None,
        request: pb.GenerateRequest | None,
    ) -> AsyncTokenStream:
        return AsyncTokenStream(
            self._channels,
            cursor=cursor,
            reattach=reattach,
            trace=trace,
            timeout_s=timeout_s,
            request=request,
        )

    async def _outcomes(
        self, call: _BatchCall, used: int
    ) -> AsyncGenerator[pb.BatchGenerateResponse, None]:
        try:
            async for outcome in call:
                yield outcome
        except grpc.aio.AioRpcError as broken:
            failure = error_from_rpc(broken)
            self._channels.note(failure, used)
            raise failure from broken
        finally:
            call.cancel()
