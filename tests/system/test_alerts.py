"""Each alert fires when its condition is brought about in the running system (`for` and windows shortened)."""

import asyncio
import contextlib
import functools
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from headrace.client import AsyncClient
from tests.support.outcomes import TokenCount, collect
from tests.support.polling import eventually
from tests.support.processes import ServiceProcess
from tests.support.prometheus import FIRED, alert_rules, metrics_address, running_prometheus
from tests.support.stack import SIMULATED, running_stack
from tests.support.supervision import supervised

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

PROVOKED: set[str] = set()


def provokes(*alerts: str):
    """Marks what a test provokes, and holds it to that: each was seen firing. The last test compares with the rules."""
    PROVOKED.update(alerts)

    def held_to_it(test):
        @functools.wraps(test)
        async def checked():
            await test()
            assert FIRED.issuperset(alerts)

        return checked

    return held_to_it


def asked(process: ServiceProcess, path: str) -> int:
    """The status with which a probe is answered."""
    address = process.endpoints["metrics"].removeprefix("http://").removesuffix("/metrics")
    try:
        with urlopen(f"http://{address}{path}", timeout=60) as answer:
            return answer.status
    except HTTPError as error:
        return error.code


@contextlib.asynccontextmanager
async def asking(targets: list[str], number: int, **options):
    """So many requests under way in the block, however they end."""
    async with AsyncClient(targets) as client:
        tasks = [
            asyncio.create_task(collect(client, f"number {n}", model="sim", **options))
            for n in range(number)
        ]
        try:
            yield tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@provokes("HeadraceFirstTokenSlow", "HeadraceQueueOld", "HeadraceRefusing")
async def test_overload():
    """Too few sequences and slow steps: first tokens are late, the queue grows old, then it is full."""
    slow = [*SIMULATED, "--step-ms", "300", "--max-seqs", "1"]
    with (
        running_stack(worker_flags=slow, gateway_flags=["--queue-max-requests", "9"]) as stack,
        running_prometheus(stack) as prometheus,
    ):
        async with asking(stack.targets, 60, max_tokens=16, ignore_eos=True):
            await asyncio.to_thread(prometheus.wait_for, "HeadraceRefusing", within_s=120)
            await asyncio.to_thread(
                prometheus.wait_for, "HeadraceFirstTokenSlow", "HeadraceQueueOld", within_s=120
            )


@provokes("HeadraceWorkerStuck", "HeadraceNoWorker", "HeadraceDown", "HeadraceDeviceMemoryHigh")
async def test_a_step_that_hangs():
    """The stuck worker is named, and is not ready though it lives; once it is gone, requests wait for nobody.

    The share of memory that alerts is lowered: filling the machine would kill its neighbours.
    """
    hangs = [*SIMULATED, "--allow-faults", "--fault", f"token={ord('~')}:sleep"]
    with (
        running_stack(worker_flags=[*hangs, "--step-timeout-s", "90"]) as stack,
        running_prometheus(stack, thresholds={"HeadraceDeviceMemoryHigh": "0.01"}) as prometheus,
    ):
        await asyncio.to_thread(prometheus.wait_for, "HeadraceDeviceMemoryHigh", within_s=120)
        async with AsyncClient(stack.targets) as client:
            bad = asyncio.create_task(collect(client, "~", model="sim", max_tokens=5))
            await asyncio.to_thread(prometheus.wait_for, "HeadraceWorkerStuck", within_s=120)
            worker = stack.workers[0]
            await asyncio.to_thread(
                eventually, lambda: asked(worker, "/readyz") == 503, within_s=120
            )
            assert asked(worker, "/livez") == 200
            stack.workers[0].kill()
            wanted = ("HeadraceNoWorker", "HeadraceDown")
            await asyncio.to_thread(prometheus.wait_for, *wanted, within_s=120)
            bad.cancel()


@provokes("HeadraceDeadLetters", "HeadraceWorkersLost", "HeadraceErrorRateHigh")
async def test_poison():
    """A request kills three workers and is set aside."""
    exits = [*SIMULATED, "--allow-faults", "--fault", f"token={ord('~')}:exit"]
    with running_stack(worker_flags=exits) as stack, running_prometheus(stack) as prometheus:
        async with AsyncClient(stack.targets) as client, supervised(*stack.workers):
            outcome = await collect(client, "a bad ~ seed", model="sim", max_tokens=5)
            assert outcome.error is not None
            wanted = ("HeadraceDeadLetters", "HeadraceWorkersLost", "HeadraceErrorRateHigh")
            await asyncio.to_thread(prometheus.wait_for, *wanted, within_s=120)


@provokes("HeadraceOrphans")
async def test_a_gateway_leaves_its_requests():
    """Its requests run on for nobody."""
    slow = [*SIMULATED, "--step-ms", "200"]
    with (
        running_stack(worker_flags=slow, scheduler_flags=["--orphan-grace-s", "60"]) as stack,
        running_prometheus(stack) as prometheus,
    ):
        count = TokenCount()
        options = {"max_tokens": 900, "ignore_eos": True, "count": count}
        async with asking(stack.targets, 2, **options):
            await count.more(4)
            stack.gateways[0].kill()
            await asyncio.to_thread(prometheus.wait_for, "HeadraceOrphans", within_s=120)


@provokes("HeadraceTakeoverStorm", "HeadraceRedisErrors")
async def test_the_lead_goes_round_and_redis_goes_away():
    """Leaders die one after the other; then Redis is gone, and whoever needs it says so."""
    with running_stack(schedulers=2) as stack, running_prometheus(stack) as prometheus:
        for _ in range(5):
            leader = await asyncio.to_thread(eventually, stack.leading_scheduler, within_s=120)
            heir = next(one for one in stack.schedulers if one is not leader)
            before = stack.metric(heir, "headrace_leaderships_total")
            leader.kill()

            def leads(heir=heir, before=before) -> bool:
                return stack.metric(heir, "headrace_leaderships_total") > before

            await asyncio.to_thread(eventually, leads, within_s=120)
            # What dies before it is scraped counts for no rule.
            query = f'headrace_leaderships_total{{instance="{metrics_address(heir)}"}} > {before}'
            await asyncio.to_thread(eventually, lambda query=query: prometheus.query(query))
            port = leader.endpoints["metrics"].rpartition(":")[2].removesuffix("/metrics")
            leader.flags[leader.flags.index("--metrics-port") + 1] = port
            leader.start()
            await asyncio.to_thread(leader.wait_until_ready)
        await asyncio.to_thread(prometheus.wait_for, "HeadraceTakeoverStorm", within_s=120)
        stack.redis.kill()
        await asyncio.to_thread(prometheus.wait_for, "HeadraceRedisErrors", within_s=120)


def test_each_alert_is_provoked():
    """No rule without a test above."""
    assert {rule["alert"] for rule in alert_rules()} == PROVOKED
