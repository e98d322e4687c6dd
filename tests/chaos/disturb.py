"""Carries the schedule out: the next fault begins while the one before may still hold."""

import asyncio
from collections.abc import Iterator
from itertools import islice

from tests.chaos.cluster import Cluster
from tests.chaos.faults import Faults, Impossible
from tests.chaos.journal import Journal
from tests.chaos.schedule import LOSES_WORKERS, Fault, plan_faults
from tests.chaos.settings import ChaosSettings

# Losses of workers that a request may live through; the third would make it poison.
_MOST_EXPOSURES = 2
_LOOK_INTERVAL_S = 0.2


class Disturbance:
    """Faults until it is told to stop."""

    def __init__(self, settings: ChaosSettings, cluster: Cluster, journal: Journal) -> None:
        self._settings = settings
        self._cluster = cluster
        self._journal = journal
        self._faults = Faults(cluster, journal)
        self._slots = asyncio.Semaphore(settings.most_at_once)
        self._num_begun = 0

    def plan(self) -> Iterator[Fault]:
        """The schedule; the same each time."""
        settings = self._settings
        return plan_faults(
            settings.seed,
            settings.kinds,
            settings.gap_s,
            longest_without_redis_s=settings.longest_without_redis_s,
        )

    def begun(self) -> list[Fault]:
        """The faults that were begun so far."""
        return list(islice(self.plan(), self._num_begun))

    async def run(self, stopping: asyncio.Event) -> None:
        """Until `stopping`; then everything is healed."""
        async with asyncio.TaskGroup() as tasks:
            for fault in self.plan():
                if await _is_set_within(stopping, fault.after_s):
                    return
                await self._slots.acquire()
                if fault.kind in LOSES_WORKERS and not await self._may_lose_worker(stopping):
                    return
                self._num_begun += 1
                tasks.create_task(self._do(fault))

    async def _may_lose_worker(self, stopping: asyncio.Event) -> bool:
        """Wait until no open request has lost as many workers as it may; False when the run ends first."""
        while self._journal.max_exposures >= _MOST_EXPOSURES:
            if await _is_set_within(stopping, _LOOK_INTERVAL_S):
                return False
        return True

    async def _do(self, fault: Fault) -> None:
        self._journal.disturbed()
        try:
            await self._faults.do(fault)
        except Impossible as error:
            self._journal.fault(f"#{fault.number} {fault.kind} left out: {error}")
            self._journal.counts["faults left out"] += 1
        except Exception as error:
            # A process that does not come back is a finding like any other; the run ends with it.
            self._journal.fail(
                f"fault #{fault.number} {fault.kind}: {type(error).__name__}: {error}"
            )
        else:
            self._journal.faults[fault.kind] += 1
            self._journal.fault(f"#{fault.number} {fault.kind} healed")
            self._journal.healed(fault.kind)
        finally:
            self._slots.release()


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
