"""``python -m tests.bench.overload``: many times more requests than the engine can take, and what becomes of them (B35).

A closed loop finds the peak, an open one brings ``--times`` as many requests a second for ``--seconds``, whatever
becomes of them, and probes look how long it takes until an answer comes as it does on an idle stack. The engine is the
simulated one with the step time of a real one: the queue and what it does to callers is what is looked at.
"""

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.client import AsyncClient, HeadraceError
from tests.support.stack import SIMULATED, Stack, running_stack

_MODEL = "sim"
_PROMPT = list(range(40, 56))


@dataclass
class Outcome:
    """What became of the requests of one load. Times in seconds."""

    answered: int = 0
    took_s: float = 0.0
    refused_s: list[float] = field(default_factory=list)
    retry_s: list[float | None] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)
    longest_queue: int = 0

    @property
    def goodput(self) -> float:
        """Answers a second that came within their deadline."""
        return self.answered / self.took_s

    @property
    def late(self) -> int:
        """Accepted, and not answered in time."""
        return sum(count for reason, count in self.reasons.items() if reason != "QUEUE_FULL")


@dataclass(frozen=True)
class Kind:
    """One kind of request: its length and its deadline."""

    tokens: int
    deadline_s: float


async def ask(client: AsyncClient, kind: Kind, outcome: Outcome) -> None:
    """One request, followed to its end."""
    began_s, first_s = time.perf_counter(), None
    stream = client.stream(
        _PROMPT,
        model=_MODEL,
        max_tokens=kind.tokens,
        ignore_eos=True,
        timeout_s=kind.deadline_s,
    )
    try:
        async with stream:
            async for event in stream:
                if event.count and first_s is None:
                    first_s = time.perf_counter() - began_s
                    outcome.first_s.append(first_s)
        outcome.answered += 1
    except HeadraceError as error:
        reason = error.reason or error.code
        outcome.reasons[reason] = outcome.reasons.get(reason, 0) + 1
        if error.code == "RESOURCE_EXHAUSTED":
            outcome.refused_s.append(time.perf_counter() - began_s)
            outcome.retry_s.append(error.retry_after_s)


async def closed_loop(client: AsyncClient, kind: Kind, *, lanes: int, seconds: float) -> Outcome:
    """``lanes`` requests at once for so long."""
    outcome, began_s = Outcome(), time.perf_counter()

    async def lane() -> None:
        while time.perf_counter() - began_s < seconds:
            await ask(client, kind, outcome)

    await asyncio.gather(*(lane() for _ in range(lanes)))
    outcome.took_s = time.perf_counter() - began_s
    return outcome


async def open_loop(
    client: AsyncClient, kind: Kind, *, rate: float, seconds: float, stack: Stack
) -> Outcome:
    """``rate`` requests a second, at random moments; answers that come later count for the load all the same."""
    outcome, rng = Outcome(), random.Random(5)
    redis = stack.redis_client()
    due_s = began_s = time.perf_counter()
    looked_s = 0.0
    async with asyncio.TaskGroup() as requests:
        while due_s - began_s < seconds:
            due_s += rng.expovariate(rate)
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            requests.create_task(ask(client, kind, outcome))
            if due_s - looked_s >= 1.0:
                looked_s = due_s
                waiting = redis.hget(f"hr:{{{_MODEL}/0}}:queued", "requests:normal")
                outcome.longest_queue = max(outcome.longest_queue, int(waiting or 0))
        # What is answered after the last arrival was not done in the seconds of the load.
        answered, outcome.took_s = outcome.answered, time.perf_counter() - began_s
    outcome.reasons["ANSWERED_AFTERWARDS"] = outcome.answered - answered
    return outcome


async def recovery_s(client: AsyncClient, kind: Kind, usual_s: float) -> float:
    """Seconds until a probe's first token takes no longer than ``usual_s``."""
    began_s = time.perf_counter()
    while True:
        probe = Outcome()
        await ask(client, kind, probe)
        if probe.answered and probe.first_s[0] <= usual_s:
            return time.perf_counter() - began_s


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.overload", description=__doc__)
    parser.add_argument("--times", type=float, default=5.0, help="of the peak")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the overload")
    parser.add_argument("--peak-seconds", type=float, default=10.0)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--deadline-s", type=float, default=10.0)
    parser.add_argument("--step-ms", type=float, default=20.0)
    parser.add_argument("--max-seqs", type=int, default=16)
    parser.add_argument("--queue", type=int, default=50, help="bound of the queue in requests")
    options = parser.parse_args(arguments)
    worker = ["--step-ms", str(options.step_ms), "--max-seqs", str(options.max_seqs)]
    with running_stack(
        worker_flags=[*SIMULATED, *worker],
        gateway_flags=["--queue-max-requests", str(options.queue)],
    ) as stack:
        asyncio.run(_measure(stack, options))


async def _measure(stack: Stack, options: argparse.Namespace) -> None:
    kind = Kind(options.tokens, options.deadline_s)
    async with AsyncClient(stack.targets) as client:
        idle = Outcome()
        for _ in range(10):
            await ask(client, kind, idle)
        peak = await closed_loop(
            client, kind, lanes=2 * options.max_seqs, seconds=options.peak_seconds
        )
        rate = peak.goodput * options.times
        print(f"peak: {peak.goodput:.1f} answers/s; now {rate:.0f} requests/s", flush=True)
        over = await open_loop(client, kind, rate=rate, seconds=options.seconds, stack=stack)
        back_s = await recovery_s(client, kind, 2 * max(idle.first_s) + options.step_ms / 1e3)
    _report(peak, over, back_s)


def _report(peak: Outcome, over: Outcome, back_s: float) -> None:
    afterwards = over.reasons.pop("ANSWERED_AFTERWARDS")
    during = over.answered - afterwards
    print(
        f"goodput: {during / over.took_s:.1f} answers/s, {during / over.took_s / peak.goodput:.0%} of the peak"
    )
    print(f"accepted {over.answered + over.late}, of these not in time {over.late}")
    print(f"longest queue seen: {over.longest_queue}; ends that were no answer: {over.reasons}")
    for name, values in (("first token of accepted", over.first_s), ("refusal", over.refused_s)):
        if len(values) > 1:
            cuts = statistics.quantiles(values, n=100, method="inclusive")
            print(f"{name}, ms: p50 {cuts[49] * 1e3:.0f}, p99 {cuts[98] * 1e3:.0f}")
    given = [retry_s for retry_s in over.retry_s if retry_s is not None]
    if given:
        print(
            f"retry after, s: {min(given):.2f} to {max(given):.2f}, on {len(given)} of {len(over.retry_s)}"
        )
    print(f"recovered {back_s:.1f} s after the load's end")


if __name__ == "__main__":
    main()
