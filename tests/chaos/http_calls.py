"""The same calls over HTTP: whole answers, and server-sent events that are continued by Attach where they break."""

import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx2
from google.protobuf.json_format import ParseDict

from headrace.client import AsyncClient, AsyncTokenStream, HeadraceError
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.chaos.asks import Known
from tests.chaos.calls import Calls, patient_attach
from tests.chaos.checks import outcome_of
from tests.chaos.journal import History, Journal
from tests.support.outcomes import Outcome

_PATH = "/api/generate"
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
        journal: Journal,
        known: Known,
        history: History,
        tenant: str,
        clients: Sequence[AsyncClient],
        http: Sequence[HttpClient],
        rng: random.Random,
    ) -> None:
        """`http` are of `tenant`, one for each gateway; `clients` look things up, cancel and attach."""
        super().__init__(journal, known, history, tenant, clients, rng)
        self._http = http

    def about(self, known: Known) -> "HttpCalls":
        """Calls of the same client about another request, told in the same history."""
        return HttpCalls(
            self.journal, known, self.history, self.tenant, self._clients, self._http, self.rng
        )

    async def unary(self, **options: Any) -> Outcome:
        """A whole answer at once."""
        body = self._body(options)

        async def call() -> Outcome:
            try:
                response = await self.rng.choice(self._http).post(_PATH, json=body)
            except httpx2.TransportError as error:
                raise _broken() from error
            _check(response)
            made = ParseDict(response.json(), pb.GenerateResponse())
            self.history.name(made.request_id)
            self.journal.token(self.known.ask.model)
            return outcome_of(made)

        return await self._until_taken(call, can_be_told=False)

    @contextlib.asynccontextmanager
    async def _opened(self, options: dict[str, Any]) -> AsyncIterator[HttpStream]:
        body = {**self._body(options), "stream": True}
        attach = patient_attach(self.any_client())

        def go_on(request_id: str, from_seq: int) -> AsyncTokenStream:
            self.history.note(f"the connection breaks, goes on from {from_seq}")
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

    def _body(self, options: dict[str, Any]) -> dict[str, Any]:
        """The request as JSON: options by their names, messages of the contract by their fields."""
        body = self._options(options)
        if (timeout_s := body.pop("timeout_s", None)) is not None:
            body["deadline"] = timeout_s
        prompt = self.known.ask.body
        if isinstance(prompt, list) and isinstance(prompt[0], dict):
            body["messages"] = prompt
        else:
            body["prompt"] = prompt
        output: gen.OutputOptions = body.pop("output", gen.OutputOptions())
        body |= {field.name: value for field, value in output.ListFields()}
        constraint: gen.OutputConstraint = body.pop("constraint", gen.OutputConstraint())
        for field, value in constraint.ListFields():
            body[field.name] = _CONSTRAINTS.get(field.name, str)(value)
        return body


_CONSTRAINTS: dict[str, Callable[[Any], Any]] = {
    "json_object": bool,
    "json_schema": json.loads,
    "choice": lambda choice: list(choice.options),
}


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
