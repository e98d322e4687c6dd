"""Clients that ask all the while, in every way there is; each answer is compared with the undisturbed one."""

import asyncio
import contextlib
import random
import traceback
from collections.abc import Iterator, Sequence

from headrace.client import AsyncClient, HeadraceError
from tests.chaos.asks import Known
from tests.chaos.calls import Calls
from tests.chaos.checks import check_record, compare, insisting
from tests.chaos.cluster import TENANTS, Cluster
from tests.chaos.http_calls import HttpCalls, HttpClient
from tests.chaos.journal import History, Journal
from tests.chaos.keyed import Keyed
from tests.support.outcomes import Outcome

# What a client does, and how often.
_WAYS = {
    "stream": 6,
    "unary": 3,
    "attach": 4,
    "return": 3,
    "cancel": 3,
    "leave": 2,
    "expire": 2,
    "keyed": 4,
}
_HTTP_SHARE = 0.3
"""Of all requests, in each of these ways. Who attaches or cancels does it over gRPC: HTTP knows neither."""
_LONGEST_ABSENCE_S = 4.0


class Load:
    """All clients of a run."""

    def __init__(
        self, seed: int, cluster: Cluster, known: Sequence[Known], journal: Journal
    ) -> None:
        """Its clients spread over tenants and gateways."""
        self._seed = seed
        self._cluster = cluster
        self._known = list(known)
        self._journal = journal
        self._clients: dict[str, list[AsyncClient]] = {tenant: [] for tenant in TENANTS}
        # Both tenants choose the same keys: each stands for another request in each.
        self._http: dict[str, list[HttpClient]] = {tenant: [] for tenant in TENANTS}
        # A field that is unset over gRPC is not the field that is set over HTTP: a key has callers of one kind.
        self._keyed = {
            (tenant, kind): Keyed(journal, kind)
            for tenant in TENANTS
            for kind in (Calls, HttpCalls)
        }
        self.stopping = asyncio.Event()

    async def run(self, num_streams: int) -> None:
        """Ask until `stopping`, then let every request end."""
        async with contextlib.AsyncExitStack() as exits:
            targets = self._cluster.targets
            for tenant, clients in self._clients.items():
                for shift in range(len(targets)):
                    client = self._cluster.tenant(tenant, targets[shift:] + targets[:shift])
                    clients.append(await exits.enter_async_context(client))
                for http in self._cluster.http(tenant):
                    self._http[tenant].append(await exits.enter_async_context(http))
            async with asyncio.TaskGroup() as tasks:
                for number in range(num_streams):
                    rng = random.Random(f"stream {number} {self._seed}")
                    tasks.create_task(self._ask_on(rng, TENANTS[number % len(TENANTS)]))

    async def _ask_on(self, rng: random.Random, tenant: str) -> None:
        while not self.stopping.is_set():
            known = rng.choice(self._known)
            way = rng.choices([*_WAYS], [*_WAYS.values()])[0]
            over = "HTTP" if rng.random() < _HTTP_SHARE else "gRPC"
            history = History(f"{way} over {over} of ask {known.ask.number}: {known.ask.options}")
            self._journal.open.add(history)
            self._journal.counts[f"way {way}"] += 1
            self._journal.counts[f"over {over}"] += 1
            clients = self._clients[tenant]
            calls = Calls(self._journal, known, history, tenant, clients, rng)
            if over == "HTTP":
                calls = HttpCalls(
                    self._journal, known, history, tenant, clients, self._http[tenant], rng
                )
            try:
                await self._one(way, calls)
            except* (HeadraceError, AssertionError) as errors:
                for error in _leaves(errors):
                    line = traceback.extract_tb(error.__traceback__)[-1].line
                    self._journal.fail(f"{type(error).__name__}: {error} ({line})", history)
            finally:
                self._journal.open.discard(history)

    async def _one(self, way: str, calls: Calls) -> None:
        match way:
            case "stream":
                await self._check(calls, await calls.stream())
            case "unary":
                await self._check(calls, await calls.unary())
            case "attach":
                await self._attach(calls)
            case "return":
                await self._return(calls)
            case "cancel":
                await self._check(calls, await calls.stream_and_cancel(), may_be_cut=True)
            case "leave":
                await self._check(calls, await calls.stream_and_leave(), may_be_cut=True)
            case "expire":
                await self._expire(calls)
            case "keyed":
                for outcome in await self._keyed[calls.tenant, type(calls)].ask(calls):
                    await self._check(calls, outcome)

    async def _attach(self, calls: Calls) -> None:
        """Others follow the same request from somewhere on, at other gateways: they see the same."""
        others: list[asyncio.Task[Outcome]] = []
        async with asyncio.TaskGroup() as tasks:

            def begin_following(request_id: str, num_tokens: int) -> None:
                from_seq = calls.rng.choice([0, 0, calls.rng.randint(0, num_tokens)])
                others.append(tasks.create_task(calls.follow_other(request_id, from_seq)))

            outcome = await calls.stream(at_some_token=begin_following)
        await self._check(calls, outcome)
        for other in others:
            follower = other.result()
            if follower.error is not None:
                self._journal.fail(f"follower ended with {follower.error}", calls.history)
                continue
            start = len(outcome.token_ids) - len(follower.token_ids)
            if follower.token_ids != outcome.token_ids[start:]:
                self._journal.fail("a follower saw other tokens", calls.history)
            if not start and follower.by_choice != outcome.by_choice:
                self._journal.fail("a follower saw another text", calls.history)

    async def _return(self, calls: Calls) -> None:
        """Leave a resumable request in the middle, and go on later and elsewhere from the same token."""
        absence_s = calls.rng.uniform(0, _LONGEST_ABSENCE_S)
        outcome = await calls.stream_and_leave(resumable=True)
        if not outcome.finish_reason and outcome.error is None:
            await asyncio.sleep(absence_s)
            await calls.go_on(outcome)
        await self._check(calls, outcome)

    async def _expire(self, calls: Calls) -> None:
        outcome = await calls.stream_and_expire()
        if outcome.request_id:
            await self._check(calls, outcome, may_be_cut=True)

    async def _check(self, calls: Calls, outcome: Outcome, *, may_be_cut: bool = False) -> None:
        """Against the undisturbed run, then against the record."""
        self._journal.counts["requests"] += 1
        if outcome.error is not None and may_be_cut:
            self._journal.counts["requests cut"] += 1
        for wrong in compare(calls.known, outcome, may_be_cut=may_be_cut):
            self._journal.fail(wrong, calls.history)
        self._journal.counts["attempts"] += outcome.timings.attempts
        if outcome.request_id:
            await check_record(
                self._journal, calls.any_client(), calls.known, outcome, calls.history
            )
            await self._check_hidden(calls, outcome.request_id)

    async def _check_hidden(self, calls: Calls, request_id: str) -> None:
        """For another tenant there is no such request."""
        own = self._clients[calls.tenant]
        stranger = next(
            c for clients in self._clients.values() if clients is not own for c in clients
        )
        try:
            await insisting(self._journal, lambda: stranger.get_request(request_id))
        except HeadraceError as error:
            if error.code == "NOT_FOUND":
                return
            raise
        self._journal.fail("another tenant sees the request", calls.history)


def _leaves(errors: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
