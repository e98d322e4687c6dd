"""Gives a follower's events to a client: as a stream of messages, or collected into one answer."""

from collections.abc import Awaitable, Callable
from typing import Any

from common.clock import monotonic_s
from common.records import ChoiceProgress, FinishRecord, PromptRecord
from common.request_status import RequestStatus
from common.wire import public
from gateway.queue_views import QueueViews
from gateway.relay.events import Delta, Event
from gateway.relay.follower import Follower
from gateway.story import Story
from headrace.v1 import inference_service_pb2 as pb

Write = Callable[[pb.GenerateStreamResponse], Awaitable[Any]]


class Delivery:
    """How one client gets one request's events."""

    def __init__(
        self,
        follower: Follower,
        story: Story,
        views: QueueViews,
        *,
        keepalive_s: float,
        with_ids: bool = True,
    ) -> None:
        """``story`` remembers what was delivered."""
        story.mailbox = follower.mailbox
        self._follower = follower
        self._mailbox = follower.mailbox
        self._story = story
        self._views = views
        self._keepalive_s = keepalive_s
        self._with_ids = with_ids

    async def stream(self, write: Write) -> FinishRecord:
        """Write everything up to and with the last finish, which is returned.

        Raises:
            HeadraceError: there will be no last finish, and why.
        """
        sent_s = monotonic_s()
        while True:
            events = await self._follower.news()
            for event in events:
                self._story.note(event)
                await write(self._message(event))
                if isinstance(event, FinishRecord) and event.last:
                    return event
            now_s = monotonic_s()
            if events:
                sent_s = now_s
            if self._follower.take_notice() or now_s - sent_s >= self._keepalive_s:
                await write(self._keepalive())
                sent_s = now_s

    async def collect(self) -> list[ChoiceProgress]:
        """Every choice, once all of them have ended.

        Raises:
            HeadraceError: they will not end, and why.
        """
        choices: dict[int, ChoiceProgress] = {}
        texts: dict[int, list[str]] = {}
        while True:
            for event in await self._follower.news():
                self._story.note(event)
                if isinstance(event, PromptRecord):
                    continue
                choice = choices.setdefault(event.index, ChoiceProgress(event.index))
                if isinstance(event, Delta):
                    choice.token_ids += event.token_ids
                    choice.logprobs += event.logprobs
                    texts.setdefault(event.index, []).extend(event.texts)
                    continue
                choice.finish = event
                choice.text = "".join(texts.get(event.index, ()))
                if event.last:
                    return [*choices.values()]

    def _message(self, event: Event) -> pb.GenerateStreamResponse:
        if isinstance(event, Delta):
            return public.delta_event(
                event.seq,
                event.index,
                event.text,
                event.token_ids,
                self._mailbox.prompt_usage,
                event.end_seq,
                with_ids=self._with_ids,
                logprobs=event.logprobs,
            )
        if isinstance(event, FinishRecord):
            return public.finish_event(event, self._story.usage, self._mailbox.from_seq)
        return public.prompt_event(event, self._story.usage, self._mailbox.from_seq)

    def _keepalive(self) -> pb.GenerateStreamResponse:
        request_id = self._follower.request_id
        status, position = RequestStatus.RUNNING, None
        if self._mailbox.prompt is None:
            status = RequestStatus.QUEUED
            view = self._views.view(request_id.partition)
            places = () if view is None else view.positions
            position = next(
                (place.position for place in places if place.request_id == str(request_id)), None
            )
        usage = self._story.usage
        return public.keepalive_event(
            status,
            position,
            usage,
            usage.completion_tokens,
            queue_unreachable=self._follower.is_cut_off,
        )
