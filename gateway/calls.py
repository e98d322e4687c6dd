"""What each call that generates does, whatever it came over: the servicer and the HTTP routes translate around it.

``tell`` gets the figures for behind the answer (usage and timings) before the call ends, with its answer or its error.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from common.errors import FieldViolation, InvalidRequest
from common.logs import Log
from common.records import FinishRecord
from common.wire import public
from gateway.attachment import Attachment
from gateway.batch import run_batch
from gateway.cached import CachedGeneration
from gateway.caller import Caller
from gateway.delivery import Delivery, Write
from gateway.draft import Draft
from gateway.ending import error_at_end, trailing_metadata
from gateway.flatten import draft_of
from gateway.generation import Generation, Opened
from gateway.keyed import KeyedGeneration
from gateway.queue_views import QueueViews
from gateway.story import Stories, Story
from headrace.v1 import inference_service_pb2 as pb

Tell = Callable[[tuple[tuple[str, str], ...]], object]
WriteOutcome = Callable[[pb.BatchGenerateResponse], Awaitable[Any]]


def tell_nobody(_: tuple[tuple[str, str], ...]) -> None:
    """For callers who have no use for the figures."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Opens requests and delivers what becomes of them."""

    generation: Generation
    keyed: KeyedGeneration
    cached: CachedGeneration
    attachment: Attachment
    views: QueueViews
    stories: Stories
    log: Log
    keepalive_s: float

    async def generate(
        self, request: pb.GenerateRequest, caller: Caller, tell: Tell = tell_nobody
    ) -> pb.GenerateResponse:
        """The whole answer.

        Raises:
            HeadraceError: there will be none, and why.
        """
        draft = draft_of(request, caller.priority, caller.idempotency_key)
        with self.stories.telling(draft, caller, is_stream=False) as story:
            async with self._open(draft, caller, story) as opened:
                self.stories.accepted(story, caller)
                choices = await self._delivery(opened, story).collect()
                assert story.finish is not None
                _end(tell, opened, story, story.finish)
                return public.generate_response(
                    opened.facts,
                    choices,
                    opened.follower.mailbox.prompt,
                    story.usage,
                    story.finish.timings,
                    with_ids=opened.with_ids,
                )

    async def stream(
        self, request: pb.GenerateRequest, caller: Caller, write: Write, tell: Tell = tell_nobody
    ) -> None:
        """Write events in the order of their seq, up to and with the last.

        Raises:
            HeadraceError: the request was refused, cancelled, expired or failed.
        """
        draft = draft_of(request, caller.priority, caller.idempotency_key)
        with self.stories.telling(draft, caller, is_stream=True) as story:
            async with self._open(draft, caller, story) as opened:
                self.stories.accepted(story, caller)
                await write(public.accepted_event(opened.facts, 0))
                finish = await self._delivery(opened, story).stream(write)
                _end(tell, opened, story, finish)

    async def batch(
        self, requests: Sequence[pb.GenerateRequest], caller: Caller, write: WriteOutcome
    ) -> None:
        """Write outcomes as requests finish.

        Raises:
            InvalidRequest: the batch itself is refused.
        """
        if caller.idempotency_key:
            raise InvalidRequest(
                [
                    FieldViolation(
                        "metadata.idempotency-key", "belongs into each request of a batch"
                    )
                ]
            )
        one = partial(self.generate, caller=caller)
        await run_batch(requests, one, write, self.log)

    async def attach(
        self, request: pb.AttachRequest, caller: Caller, write: Write, tell: Tell = tell_nobody
    ) -> None:
        """Write the events of an accepted request from a seq on.

        Raises:
            HeadraceError: it is not there, or it was cancelled, expired or failed.
        """
        with self.stories.attaching(request.request_id, caller) as story:
            async with self.attachment.open(
                request.request_id, caller.tenant, request.from_seq
            ) as opened:
                await write(public.accepted_event(opened.facts, request.from_seq))
                finish = await self._delivery(opened, story).stream(write)
                _end(tell, opened, story, finish)

    def _open(
        self, draft: Draft, caller: Caller, story: Story
    ) -> AbstractAsyncContextManager[Opened]:
        if draft.idempotency_key:
            return self.keyed.open(draft, caller, story)
        if draft.use_response_cache:
            return self.cached.open(draft, caller, story)
        return self.generation.open(draft, caller, story)

    def _delivery(self, opened: Opened, story: Story) -> Delivery:
        return Delivery(
            opened.follower,
            story,
            self.views,
            keepalive_s=self.keepalive_s,
            with_ids=opened.with_ids,
        )


def _end(tell: Tell, opened: Opened, story: Story, finish: FinishRecord) -> None:
    """The end of a call whose request has ended: figures behind it, and its status.

    Raises:
        HeadraceError: the request was cancelled, expired or failed.
    """
    tell(trailing_metadata(story.usage, finish.timings))
    error = error_at_end(finish, opened.follower.mailbox)
    if error is not None:
        raise error
