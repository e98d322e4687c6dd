"""Which path does what: OpenAI's API, a plain one in the contract's own words, and the probes."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from common.errors import FieldViolation, InvalidRequest
from common.logs import Log
from common.readiness import Readiness
from common.tallies import Spread
from common.wire.public import model_to_pb
from gateway.audit import AuditLog
from gateway.batch import MAX_REQUESTS
from gateway.caller import Caller, Callers
from gateway.calls import Calls
from gateway.catalogue import Catalogue
from gateway.flatten import draft_of, prompt_of
from gateway.held import HeldMessages
from gateway.http.compression import compression
from gateway.http.durations import Durations
from gateway.http.errors import HttpRefusal, refusal_body
from gateway.http.exchange import (
    REQUEST_ID,
    EventStream,
    Guard,
    WriteEvent,
    answer,
    echo_of,
    read_object,
    while_connected,
    written,
)
from gateway.http.holding import Holding
from gateway.http.json_size import JsonSizes
from gateway.http.many_prompts import (
    Event,
    ManyAnswers,
    generate_all,
    keyed,
    stream_all,
)
from gateway.http.openai_answers import DONE, AnswerForm, model_entry
from gateway.http.openapi import DOCUMENT
from gateway.http.plain_messages import outcome, plain, plain_event, read_items
from gateway.http.request_forms import (
    CHAT,
    COMPLETION,
    NATIVE,
    TOKENIZE,
    Asked,
    Form,
    read_request,
)
from gateway.model import Model
from gateway.policy import check_model_allowed
from gateway.prepare import Preparation
from gateway.queue_views import QueueViews
from headrace.v1 import inference_service_pb2 as pb

_SHOWN_FIGURES = frozenset({"x-queue-time-ms", "x-attempts", "x-response-cache"})


@dataclass(frozen=True, slots=True)
class HttpParts:
    """What the routes are made of."""

    calls: Calls
    callers: Callers
    preparation: Preparation
    catalogue: Catalogue
    views: QueueViews
    readiness: Readiness
    log: Log
    audit: AuditLog
    duration: Spread
    max_body_bytes: int
    held: HeldMessages


class Routes:
    """The endpoints."""

    def __init__(self, parts: HttpParts) -> None:
        """Stateless beyond its parts."""
        self._parts = parts
        self._guard = Guard(parts.log, parts.audit)
        self._sizes = JsonSizes()

    def app(self) -> Starlette:
        """The ASGI application."""
        guard = self._guard.around
        posts = {
            "/v1/chat/completions": guard(partial(self._openai, CHAT), CHAT.rename),
            "/v1/completions": guard(partial(self._openai, COMPLETION), COMPLETION.rename),
            "/api/generate": guard(self._generate, NATIVE.rename),
            "/api/batch_generate": guard(self._batch, NATIVE.rename),
            "/tokenize": guard(self._tokenize, TOKENIZE.rename),
        }
        gets = {
            "/v1/models": guard(self._models),
            "/v1/models/{model:path}": guard(self._model),
            "/openapi.json": self._document,
            "/livez": self._livez,
            "/readyz": self._readyz,
        }
        routes = [Route(path, endpoint, methods=["POST"]) for path, endpoint in posts.items()]
        routes += [Route(path, endpoint, methods=["GET"]) for path, endpoint in gets.items()]
        watch = Middleware(
            Durations,
            duration=self._parts.duration,
            routes=[*posts, *(_route(path) for path in gets)],
        )
        return Starlette(
            routes=routes,
            middleware=[watch, Middleware(Holding, held=self._parts.held), compression()],
            exception_handlers={HTTPException: _no_such_route},
        )

    async def _openai(self, form: Form, request: Request) -> Response:
        caller = await self._caller(request)
        asked = await self._read(form, request)
        if asked.more:
            return await self._many(form, request, caller, asked)
        choices = AnswerForm(
            is_chat=form is CHAT,
            num_choices=min(asked.request.sampling.n, 16),
            include_usage=asked.include_usage,
            prompt_text=asked.request.prompt.text,
        )
        if asked.is_stream:
            return self._stream(form, request, caller, asked, choices)
        made, headers = await self._whole(request, caller, asked)
        return answer(choices.whole(made), request, headers)

    async def _many(self, form: Form, request: Request, caller: Caller, asked: Asked) -> Response:
        """Completions of several prompts: an error of one is the error of all."""
        requests = [asked.request, *asked.more]
        keyed(requests, asked.request.idempotency_key or caller.idempotency_key)
        num_choices = min(max(1, asked.request.sampling.n), 16)
        forms = [
            AnswerForm(
                is_chat=False,
                num_choices=num_choices,
                first_index=index * num_choices,
                shows_usage=asked.include_usage,
                prompt_text=one.prompt.text,
            )
            for index, one in enumerate(requests)
        ]
        answers = ManyAnswers(forms, include_usage=asked.include_usage)
        calls = self._parts.calls
        if not asked.is_stream:
            work = generate_all(requests, partial(calls.generate, caller=caller))
            return answer(answers.whole(await while_connected(request, work)), request)

        async def stream(one: pb.GenerateRequest, write: WriteEvent) -> None:
            await calls.stream(one, caller, write)

        async def produce(write: Callable[[Event], Awaitable[None]]) -> None:
            await stream_all(requests, stream, write)

        return EventStream(
            request, self._guard, produce, answers.chunks, done=DONE, rename=form.rename
        )

    async def _generate(self, request: Request) -> Response:
        caller = await self._caller(request)
        asked = await self._read(NATIVE, request)
        if asked.is_stream:
            return self._stream(NATIVE, request, caller, asked, None)
        made, headers = await self._whole(request, caller, asked)
        return answer(plain(made), request, headers)

    async def _batch(self, request: Request) -> Response:
        caller = await self._caller(request)
        body = await read_object(request, self._parts.max_body_bytes, self._sizes)
        items = body.pop("requests", None)
        if not isinstance(items, list) or len(items) > MAX_REQUESTS or body:
            rule = f"must be a list of 1 to {MAX_REQUESTS} requests, and the only field"
            raise InvalidRequest([FieldViolation("requests", rule)])
        asked, outcomes = await read_items(items, self._look)
        places = [*asked]

        async def write(found: pb.BatchGenerateResponse) -> None:
            index = places[found.index]
            outcomes[index] = outcome(index, found)

        if asked or not items:
            work = self._parts.calls.batch([*asked.values()], caller, write)
            await while_connected(request, work)
        return answer({"outcomes": [outcomes[index] for index in sorted(outcomes)]}, request)

    async def _tokenize(self, request: Request) -> Response:
        caller = await self._caller(request)
        asked = await self._read(TOKENIZE, request)
        prompt = prompt_of(asked.request.prompt)
        model, tokens = await self._parts.preparation.count(asked.request.model, prompt, caller)
        found = {"count": len(tokens), "max_model_len": model.card.context_tokens}
        return answer(found, request, tokens=await written(tokens))

    async def _models(self, request: Request) -> Response:
        limits = (await self._caller(request)).limits
        await self._parts.catalogue.first_look()
        models = [m for m in self._parts.catalogue.models if limits.allows_model(m.card.model)]
        await self._parts.views.refresh(models)
        entries = [self._entry(model) for model in models]
        for alias in self._parts.catalogue.aliases:
            known = alias.name in {entry["id"] for entry in entries}
            if not known and limits.allows_model(alias.name):
                model = await self._parts.catalogue.get(alias.name)
                await self._parts.views.refresh([model])
                entries.append({**self._entry(model), "id": alias.name, "root": model.card.model})
        return answer({"object": "list", "data": entries}, request)

    async def _model(self, request: Request) -> Response:
        caller, name = await self._caller(request), request.path_params["model"]
        check_model_allowed(caller.limits, name)
        model = await self._parts.catalogue.get(name)
        await self._parts.views.refresh([model])
        return answer(self._entry(model), request)

    async def _document(self, request: Request) -> Response:
        return answer(DOCUMENT, request)

    async def _livez(self, request: Request) -> Response:
        return Response(b"ok\n", media_type="text/plain")

    async def _readyz(self, request: Request) -> Response:
        is_ready = self._parts.readiness.ready
        return Response(
            b"ok\n" if is_ready else b"not ready\n",
            200 if is_ready else 503,
            media_type="text/plain",
        )

    async def _caller(self, request: Request) -> Caller:
        """Before the body is read: who is not known need not send it."""
        return await self._parts.callers.of_pairs(request.headers.items(), None)

    async def _read(self, form: Form, request: Request) -> Asked:
        body = await read_object(request, self._parts.max_body_bytes, self._sizes)
        asked = read_request(form, body, look=self._look)
        for one in (asked.request, *asked.more):
            if not one.client_request_id:
                one.client_request_id = echo_of(request)
        return asked

    def _look(self, request: pb.GenerateRequest) -> Sequence[FieldViolation]:
        return self._parts.preparation.violations(draft_of(request))

    async def _whole(
        self, request: Request, caller: Caller, asked: Asked
    ) -> tuple[pb.GenerateResponse, Mapping[str, str]]:
        figures: dict[str, str] = {}
        work = self._parts.calls.generate(asked.request, caller, figures.update)
        made = await while_connected(request, work)
        return made, {name: figures[name] for name in figures.keys() & _SHOWN_FIGURES}

    def _stream(
        self,
        form: Form,
        request: Request,
        caller: Caller,
        asked: Asked,
        choices: AnswerForm | None,
    ) -> Response:
        async def produce(write: WriteEvent) -> None:
            await self._parts.calls.stream(asked.request, caller, write)

        return EventStream(
            request,
            self._guard,
            produce,
            plain_event if choices is None else choices.chunks,
            done=b"" if choices is None else DONE,
            rename=form.rename,
        )

    def _entry(self, model: Model) -> dict[str, Any]:
        return model_entry(model_to_pb(model.card, self._parts.views.num_workers(model)))


def _route(path: str) -> str:
    return path.replace(":path}", "}")


async def _no_such_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    refusal = HttpRefusal(error.status_code, "NO_SUCH_ROUTE", str(error.detail))  # type: ignore[arg-type]
    headers = {REQUEST_ID: echo_of(request), **dict(error.headers or {})}
    return Response(refusal_body(refusal), error.status_code, headers, "application/json")
