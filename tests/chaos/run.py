"""One chaos run from its beginning to its verdict."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace.client import AsyncClient
from tests.chaos import afterwards, asks, report
from tests.chaos.cluster import TENANTS, Cluster, running_cluster
from tests.chaos.disturb import Disturbance
from tests.chaos.growth import Growth
from tests.chaos.journal import Failure, Journal
from tests.chaos.load import Load
from tests.chaos.settings import ChaosSettings
from tests.support.time_scale import scaled

# For what is open when the faults end: the longest answer, and the longest grace of a request that was left.
_LAST_REQUESTS_S = 200.0


@dataclass(frozen=True)
class Verdict:
    """How it went."""

    failures: Sequence[Failure]
    figures: str
    folder: Path | None = None
    """With histories and logs, if anything failed."""
    schedule: Sequence[str] = field(default=())


async def run_chaos(settings: ChaosSettings, say: Callable[[str], None] = print) -> Verdict:
    """Start a stack, load and disturb it for a while, look what is left, and judge."""
    journal = Journal()
    with running_cluster(settings) as cluster:
        growth, disturbance = (
            Growth(cluster, is_real=settings.is_real),
            Disturbance(settings, cluster, journal),
        )
        try:
            await _run(settings, cluster, journal, growth, disturbance, say)
        finally:
            # Also for a run that is broken off: its logs go with the cluster.
            faults = disturbance.begun()
            text = report.figures(journal, cluster, growth, journal.elapsed_s)
            folder = report.write_failure(settings, journal, cluster, faults, text)
    schedule = [str(fault) for fault in faults]
    return Verdict(journal.failures, text, folder if journal.failures else None, schedule)


async def _run(
    settings: ChaosSettings,
    cluster: Cluster,
    journal: Journal,
    growth: Growth,
    disturbance: Disturbance,
    say: Callable[[str], None],
) -> None:
    await cluster.admit_tenants()
    async with cluster.tenant(TENANTS[0]) as client:
        await _all_serve(client, settings)
        await cluster.name_models()
        known = await asks.prepare(settings, client)
    say(f"{len(known)} requests answered undisturbed; now {settings.duration_s:.0f} s of faults")
    load = Load(settings, cluster, known, journal)
    stopping = asyncio.Event()
    journal.began_s = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(growth.run())
        guarding = tasks.create_task(cluster.restart_crashed(journal.fail))
        loading = tasks.create_task(load.run(settings.num_streams))
        disturbing = tasks.create_task(disturbance.run(stopping))
        telling = tasks.create_task(_tell(journal, say))
        await asyncio.sleep(settings.duration_s)
        stopping.set()
        await disturbing
        say("healed; the last requests end")
        load.stopping.set()
        await _end_load(journal, loading)
        telling.cancel()
        guarding.cancel()
        for problem in await afterwards.check_service(cluster, known):
            journal.fail(problem)
        for problem in await asyncio.to_thread(afterwards.check_nothing_left, cluster):
            journal.fail(problem)
        growth.look()
        looking.cancel()
    for problem in [*growth.problems(), *afterwards.check_logs(cluster)]:
        journal.fail(problem)


async def _all_serve(client: AsyncClient, settings: ChaosSettings) -> None:
    """Every model is known, with its workers."""
    async with asyncio.timeout(scaled(120)):
        while True:
            found = {model.name: model.workers for model in await client.models()}
            if all(found.get(name, 0) >= n for name, n in settings.workers.items()):
                return
            await asyncio.sleep(0.1)


async def _end_load(journal: Journal, loading: "asyncio.Task[None]") -> None:
    done, _ = await asyncio.wait([loading], timeout=scaled(_LAST_REQUESTS_S))
    if done:
        return
    for history in journal.open:
        journal.fail("has not ended", history)
    loading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await loading


async def _tell(journal: Journal, say: Callable[[str], None]) -> None:
    """A line now and then, for who watches."""
    while True:
        await asyncio.sleep(15)
        say(
            f"{journal.elapsed_s:5.0f} s  {journal.counts['requests']} requests,"
            f" {sum(journal.faults.values())} faults, {len(journal.failures)} failures"
        )
