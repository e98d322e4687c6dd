"""Operators change a running system under load, as docs/operations.md says, and no request fails.

Each request is asked again and again with its own seed: whatever is restarted meanwhile, every answer is the same. Callers
give keys, as docs/api.md advises: a gateway that is away when a request is sent may have taken it.
"""

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from headrace.client import AsyncClient
from headrace.v1 import admin_service_pb2 as admin
from tests.support.outcomes import Outcome, TokenCount, collect
from tests.support.processes import ServiceProcess
from tests.support.stack import SIMULATED, Stack, running_stack
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NUM_CALLERS, NUM_TOKENS = 12, 40
SLOW = [*SIMULATED, "--step-ms", "10"]


class Load:
    """Callers who never stop; what they got, by model and revision that answered."""

    def __init__(self, client: AsyncClient, model: str) -> None:
        self._client = client
        self._model = model
        self.count = TokenCount()
        self.failures: list[Outcome] = []
        self.served: Counter[tuple[str, str]] = Counter()
        self.answers: dict[tuple[int, str, str], set[tuple[int, ...]]] = {}
        self.is_over = False

    async def ask_on(self, number: int) -> None:
        """The same request until the load is over."""
        while not self.is_over:
            place: list[tuple[str, str]] = []

            def note(event, place=place) -> None:
                if event.WhichOneof("event") == "accepted":
                    place.append((event.accepted.model, event.accepted.model_revision))

            outcome = await collect(
                self._client,
                f"number {number}",
                model=self._model,
                max_tokens=NUM_TOKENS,
                ignore_eos=True,
                temperature=1.0,
                seed=number,
                idempotency_key=secrets.token_hex(8),
                count=self.count,
                on_event=note,
            )
            if outcome.error is not None or len(outcome.token_ids) != NUM_TOKENS:
                self.failures.append(outcome)
                return
            self.served[place[0]] += 1
            self.answers.setdefault((number, *place[0]), set()).add(tuple(outcome.token_ids))

    async def comes_to(self, model: str, revision: str = "") -> None:
        """Wait until more answers come from there."""
        wanted = self._num_served(model, revision) + 3
        async with asyncio.timeout(scaled(60)):
            while self._num_served(model, revision) < wanted:
                assert not self.failures, self.failures
                await self.count.more(20)

    def _num_served(self, model: str, revision: str) -> int:
        return sum(
            number
            for (name, one), number in self.served.items()
            if name == model and revision in ("", one)
        )


@contextlib.asynccontextmanager
async def load_on(stack: Stack, model: str) -> AsyncIterator[tuple[AsyncClient, Load]]:
    """Load in the block; behind it nothing may have failed."""
    async with AsyncClient(stack.targets) as client:
        load = Load(client, model)
        async with asyncio.TaskGroup() as callers:
            for number in range(NUM_CALLERS):
                callers.create_task(load.ask_on(number))
            try:
                yield client, load
            finally:
                load.is_over = True
    assert not load.failures, [(one.request_id, one.error) for one in load.failures]
    assert all(len(answers) == 1 for answers in load.answers.values())


def restart(process: ServiceProcess) -> None:
    """SIGTERM, and the next one at the same address, as a deployment would."""
    address = process.endpoints.get("grpc")
    if address is not None:
        process.flags[process.flags.index("--grpc-port") + 1] = address.rpartition(":")[2]
    assert process.stop() == 0, process.log
    process.start()
    process.wait_until_ready()


async def test_a_rolling_restart_of_all_services():
    """Schedulers, gateways, workers, one after the other: streams go on elsewhere, nothing fails, no token differs."""
    with running_stack(
        schedulers=2,
        gateways=2,
        workers=2,
        worker_flags=SLOW,
        gateway_flags=["--http-port", "0"],
    ) as stack:
        async with load_on(stack, "sim") as (_, load):
            await load.comes_to("sim")
            for process in [*stack.schedulers, *stack.gateways, *stack.workers]:
                await asyncio.to_thread(restart, process)
                await load.comes_to("sim")


