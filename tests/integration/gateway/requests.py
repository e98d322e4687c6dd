"""Requests and their events, as short as tests want them."""

import asyncio
from collections.abc import AsyncIterable, Sequence

from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb
from tests.support.time_scale import scaled


def request(text: str = "hello world", **fields: object) -> pb.GenerateRequest:
    """A request to `tiny`."""
    fields.setdefault("prompt", gen.Prompt(text=text))
    fields.setdefault("model", "tiny")
    return pb.GenerateRequest(**fields)  # type: ignore[arg-type]


def max_tokens(count: int) -> gen.StopConditions:
    """Stop conditions with a length."""
    return gen.StopConditions(max_tokens=count)


async def drain(
    call: AsyncIterable[pb.GenerateStreamResponse],
    seen: list[pb.GenerateStreamResponse] | None = None,
) -> list[pb.GenerateStreamResponse]:
    """Everything up to the end; `seen` also has what came before an error."""
    events = [] if seen is None else seen
    async with asyncio.timeout(scaled(60)):
        async for event in call:
            events.append(event)
    return events


async def attached(call: AsyncIterable[pb.AttachResponse]) -> list[pb.GenerateStreamResponse]:
    """Everything up to the end of an Attach."""
    async with asyncio.timeout(scaled(60)):
        return [answer.event async for answer in call]


def kinds(events: Sequence[pb.GenerateStreamResponse]) -> list[str]:
    """What the events are."""
    return [event.WhichOneof("event") or "" for event in events]


def text_of(events: Sequence[pb.GenerateStreamResponse]) -> str:
    """The concatenated deltas."""
    return "".join(event.delta.text for event in events)


def ids_of(events: Sequence[pb.GenerateStreamResponse]) -> list[int]:
    """All token ids, in order."""
    return [token_id for event in events for token_id in event.delta.token_ids]


def assert_gapless(events: Sequence[pb.GenerateStreamResponse], first: int = 0) -> int:
    """Each delta begins where the one before ended; answers the seq behind the last."""
    for event in events:
        if event.WhichOneof("event") == "delta":
            assert event.seq == first, (event.seq, first)
            first = event.seq + event.count
    return first
