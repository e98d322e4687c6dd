"""The partition count grows under load, and a leader of one of several partitions dies: no answer is lost or altered."""

import asyncio
from collections import defaultdict

import pytest

from headrace.client import AsyncClient
from tests.support.outcomes import Outcome, collect
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, Stack, running_stack
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(scaled(600))]

NUM_LANES, NUM_TOKENS = 12, 40
# What this load takes of a core, here and on a faster machine, is more than this; an idle scheduler takes less.
GROWTH = ["--max-partitions", "2", "--growth-cpu-share", "0.06", "--growth-after-s", "1"]


class Lanes:
    """Requests without a pause, a few at once; each lane asks the same again and again."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._stopping = asyncio.Event()
        self._answered = asyncio.Condition()
        self.outcomes: dict[int, list[Outcome]] = defaultdict(list)

    async def run(self) -> None:
        await asyncio.gather(*(self._lane(number) for number in range(NUM_LANES)))

    def stop(self) -> None:
        self._stopping.set()

    async def answers_from(self, *partitions: str) -> None:
        """Wait until requests that were accepted from now on have been answered in each of these."""
        begin = {lane: len(done) + 1 for lane, done in self.outcomes.items()}

        def is_met() -> bool:
            found = {
                outcome.request_id.split(":")[1]
                for lane, done in self.outcomes.items()
                for outcome in done[begin.get(lane, 0) :]
            }
            return found >= {*partitions}

        async with asyncio.timeout(scaled(60)), self._answered:
            await self._answered.wait_for(is_met)

    async def _lane(self, number: int) -> None:
        while not self._stopping.is_set():
            outcome = await collect(
                self._client,
                f"lane {number}",
                model="sim",
                max_tokens=NUM_TOKENS,
                ignore_eos=True,
                seed=number,
                temperature=float(number % 2),
            )
            async with self._answered:
                self.outcomes[number].append(outcome)
                self._answered.notify_all()


def leaders(stack: Stack) -> list[str]:
    """Who leads each partition, by address."""
    client = stack.redis_client()
    held = [client.get(f"hr:{{sim/{index}}}:lead") for index in count_of(stack)]
    return [lease.decode().partition("|")[2] if lease else "" for lease in held]


def count_of(stack: Stack) -> range:
    return range(int(stack.redis_client().hget("hr:{cards}:partitions", "sim") or 1))


async def test_a_partition_is_added_under_load_and_its_leader_may_die():
    """Both partitions answer, under a leader each; when one leader is killed, the other leads both."""
    flags = [*SIMULATED, "--step-ms", "10", "--max-seqs", "4"]
    with running_stack(
        schedulers=2, workers=3, worker_flags=flags, scheduler_flags=GROWTH
    ) as stack:
        async with AsyncClient(stack.targets) as client, asyncio.TaskGroup() as tasks:
            lanes = Lanes(client)
            tasks.create_task(lanes.run())
            await lanes.answers_from("0")
            await lanes.answers_from("0", "1")
            # A busy machine may let one scheduler take both at first; it gives one away then.
            await asyncio.to_thread(eventually, lambda: len({*leaders(stack)}) == 2)
            both = await asyncio.to_thread(leaders, stack)
            dying = next(one for one in stack.schedulers if one.endpoints["grpc"] == both[0])
            dying.process.kill()
            await lanes.answers_from("0", "1")
            assert await asyncio.to_thread(leaders, stack) == [both[1], both[1]]
            lanes.stop()
        for done in lanes.outcomes.values():
            for outcome in done:
                assert outcome.error is None, outcome.error
                assert outcome.answer == done[0].answer
                assert outcome.usage.completion_tokens == NUM_TOKENS
        eventually(lambda: stack.pending_entries() == 0)
