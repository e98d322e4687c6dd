"""What a client does, how often, and what of the contract that alone uses; and what chaos leaves out, and why."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from headrace.v1 import inference_service_pb2 as pb
from tests.chaos.asks import Known
from tests.chaos.batches import Batches
from tests.chaos.calls import Calls, wants_ids
from tests.chaos.checks import GIVEN_UP, NO_WORKER
from tests.chaos.judge import Judge
from tests.chaos.keyed import Keyed
from tests.chaos.lookups import look
from tests.support.outcomes import Outcome

_LONGEST_ABSENCE_S = 4.0


@dataclass(frozen=True)
class Rest:
    """What a way needs beside its calls: of one tenant's callers of one kind."""

    judge: Judge
    known: Sequence[Known]
    keyed: Keyed
    batches: Batches


@dataclass(frozen=True)
class Way:
    """A client's way with a request: its weight among the others, the calls that it makes, the fields that only it sets."""

    weight: int
    go: Callable[[Calls, Rest], Awaitable[None]]
    calls: tuple[str, ...]
    fields: tuple[str, ...] = ()


async def _stream(calls: Calls, rest: Rest) -> None:
    asked = calls.asking()
    await rest.judge.check(calls, asked, await calls.stream(asked))


async def _unary(calls: Calls, rest: Rest) -> None:
    asked = calls.asking()
    await rest.judge.check(calls, asked, await calls.unary(asked))


async def _cancel(calls: Calls, rest: Rest) -> None:
    asked = calls.asking()
    await rest.judge.check(calls, asked, await calls.stream_and_cancel(asked), GIVEN_UP)


async def _leave(calls: Calls, rest: Rest) -> None:
    asked = calls.asking()
    await rest.judge.check(calls, asked, await calls.stream_and_leave(asked), GIVEN_UP)


async def _impatient(calls: Calls, rest: Rest) -> None:
    """Without a worker there is no answer."""
    asked = calls.asking(hold=False)
    await rest.judge.check(calls, asked, await _either(calls, asked), NO_WORKER)


async def _cached(calls: Calls, rest: Rest) -> None:
    """Perhaps an earlier answer, which is the same; asked for again, most probably so."""
    asked = calls.asking(use_response_cache=True)
    for _ in range(calls.rng.randint(1, 2)):
        await rest.judge.check(calls, asked, await _either(calls, asked))


async def _keyed(calls: Calls, rest: Rest) -> None:
    for asked, outcome in await rest.keyed.ask(calls):
        await rest.judge.check(calls, asked, outcome)


async def _batch(calls: Calls, rest: Rest) -> None:
    for item, asked, outcome in await rest.batches.ask(calls, rest.known):
        await rest.judge.check(item, asked, outcome)


async def _look(calls: Calls, rest: Rest) -> None:
    await look(calls)


async def _either(calls: Calls, asked: pb.GenerateRequest) -> Outcome:
    """Whole, or as a stream."""
    return await (calls.unary(asked) if calls.rng.random() < 0.5 else calls.stream(asked))


async def _attach(calls: Calls, rest: Rest) -> None:
    """Others follow the same request from somewhere on, at other gateways: they see the same."""
    asked = calls.asking()
    others: list[asyncio.Task[Outcome]] = []
    async with asyncio.TaskGroup() as tasks:

        def begin_following(request_id: str, num_tokens: int) -> None:
            from_seq = calls.rng.choice([0, 0, calls.rng.randint(0, num_tokens)])
            follower = calls.follow_other(request_id, from_seq, has_ids=wants_ids(asked))
            others.append(tasks.create_task(follower))

        outcome = await calls.stream(asked, at_some_token=begin_following)
    await rest.judge.check(calls, asked, outcome)
    for other in others:
        follower = other.result()
        if follower.error is not None:
            calls.journal.fail(f"follower ended with {follower.error}", calls.history)
            continue
        start = len(outcome.token_ids) - len(follower.token_ids)
        if follower.token_ids != outcome.token_ids[start:]:
            calls.journal.fail("a follower saw other tokens", calls.history)
        if not start and follower.by_choice != outcome.by_choice:
            calls.journal.fail("a follower saw another text", calls.history)


async def _return(calls: Calls, rest: Rest) -> None:
    """Leave a resumable request in the middle, and go on later and elsewhere from the same token."""
    absence_s = calls.rng.uniform(0, _LONGEST_ABSENCE_S)
    asked = calls.asking(resumable=True)
    outcome = await calls.stream_and_leave(asked)
    if not outcome.finish_reason and outcome.error is None:
        await asyncio.sleep(absence_s)
        await calls.go_on(outcome)
    await rest.judge.check(calls, asked, outcome)


async def _expire(calls: Calls, rest: Rest) -> None:
    asked = calls.asking()
    outcome = await calls.stream_and_expire(asked)
    if outcome.request_id:
        await rest.judge.check(calls, asked, outcome, GIVEN_UP)


_ATTACH = ("AttachRequest.request_id", "AttachRequest.from_seq")

WAYS: Mapping[str, Way] = {
    "stream": Way(6, _stream, ("GenerateStream", "GetRequest"), ("GetRequestRequest.request_id",)),
    "unary": Way(3, _unary, ("Generate",)),
    "attach": Way(4, _attach, ("GenerateStream", "Attach"), _ATTACH),
    "return": Way(3, _return, ("GenerateStream", "Attach"), _ATTACH),
    "cancel": Way(
        3,
        _cancel,
        ("GenerateStream", "Cancel"),
        ("CancelRequest.request_id", "CancelRequest.reason"),
    ),
    "leave": Way(2, _leave, ("GenerateStream",)),
    "expire": Way(2, _expire, ("GenerateStream",), ("GenerateRequest.timeout",)),
    "impatient": Way(2, _impatient, ("GenerateStream", "Generate"), ("GenerateRequest.hold",)),
    "keyed": Way(4, _keyed, ("GenerateStream", "Generate"), ("GenerateRequest.idempotency_key",)),
    "cached": Way(
        4, _cached, ("GenerateStream", "Generate"), ("GenerateRequest.use_response_cache",)
    ),
    "batch": Way(
        3, _batch, ("BatchGenerate",), ("BatchGenerateRequest.requests", "GenerateRequest.adapter")
    ),
    "look": Way(
        1,
        _look,
        ("CountTokens", "ListModels", "GetModel"),
        (
            "CountTokensRequest.model",
            "CountTokensRequest.prompt",
            "CountTokensRequest.return_token_ids",
            "GetModelRequest.model",
        ),
    ),
}

_ONE_PAGE = "the two models of a run are one page; tests/integration/gateway has several"

EXCLUDED: Mapping[str, str] = {
    "ListModelsRequest.page_size": _ONE_PAGE,
    "ListModelsRequest.page_token": _ONE_PAGE,
}
"""Fields that no way and no feature sets."""
