"""Whatever parses bytes, as functions of bytes: each takes any input, and raises only for a fault of ours.

A client's bytes become a request that may be admitted, or a refusal that is the client's; what is stored and what workers
say is decoded, or refused as such.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from google.protobuf.message import DecodeError
from grpc import StatusCode
from opentelemetry.sdk.resources import Resource

from common.clock import monotonic_s
from common.errors import HeadraceError, NotFound
from common.grammars import CAPABILITY as CONSTRAINTS
from common.tracing import NO_TRACE, Tracing
from common.wire import aliases, card, records, request, session, snapshot
from common.wire.status import code_of, status_of
from gateway.access import Identity
from gateway.caller import Caller
from gateway.flatten import draft_of, prompt_of
from gateway.http.json_size import check_in_pieces
from gateway.http.json_values import parse_object
from gateway.http.plain_messages import read_items
from gateway.http.request_forms import CHAT, COMPLETION, NATIVE, TOKENIZE, read_request
from gateway.message_size import MessageSizes
from gateway.model import Model, build_model
from gateway.prepare import Preparation, Prepared
from gateway.tokenize import PromptTokenizer
from headrace.internal.v1 import worker_service_pb2 as worker_pb
from headrace.v1 import inference_service_pb2 as pb
from tests.integration.gateway.tiny_card import tiny_card

if TYPE_CHECKING:
    from gateway.catalogue import Catalogue

Target = Callable[[bytes], None]

_MAX_STATUS_BYTES = 4096
_INTERNAL, _ = StatusCode.INTERNAL.value
_FORMS = (CHAT, COMPLETION, NATIVE, TOKENIZE)


@dataclass(frozen=True, slots=True)
class _OneModel:
    """A catalogue of one model."""

    model: Model

    @property
    def models(self) -> Sequence[Model]:
        return [self.model]

    async def get(self, name: str) -> Model:
        if name != self.model.card.model:
            raise NotFound("not known", reason="MODEL_NOT_FOUND")
        return self.model


class Requests:
    """What clients send, up to the point where it would be admitted."""

    def __init__(self) -> None:
        """One model, whose workers follow constraints."""
        model = build_model(tiny_card(capabilities=(CONSTRAINTS,), max_seqs=4))
        self._loop = asyncio.new_event_loop()
        self._sizes = MessageSizes()
        self._preparation = Preparation(
            cast("Catalogue", _OneModel(model)),
            PromptTokenizer(1),
            Tracing(Resource({})),
            default_timeout_s=60,
            longest_life_s=900,
        )

    def over_grpc(self, data: bytes) -> None:
        """A message as it stands."""
        self._judge(self._sizes.check(data, pb.GenerateRequest.DESCRIPTOR))
        try:
            message = pb.GenerateRequest.FromString(data)
        except DecodeError:
            return
        self._prepare(message)

    def over_http(self, data: bytes) -> None:
        """The first byte says which path it was sent to, the others are the body."""
        path, body = data[:1], data[1:]
        try:
            for _ in check_in_pieces(body):
                pass
            values = parse_object(body)
            number = path[0] % (len(_FORMS) + 1) if path else 0
            if number == len(_FORMS):
                asked_items, refused = self._loop.run_until_complete(
                    read_items([values], self._look)
                )
                assert all(one["error"]["code"] != _INTERNAL for one in refused.values()), refused
                for one in asked_items.values():
                    self._prepare(one)
                return
            asked = read_request(_FORMS[number], values, look=self._look)
        except HeadraceError as error:
            _check_refusal(error)
            return
        for one in (asked.request, *asked.more):
            self._prepare(one)

    def _look(self, message: pb.GenerateRequest):
        return self._preparation.violations(draft_of(message))

    def _prepare(self, message: pb.GenerateRequest) -> None:
        caller = Caller(Identity("default"), "NORMAL", "", "", NO_TRACE, "", monotonic_s(), None)
        self._judge(self._preparation.count(message.model, prompt_of(message.prompt), caller))
        prepared = self._judge(self._preparation.prepare(draft_of(message), caller, NO_TRACE))
        if isinstance(prepared, Prepared):
            _check_stored(prepared)

    def _judge(self, work: Awaitable[object]) -> object:
        try:
            return self._loop.run_until_complete(work)
        except HeadraceError as error:
            _check_refusal(error)
            return None


def _check_refusal(error: HeadraceError) -> None:
    """A refusal is the client's, and short enough for metadata."""
    assert code_of(error).name != "INTERNAL", error
    assert len(status_of(error).SerializeToString()) < _MAX_STATUS_BYTES


def _check_stored(prepared: Prepared) -> None:
    """What was accepted is read back from Redis as it was."""
    stored = request.request_from_body(request.parse_body(request.encode_body(prepared.request)))
    assert stored == prepared.request, (stored, prepared.request)
    header = prepared.header(NO_TRACE)
    assert request.decode_header(request.encode_header(header)) == header


def stored(data: bytes) -> None:
    """What Redis holds and what workers say: decoded, or refused by name."""
    for decode in (
        records.decode_log_batch,
        records.decode_progress,
        records.decode_terminal,
        request.decode_header,
        lambda one: request.request_from_body(request.parse_body(one)),
        card.decode_card,
        snapshot.decode_status,
        aliases.decode_alias,
    ):
        try:
            decode(data)
        except records.UndecodableError:
            continue
    try:
        session.said_from_pb(worker_pb.ConnectRequest.FromString(data))
    except (DecodeError, records.UndecodableError):
        return


def target(name: str) -> Target:
    """The function of that name.

    Raises:
        KeyError: there is none.
    """
    if name == "stored":
        return stored
    requests = Requests()
    return {"grpc": requests.over_grpc, "http": requests.over_http}[name]
