"""Completions of several prompts in one call: a request for each, whose choices are numbered one after the other.

Each is accepted, counted, followed and cancelled as if it had come alone; an error of one is the error of the call, and
the others are cancelled.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from gateway.http.openai_answers import AnswerForm, usage_entry, usage_line
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb

Event = tuple[int, pb.GenerateStreamResponse]
"""Which of the prompts it is about, and what happened."""

T = TypeVar("T")
Generate = Callable[[pb.GenerateRequest], Awaitable[pb.GenerateResponse]]
Write = Callable[[Event], Awaitable[None]]
Stream = Callable[
    [pb.GenerateRequest, Callable[[pb.GenerateStreamResponse], Awaitable[None]]], Awaitable[None]
]


def keyed(requests: Sequence[pb.GenerateRequest], key: str) -> None:
    """Let each have a key of its own where the call has one: they are several executions."""
    for index, request in enumerate(requests):
        if key:
            request.idempotency_key = f"{key}#{index}"


async def generate_all(
    requests: Sequence[pb.GenerateRequest], generate: Generate
) -> list[pb.GenerateResponse]:
    """All answers, in the order of the prompts.

    Raises:
        HeadraceError: one of them has none; the others are cancelled.
    """
    tasks: list[asyncio.Future[pb.GenerateResponse]] = []
    try:
        await _begin([partial(generate, request) for request in requests], tasks)
        return await asyncio.gather(*tasks)
    finally:
        await _end(tasks)


async def stream_all(requests: Sequence[pb.GenerateRequest], stream: Stream, write: Write) -> None:
    """Write the events of all, as they come.

    Raises:
        HeadraceError: one of them failed; the others are cancelled.
    """
    writing = asyncio.Lock()

    async def one(index: int, request: pb.GenerateRequest) -> None:
        async def write_one(event: pb.GenerateStreamResponse) -> None:
            async with writing:
                await write((index, event))

        await stream(request, write_one)

    tasks: list[asyncio.Future[None]] = []
    try:
        await _begin([partial(one, *numbered) for numbered in enumerate(requests)], tasks)
        await asyncio.gather(*tasks)
    finally:
        await _end(tasks)


class ManyAnswers:
    """The answers as one."""

    def __init__(self, forms: Sequence[AnswerForm], *, include_usage: bool) -> None:
        """``forms`` are each prompt's own; the sum of usage comes here, if it is to come."""
        self._forms = forms
        self._include_usage = include_usage
        self._usages: dict[int, gen.Usage] = {}

    def whole(self, answers: Sequence[pb.GenerateResponse]) -> dict[str, Any]:
        """The whole answer, under the id of the first; each choice names its own request."""
        made = [form.whole(one) for form, one in zip(self._forms, answers, strict=True)]
        choices = [
            {**choice, "request_id": one["id"]} for one in made for choice in one["choices"]
        ]
        self._usages = {index: one.usage for index, one in enumerate(answers)}
        return {**made[0], "choices": choices, "usage": self._sum()}

    def chunks(self, event: Event) -> bytes:
        """An event as lines of a stream, under its own request's id."""
        index, message = event
        lines = self._forms[index].chunks(message)
        if message.WhichOneof("event") == "finish" and message.finish.last:
            self._usages[index] = message.usage
            if self._include_usage and len(self._usages) == len(self._forms):
                lines += usage_line(self._forms[index].envelope, self._sum())
        return lines

    def _sum(self) -> dict[str, Any]:
        summed = gen.Usage(
            prompt_tokens=sum(one.prompt_tokens for one in self._usages.values()),
            completion_tokens=sum(one.completion_tokens for one in self._usages.values()),
            cached_prompt_tokens=sum(one.cached_prompt_tokens for one in self._usages.values()),
            from_response_cache=all(one.from_response_cache for one in self._usages.values()),
        )
        return usage_entry(summed)


async def _begin(
    works: Sequence[Callable[[], Awaitable[T]]], tasks: list["asyncio.Future[T]"]
) -> None:
    """Not all in one turn of the event loop, in which everybody else would wait for all of them."""
    for work in works:
        tasks.append(asyncio.ensure_future(work()))
        await asyncio.sleep(0)


async def _end(tasks: Sequence["asyncio.Future[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
