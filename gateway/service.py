"""``headrace.v1.InferenceService``: what each call does, in terms of the stages beside this file."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from common.errors import FieldViolation, InvalidRequest
from common.logs import Log
from common.records import FinishRecord
from common.streams import following
from common.streams.node import Node
from common.wire import public, vocabulary
from gateway.attachment import Attachment
from gateway.batch import run_batch
from gateway.caller import Caller, Context, caller_of
from gateway.catalogue import Catalogue
from gateway.delivery import Delivery
from gateway.draft import Draft
from gateway.ending import error_at_end, trailing_metadata
from gateway.flatten import draft_of, prompt_of
from gateway.generation import Generation, Opened
from gateway.keyed import KeyedGeneration
from gateway.lookup import Lookup, request_not_found
from gateway.model import Model
from gateway.prepare import Preparation
from gateway.queue_views import QueueViews
from gateway.request_view import view_of
from gateway.story import Stories, Story
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
    generation: Generation
    keyed: KeyedGeneration
    attachment: Attachment
    lookup: Lookup
    stories: Stories
    log: Log
    keepalive_s: float


class InferenceService(rpc.InferenceServiceServicer):
    """The servicer; errors leave through the boundary around it."""

    def __init__(self, parts: Parts) -> None:
        """Stateless beyond its parts."""
        self._parts = parts

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> pb.GenerateResponse:
        """Answer when everything is done."""
        return await self._generate(caller_of(context), context, request)

    async def GenerateStream(  # type: ignore[override] # the writer API: it ends in this coroutine's own time
        self, request: pb.GenerateRequest, context: Context
    ) -> None:
        """Stream events in the order of their seq."""
        caller = caller_of(context)
        draft = draft_of(request, caller.priority, caller.idempotency_key)
        with self._parts.stories.telling(draft, caller, is_stream=True) as story:
            async with self._open(draft, caller, story) as opened:
                await context.write(public.accepted_event(opened.facts, 0))
                finish = await self._delivery(opened, story).stream(context.write)
                end(context, opened, story, finish)

    async def BatchGenerate(  # type: ignore[override] # the writer API, as above
        self, request: pb.BatchGenerateRequest, context: Context
    ) -> None:
        """Stream outcomes as they finish."""
        caller = caller_of(context)
        if caller.idempotency_key:
            raise InvalidRequest(
                [
                    FieldViolation(
                        "metadata.idempotency-key", "belongs into each request of a batch"
                    )
                ]
            )
        one = partial(self._generate, caller, None)
        await run_batch(request.requests, one, context.write, self._parts.log)

    async def Attach(  # type: ignore[override] # the writer API, as above
        self, request: pb.AttachRequest, context: Context
    ) -> None:
        """Stream the events of an accepted request from a seq on."""
        caller = caller_of(context)

        async def write(event: pb.GenerateStreamResponse) -> None:
            await context.write(pb.AttachResponse(event=event))

        parts = self._parts
        with parts.stories.attaching(request.request_id, caller) as story:
            async with parts.attachment.open(
                request.request_id, caller.tenant, request.from_seq
            ) as opened:
                await write(public.accepted_event(opened.facts, request.from_seq))
                finish = await self._delivery(opened, story).stream(write)
                end(context, opened, story, finish)

    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.CancelResponse:
        """Flag a request as cancelled; its followers see it end."""
        if len(request.reason.encode()) > _MAX_REASON_BYTES:
            raise InvalidRequest(
                [FieldViolation("reason", f"must have at most {_MAX_REASON_BYTES} bytes")]
            )
        tenant = caller_of(context).tenant
        request_id, _ = await self._parts.lookup.find(request.request_id, tenant)
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
        tenant = caller_of(context).tenant
        request_id, record = await self._parts.lookup.find_settled(request.request_id, tenant)
        return view_of(request_id, record, self._parts.views.view(request_id.partition))

    async def CountTokens(
        self, request: pb.CountTokensRequest, context: Context
    ) -> pb.CountTokensResponse:
        """Count as generation would."""
        model, tokens = await self._parts.preparation.count(
            request.model, prompt_of(request.prompt)
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
        models = [m for m in self._parts.catalogue.models if m.card.model > request.page_token]
        size = min(request.page_size or _PAGE_SIZE, _PAGE_SIZE)
        page: Sequence[Model] = models[:size]
        await self._parts.views.refresh(page)
        return pb.ListModelsResponse(
            models=[self._model_to_pb(model) for model in page],
            next_page_token=page[-1].card.model if len(models) > size else "",
        )

    async def GetModel(self, request: pb.GetModelRequest, context: Context) -> pb.GetModelResponse:
        """Describe one model."""
        model = await self._parts.catalogue.get(request.model)
        await self._parts.views.refresh([model])
        return pb.GetModelResponse(model=self._model_to_pb(model))

    async def _generate(
        self, caller: Caller, context: Context | None, request: pb.GenerateRequest
    ) -> pb.GenerateResponse:
        draft = draft_of(request, caller.priority, caller.idempotency_key)
        with self._parts.stories.telling(draft, caller, is_stream=False) as story:
            async with self._open(draft, caller, story) as opened:
                choices = await self._delivery(opened, story).collect()
                assert story.finish is not None
                end(context, opened, story, story.finish)
                return public.generate_response(
                    opened.facts,
                    choices,
                    opened.follower.mailbox.prompt,
                    story.usage,
                    story.finish.timings,
                    with_ids=opened.with_ids,
                )

    def _open(
        self, draft: Draft, caller: Caller, story: Story
    ) -> AbstractAsyncContextManager[Opened]:
        parts = self._parts
        kind = parts.keyed if draft.idempotency_key else parts.generation
        return kind.open(draft, caller, story)

    def _delivery(self, opened: Opened, story: Story) -> Delivery:
        return Delivery(
            opened.follower,
            story,
            self._parts.views,
            keepalive_s=self._parts.keepalive_s,
            with_ids=opened.with_ids,
        )

    def _model_to_pb(self, model: Model) -> pb.Model:
        return public.model_to_pb(model.card, self._parts.views.num_workers(model))


def end(context: Context | None, opened: Opened, story: Story, finish: FinishRecord) -> None:
    """The end of a call whose request has ended: figures behind it, and its status.

    Raises:
        HeadraceError: the request was cancelled, expired or failed.
    """
    if context is not None:
        context.set_trailing_metadata(trailing_metadata(story.usage, finish.timings))
    error = error_at_end(finish, opened.follower.mailbox)
    if error is not None:
        raise error
