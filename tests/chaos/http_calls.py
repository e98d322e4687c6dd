"""The same calls over HTTP: whole answers, and server-sent events that are continued by Attach where they break."""

import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx2
from google.protobuf.json_format import ParseDict

from headrace.client import AsyncClient, AsyncTokenStream, HeadraceError
from headrace.v1 import inference_service_pb2 as pb
from tests.chaos.asks import Known
from tests.chaos.calls import Calls, patient_attach
from tests.chaos.checks import insisting
from tests.chaos.http_bodies import body_of
from tests.chaos.journal import History, Journal
from tests.chaos.settings import ChaosSettings
from tests.support.outcomes import Outcome

_PATH = "/api/generate"
_BATCH_PATH = "/api/batch_generate"
_COUNT_PATH = "/tokenize"
_CONNECT_S = 5.0
# An answer takes as long as the faults that it lives through.
_TIMEOUT = httpx2.Timeout(None, connect=_CONNECT_S)

HttpClient = httpx2.AsyncClient


def http_client(base_url: str, key: str) -> HttpClient:
    """A client of one gateway, with a tenant's key."""
    headers = {"authorization": f"Bearer {key}"}
    limits = httpx2.Limits(max_connections=None)
    return HttpClient(base_url=base_url, headers=headers, timeout=_TIMEOUT, limits=limits)


class HttpStream:
    """A request's events over HTTP. Its connection may break; the id that came with `accepted` is good at any gateway."""

    def __init__(
        self, response: httpx2.Response, attach: Callable[[str, int], AsyncTokenStream]
    ) -> None:
        """`attach` follows a request from a seq on."""
        self.request_id = ""
        self._response = response
        self._attach = attach
        self._next_seq = 0
        self._is_over = False
        self._is_closed = False

    def close(self) -> None:
        """Nothing more is wanted."""
        self._is_closed = True

    async def __aiter__(self) -> AsyncIterator[pb.GenerateStreamResponse]:
        """Every event, up to the last finish.

        Raises:
            HeadraceError: how the request ended, or that it was not accepted.
        """
        with contextlib.suppress(httpx2.TransportError):
            async for event in self._told():
                yield event
                if self._is_closed:
                    return
        if self._is_over:
            return
        if not self.request_id:
            raise _broken()
        async with self._attach(self.request_id, self._next_seq) as rest:
            async for event in rest:
                yield event
                if self._is_closed:
                    return

    async def _told(self) -> AsyncIterator[pb.GenerateStreamResponse]:
        async for line in self._response.aiter_lines():
            if not line.startswith("data: "):
                continue
            said = json.loads(line.removeprefix("data: "))
            if "error" in said:
                error = _error_of(said)
                if error.code == "UNAVAILABLE" and self.request_id and not self._is_over:
                    return  # the gateway leaves, the request stays
                raise error
            event = ParseDict(said, pb.GenerateStreamResponse())
            self.request_id = self.request_id or event.accepted.request_id
            if event.keepalive.queue_unreachable:
                return  # the gateway lost the queue, the request is followed through another one
            if event.WhichOneof("event") == "delta":
                self._next_seq = event.seq + event.count
            self._is_over = event.finish.last
            yield event


class HttpCalls(Calls):
    """Of one request, over HTTP."""

    def __init__(
        self,
        settings: ChaosSettings,
        journal: Journal,
        known: Known,
        history: History,
        tenant: str,
        clients: Sequence[AsyncClient],
        http: Sequence[HttpClient],
        rng: random.Random,
    ) -> None:
        """`http` are of `tenant`, one for each gateway; `clients` look things up, cancel and attach."""
        super().__init__(settings, journal, known, history, tenant, clients, rng)
        self._http = http

    def about(self, known: Known) -> "HttpCalls":
        """Calls of the same client about another request, told in the same history."""
        return HttpCalls(
            self.settings,
            self.journal,
            known,
            self.history,
            self.tenant,
            self._clients,
            self._http,
            self.rng,
        )

    async def unary(self, asked: pb.GenerateRequest) -> Outcome:
        """A whole answer at once."""

        async def call() -> Outcome:
            response = await self._post(_PATH, body_of(asked))
            made = ParseDict(response.json(), pb.GenerateResponse())
            cache = "hit" if made.usage.from_response_cache else None
            assert response.headers.get("x-response-cache") == cache
            return self.told(asked, made)

        return await self.until_taken(call, can_be_told=False)

    async def batch(
        self, requests: Sequence[pb.GenerateRequest]
    ) -> dict[int, pb.BatchGenerateResponse]:
        """The outcomes of many requests in one call: all of them, or none."""
        body = {"requests": [body_of(request) for request in requests]}
        told = (await self._post(_BATCH_PATH, body)).json()["outcomes"]
        outcomes = [ParseDict(one, pb.BatchGenerateResponse()) for one in told]
        assert [one.index for one in outcomes] == [*range(len(requests))]
        return dict(enumerate(outcomes))

    async def count_tokens(self, asked: pb.GenerateRequest) -> Sequence[int]:
        """The prompt's tokens."""
        body = body_of(pb.GenerateRequest(model=asked.model, prompt=asked.prompt))
        told = (await insisting(self.journal, lambda: self._post(_COUNT_PATH, body))).json()
        assert told["count"] == len(told["tokens"])
        return [*told["tokens"]]

    async def _post(self, path: str, body: dict[str, Any]) -> httpx2.Response:
        try:
            response = await self.rng.choice(self._http).post(path, json=body)
        except httpx2.TransportError as error:
            raise _broken() from error
        _check(response)
        return response

    @contextlib.asynccontextmanager
    async def _opened(self, asked: pb.GenerateRequest) -> AsyncIterator[HttpStream]:
        body = {**body_of(asked), "stream": True}
        attach = patient_attach(self.any_client())

        def go_on(request_id: str, from_seq: int) -> AsyncTokenStream:
            self.broke(f"goes on from {from_seq}")
            self.journal.counts["HTTP streams continued by Attach"] += 1
            return attach(request_id, from_seq)

        try:
            async with self.rng.choice(self._http).stream("POST", _PATH, json=body) as response:
                if response.status_code != httpx2.codes.OK:
                    await response.aread()
                _check(response)
                yield HttpStream(response, go_on)
        except httpx2.TransportError as error:
            raise _broken() from error


def _check(response: httpx2.Response) -> None:
    """Raise what a refusal says."""
    if response.status_code != httpx2.codes.OK:
        raise _error_of(response.json())


def _error_of(said: dict[str, Any]) -> HeadraceError:
    error = said["error"]
    return HeadraceError(
        error["message"],
        code=error.get("grpc_code", error["type"]),
        reason=str(error["code"]).upper(),
        retry_after_s=error.get("retry_after_s"),
    )


def _broken() -> HeadraceError:
    return HeadraceError("the connection broke", code="UNAVAILABLE")
