"""Clients that ask all the while, in every way there is; each answer is compared with the undisturbed one."""

import asyncio
import contextlib
import random
import traceback
from collections.abc import Iterator, Sequence

from google.protobuf import text_format

from headrace.client import AsyncClient, HeadraceError
from tests.chaos.asks import Known
from tests.chaos.batches import Batches
from tests.chaos.calls import Calls
from tests.chaos.cluster import TENANTS, Cluster
from tests.chaos.http_calls import HttpCalls, HttpClient
from tests.chaos.journal import History, Journal
from tests.chaos.judge import Judge
from tests.chaos.keyed import Keyed
from tests.chaos.settings import ChaosSettings
from tests.chaos.ways import WAYS, Rest

_HTTP_SHARE = 0.3
"""Of all requests, in each of these ways. Who attaches or cancels does it over gRPC: HTTP knows neither."""


class Load:
    """All clients of a run."""

    def __init__(
        self,
        settings: ChaosSettings,
        cluster: Cluster,
        known: Sequence[Known],
        journal: Journal,
    ) -> None:
        """Its clients spread over tenants and gateways."""
        self._settings = settings
        self._cluster = cluster
        self._known = list(known)
        self._journal = journal
        self._clients: dict[str, list[AsyncClient]] = {tenant: [] for tenant in TENANTS}
        # Both tenants choose the same keys: each stands for another request in each.
        self._http: dict[str, list[HttpClient]] = {tenant: [] for tenant in TENANTS}
        # A field that is unset over gRPC is not the field that is set over HTTP: a key has callers of one kind.
        kinds = [(tenant, kind) for tenant in TENANTS for kind in (Calls, HttpCalls)]
        judge = Judge(journal, self._clients)
        self._rest = {
            (tenant, kind): Rest(judge, known, Keyed(journal, kind), Batches(journal, kind))
            for tenant, kind in kinds
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
                    rng = random.Random(f"stream {number} {self._settings.seed}")
                    tasks.create_task(self._ask_on(rng, TENANTS[number % len(TENANTS)]))

    async def _ask_on(self, rng: random.Random, tenant: str) -> None:
        while not self.stopping.is_set():
            known = rng.choice(self._known)
            way = rng.choices([*WAYS], [way.weight for way in WAYS.values()])[0]
            over = "HTTP" if rng.random() < _HTTP_SHARE else "gRPC"
            told = text_format.MessageToString(known.request, as_one_line=True)
            history = History(f"{way} over {over} of ask {known.number}: {told}")
            self._journal.open.add(history)
            self._journal.counts[f"way {way}"] += 1
            self._journal.counts[f"over {over}"] += 1
            calls = self._calls(over, known, history, tenant, rng)
            try:
                await WAYS[way].go(calls, self._rest[tenant, type(calls)])
            except* (HeadraceError, AssertionError) as errors:
                for error in _leaves(errors):
                    line = traceback.extract_tb(error.__traceback__)[-1].line
                    self._journal.fail(f"{type(error).__name__}: {error} ({line})", history)
            finally:
                self._journal.open.discard(history)

    def _calls(
        self, over: str, known: Known, history: History, tenant: str, rng: random.Random
    ) -> Calls:
        clients, settings, journal = self._clients[tenant], self._settings, self._journal
        if over == "HTTP":
            http = self._http[tenant]
            return HttpCalls(settings, journal, known, history, tenant, clients, http, rng)
        return Calls(settings, journal, known, history, tenant, clients, rng)


def _leaves(errors: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
