"""What a client saw of one request, checked while it arrives: no gap, no repeat, usage that adds up."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.client import AsyncClient, HeadraceError
from headrace.v1 import generation_pb2 as pb
from tests.support.time_scale import scaled

UNTOLD = -1
"""A token whose id was not asked for."""


@dataclass
class Part:
    """One choice of an outcome."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: int = 0
    matched_stop: pb.MatchedStop = field(default_factory=pb.MatchedStop)
    logprobs: list[pb.Logprobs] = field(default_factory=list)
    is_counted: bool = True
    """Whether there is an entry in `token_ids` for each token; a whole answer without ids counts no choice by itself."""
    has_rest: bool = False
    """Whether what had been held back for a stop string came, which counts no token and comes again to who attaches."""


@dataclass
class Outcome:
    """The end of one stream. What is not in `choices` is in the order in which it came, whatever choice it is of."""

    request_id: str = ""
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: int = 0
    error: HeadraceError | None = None
    usage: pb.Usage = field(default_factory=pb.Usage)
    seed: int = 0
    timings: pb.Timings = field(default_factory=pb.Timings)
    matched_stop: pb.MatchedStop = field(default_factory=pb.MatchedStop)
    logprobs: list[pb.Logprobs] = field(default_factory=list)
    prompt_logprobs: list[pb.Logprobs] = field(default_factory=list)
    choices: dict[int, Part] = field(default_factory=dict)
    model: str = ""
    """As the answer says: never an alias."""
    is_from_cache: bool = False
    """Whether any event said so."""
    has_ids: bool = True
    """Whether token ids are to come; where they are not, each token is UNTOLD."""

    @property
    def by_choice(self) -> dict[int, tuple[list[int], str]]:
        """Tokens and text of each choice, which do not hang on how the choices took turns."""
        return {index: (part.token_ids, part.text) for index, part in sorted(self.choices.items())}

    @property
    def answer(self) -> tuple[list[int], str, int]:
        """What must equal the undisturbed run."""
        return self.token_ids, self.text, self.finish_reason

    @property
    def counted(self) -> tuple[int, int]:
        """Usage as far as it does not hang on who computed the prompt before: not what was cached of it."""
        return self.usage.prompt_tokens, self.usage.completion_tokens


class EventStream(Protocol):
    """A request's events, whatever they come over."""

    @property
    def request_id(self) -> str | None:
        """Once it was accepted."""

    def close(self) -> None:
        """Nothing more is wanted."""

    def __aiter__(self) -> AsyncIterator[Any]:
        """Every event, up to the last finish."""


class TokenCount:
    """Tokens seen by all clients so far; wakes who waits for a number of them."""

    def __init__(self) -> None:
        self.value = 0
        self._waiting: list[tuple[int, asyncio.Event]] = []

    def add(self, count: int) -> None:
        self.value += count
        for number, event in self._waiting:
            if self.value >= number:
                event.set()

    async def more(self, count: int, *, within_s: float = 120) -> None:
        """Wait until so many more tokens have been seen."""
        await self.reach(self.value + count, within_s=within_s)

    async def reach(self, number: int, *, within_s: float = 120) -> None:
        """Wait until so many tokens have been seen in all."""
        if self.value >= number:
            return
        event = asyncio.Event()
        self._waiting.append((number, event))
        async with asyncio.timeout(scaled(within_s)):
            await event.wait()


async def collect(
    client: AsyncClient,
    prompt,
    *,
    count: TokenCount | None = None,
    on_event: Callable[[object], None] | None = None,
    **options,
) -> Outcome:
    """Follow a stream to its end. Asserts seq without gap or repeat, and cumulative usage."""
    outcome = Outcome()
    async with client.stream(prompt, **options) as stream:
        await follow(stream, outcome, count=count, on_event=on_event)
    return outcome


async def follow(
    stream: EventStream,
    outcome: Outcome,
    *,
    count: TokenCount | None = None,
    on_event: Callable[[object], None] | None = None,
) -> None:
    """Add what an open stream brings to `outcome`, which may hold what came before; checks as `collect` does."""
    try:
        async for event in stream:
            _take(outcome, event)
            if on_event is not None:
                on_event(event)
            if count is not None:
                count.add(event.count)
    except HeadraceError as error:
        outcome.error = error
    outcome.request_id = outcome.request_id or stream.request_id or ""


def _take(outcome: Outcome, event) -> None:
    kind = event.WhichOneof("event")
    if kind == "accepted":
        outcome.request_id, outcome.seed = event.accepted.request_id, event.accepted.seed
        outcome.model = event.accepted.model
    outcome.is_from_cache |= event.usage.from_response_cache
    if kind == "prompt":
        outcome.prompt_logprobs = [*event.prompt.logprobs]
    if kind == "delta":
        part = outcome.choices.setdefault(event.delta.index, Part())
        if not event.count and part.has_rest:
            return
        part.has_rest = not event.count
        assert len(event.delta.logprobs) in (0, event.count)
        outcome.logprobs += event.delta.logprobs
        assert event.seq == len(outcome.token_ids), (event.seq, len(outcome.token_ids))
        assert len(event.delta.token_ids) == (event.count if outcome.has_ids else 0)
        token_ids = [*event.delta.token_ids] if outcome.has_ids else [UNTOLD] * event.count
        outcome.token_ids += token_ids
        outcome.text += event.delta.text
        assert not part.finish_reason
        part.token_ids += token_ids
        part.text += event.delta.text
        part.logprobs += event.delta.logprobs
        assert event.usage.completion_tokens == len(outcome.token_ids)
    if kind == "finish":
        # Who attaches hears of a choice that is over when what is known has been told, with the seq of its end.
        assert (
            event.seq == len(outcome.token_ids)
            if event.finish.last
            else event.seq <= len(outcome.token_ids)
        )
        assert not outcome.finish_reason
        part = outcome.choices.setdefault(event.finish.index, Part())
        part.finish_reason = event.finish.finish_reason
        part.matched_stop.CopyFrom(event.finish.matched_stop)
        if event.finish.last:
            outcome.finish_reason = event.finish.finish_reason
        outcome.timings.CopyFrom(event.finish.timings)
        outcome.matched_stop.CopyFrom(event.finish.matched_stop)
    if kind in ("delta", "finish"):
        outcome.usage.CopyFrom(event.usage)
