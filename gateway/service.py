"""``headrace.v1.InferenceService``: what each call does, in terms of the stages beside this file."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.errors import FieldViolation, InvalidRequest
from common.streams import following
from common.streams.node import Node
from common.wire import public, vocabulary
from gateway.caller import Callers, Context
from gateway.calls import Calls
from gateway.catalogue import Catalogue
from gateway.flatten import prompt_of
from gateway.lookup import Lookup, request_not_found
from gateway.model import Model
from gateway.patience import patient
from gateway.policy import check_model_allowed
from gateway.prepare import Preparation
from gateway.queue_views import QueueViews
from gateway.request_view import view_of
from headrace.v1 import inference_service_pb2 as pb
from headrace.v1 import inference_service_pb2_grpc as rpc

if TYPE_CHECKING:
    from collections.abc import Sequence

_CANCEL_BOUND_S = 2.0
_MAX_REASON_BYTES = 256
_PAGE_SIZE = 100


@dataclass(frozen=True, slots=True)
class Parts:
    """What the service is made of."""

    node: Node
    catalogue: Catalogue
    views: QueueViews
    preparation: Preparation
    lookup: Lookup
    calls: Calls
    callers: Callers


class InferenceService(rpc.InferenceServiceServicer):
    """The servicer; errors leave through the boundary around it."""

    def __init__(self, parts: Parts) -> None:
        """Stateless beyond its parts."""
        self._parts = parts

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> pb.GenerateResponse:
        """Answer when everything is done."""
        return await self._parts.calls.generate(
            request, await self._parts.callers.of_context(context), context.set_trailing_metadata
        )

    async def GenerateStream(  # type: ignore[override] # the writer API: it ends in this coroutine's own time
        self, request: pb.GenerateRequest, context: Context
    ) -> None:
        """Stream events in the order of their seq."""
        caller = await self._parts.callers.of_context(context)
        async with patient(context.write) as write:
            await self._parts.calls.stream(request, caller, write, context.set_trailing_metadata)

    async def BatchGenerate(  # type: ignore[override] # the writer API, as above
        self, request: pb.BatchGenerateRequest, context: Context
    ) -> None:
        """Stream outcomes as they finish."""
        caller = await self._parts.callers.of_context(context)
        async with patient(context.write) as write:
            await self._parts.calls.batch(request.requests, caller, write)

    async def Attach(  # type: ignore[override] # the writer API, as above
        self, request: pb.AttachRequest, context: Context
    ) -> None:
        """Stream the events of an accepted request from a seq on."""

        caller = await self._parts.callers.of_context(context)
        async with patient(context.write) as write:

            async def write_event(event: pb.GenerateStreamResponse) -> None:
                await write(pb.AttachResponse(event=event))

            await self._parts.calls.attach(
                request, caller, write_event, context.set_trailing_metadata
            )

    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.CancelResponse:
        """Flag a request as cancelled; its followers see it end."""
        if len(request.reason.encode()) > _MAX_REASON_BYTES:
            raise InvalidRequest(
                [FieldViolation("reason", f"must have at most {_MAX_REASON_BYTES} bytes")]
            )
        caller = await self._parts.callers.of_context(context)
        request_id, _ = await self._parts.lookup.find(request.request_id, caller.tenant)
        outcome = await following.cancel(
            self._parts.node, request_id, request.reason or "client", bound_s=_CANCEL_BOUND_S
        )
        if outcome is None:
            raise request_not_found(request.request_id)
        return pb.CancelResponse(
            status=vocabulary.status_to_pb(outcome.status), cancelling=outcome.is_cancelling
        )

    async def GetRequest(
        self, request: pb.GetRequestRequest, context: Context
    ) -> pb.GetRequestResponse:
        """Tell where a request is."""
        caller = await self._parts.callers.of_context(context)
        request_id, record = await self._parts.lookup.find_settled(
            request.request_id, caller.tenant
        )
        return view_of(request_id, record, self._parts.views.view(request_id.partition))

    async def CountTokens(
        self, request: pb.CountTokensRequest, context: Context
    ) -> pb.CountTokensResponse:
        """Count as generation would."""
        caller = await self._parts.callers.of_context(context)
        model, tokens = await self._parts.preparation.count(
            request.model, prompt_of(request.prompt), caller
        )
        return pb.CountTokensResponse(
            num_tokens=len(tokens),
            token_ids=tokens if request.return_token_ids else None,
            context_tokens=model.card.context_tokens,
        )

    async def ListModels(
        self, request: pb.ListModelsRequest, context: Context
    ) -> pb.ListModelsResponse:
        """List by name, page by page; a page token is the last name of the page before."""
        await self._parts.catalogue.first_look()
        limits = (await self._parts.callers.of_context(context)).limits
        models = [
            m
            for m in self._parts.catalogue.models
            if m.card.model > request.page_token and limits.allows_model(m.card.model)
        ]
        size = min(request.page_size or _PAGE_SIZE, _PAGE_SIZE)
        page: Sequence[Model] = models[:size]
        await self._parts.views.refresh(page)
        return pb.ListModelsResponse(
            models=[self._model_to_pb(model) for model in page],
            next_page_token=page[-1].card.model if len(models) > size else "",
        )

    async def GetModel(self, request: pb.GetModelRequest, context: Context) -> pb.GetModelResponse:
        """Describe one model."""
        caller = await self._parts.callers.of_context(context)
        check_model_allowed(caller.limits, request.model)
        model = await self._parts.catalogue.get(request.model)
        await self._parts.views.refresh([model])
        return pb.GetModelResponse(model=self._model_to_pb(model))

    def _model_to_pb(self, model: Model) -> pb.Model:
        parts, card = self._parts, model.card
        names = parts.catalogue.names_of(card.model)
        return public.model_to_pb(card, parts.views.num_workers(model), names)