def targets(*found: tuple[str, str]) -> list[admin.AliasTarget]:
    return [admin.AliasTarget(model=model, revision=name, weight=1) for model, name in found]


async def test_a_rolling_model_change():
    """A canary, all of it, the old worker drained and gone; then a smaller model helps while the queue is long."""
    with running_stack(worker_flags=SLOW) as stack, contextlib.ExitStack() as workers:
        async with AsyncClient(stack.targets) as client:
            (found,) = await client.models()
            old = found.revision
            await client.admin.set_alias(
                admin.ModelAlias(alias="chat", current=targets(("sim", old)))
            )
        async with load_on(stack, "chat") as (client, load):
            await load.comes_to("sim", old)
            await start_worker(stack, workers, "new", [*SLOW, "--eos-every", "1000000"])
            here = await all_workers(client, 2)
            (new,) = {one.model_revision for one in here} - {old}
            both = targets(("sim", old), ("sim", new))
            await client.admin.set_alias(admin.ModelAlias(alias="chat", current=both))
            await load.comes_to("sim", new)
            await client.admin.promote("chat", new)
            await rests(client, "worker-0")
            await client.admin.drain("worker-0")
            assert await asyncio.to_thread(stack.workers[0].wait) == 0, "a drained worker ends"
            await load.comes_to("sim", new)
            await start_worker(stack, workers, "small", [*SLOW, "--served-model-name", "small"])
            await help_by_a_smaller_model(client, load)


async def rests(client: AsyncClient, worker_id: str) -> None:
    """Wait until a worker has run nothing for longer than gateways take to follow a promotion."""
    async with asyncio.timeout(scaled(60)):
        looks = 0
        while looks < 4:
            (found,) = [one for one in await client.admin.workers() if one.worker_id == worker_id]
            looks = 0 if found.num_running else looks + 1
            await asyncio.sleep(0.6)


async def help_by_a_smaller_model(client: AsyncClient, load: Load) -> None:
    """Opted in by a threshold; nothing of it goes to the fallback while the queue is short."""
    await served(client, "small")
    helped = admin.ModelAlias(
        alias="chat",
        current=targets(("sim", "")),
        fallback=targets(("small", "")),
        fallback_above_waiting=3,
    )
    await client.admin.set_alias(helped)
    await load.comes_to("sim")
    assert not any(model == "small" for model, _ in load.served)
    is_over = asyncio.Event()

    async def flood(number: int) -> None:
        """The queue stays long for as long as it takes until somebody has seen it."""
        while not is_over.is_set():
            await collect(client, f"flood {number}", model="sim", max_tokens=60, ignore_eos=True)

    async with asyncio.TaskGroup() as floods:
        for number in range(120):
            floods.create_task(flood(number))
        await load.comes_to("small")
        is_over.set()
    await load.comes_to("sim")


async def start_worker(
    stack: Stack, workers: contextlib.ExitStack, name: str, flags: list[str]
) -> None:
    """One more worker, which stays until the load is over."""
    seeds = ",".join(scheduler.endpoints["grpc"] for scheduler in stack.schedulers)
    worker = ServiceProcess(
        "worker",
        flags=["--metrics-port", "0", "--worker-id", name, *flags],
        environment={"HEADRACE_SCHEDULERS": seeds},
    )
    await asyncio.to_thread(workers.enter_context, worker)


async def served(client: AsyncClient, model: str) -> None:
    """Wait until a model can be named; ListWorkers may still count the one that left, and say too early that it is here."""
    async with asyncio.timeout(scaled(60)):
        while model not in [one.name for one in await client.models()]:  # noqa: ASYNC110 - as people look
            await asyncio.sleep(0.2)


async def all_workers(client: AsyncClient, number: int) -> list[admin.Worker]:
    """As operators see them, once so many are here."""
    async with asyncio.timeout(scaled(60)):
        while len(found := await client.admin.workers()) < number:  # noqa: ASYNC110 - as people look
            await asyncio.sleep(0.2)
    return found
