"""``python -m tests.bench.preemption``: first tokens of short HIGH requests beside a full batch of long NORMAL ones.

With and without pre-emption, the simulated engine, everything over the wire. The long ones come again as soon as one
has ended, so that there is never a free slot and always a queue.
"""

import argparse
import asyncio
import time

from headrace.client import AsyncClient
from tests.bench.simulate.report import percentile
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, Stack, running_stack

_SLOTS, _LONG_TOKENS = 8, 400


async def first_tokens_s(stack: Stack, count: int) -> list[float]:
    """Seconds to the first token of ``count`` short HIGH requests, one after the other."""
    async with AsyncClient(stack.targets) as client:

        async def long_ones() -> None:
            while True:
                await client.generate(
                    "a question", model="sim", max_tokens=_LONG_TOKENS, ignore_eos=True
                )

        lanes = [asyncio.create_task(long_ones()) for _ in range(2 * _SLOTS)]
        await asyncio.to_thread(eventually, lambda: stack.pending_entries() == len(lanes))
        found = []
        for _ in range(count):
            began_s, first_s = time.perf_counter(), None
            async for event in client.stream(
                "a question", model="sim", max_tokens=4, ignore_eos=True, priority="high"
            ):
                if event.count and first_s is None:
                    first_s = time.perf_counter() - began_s
            assert first_s is not None
            found.append(first_s)
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
        return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.preemption", description=__doc__)
    parser.add_argument("--requests", type=int, default=100)
    options = parser.parse_args()
    flags = [*SIMULATED, "--step-ms", "5", "--max-seqs", str(_SLOTS)]
    for word in ("on", "off"):
        with running_stack(
            worker_flags=flags,
            scheduler_flags=[] if word == "on" else ["--no-preemption"],
        ) as stack:
            found = asyncio.run(first_tokens_s(stack, options.requests))
            print(
                f"pre-emption {word}: p50 {percentile(found, 0.5):.3f} s,"
                f" p99 {percentile(found, 0.99):.3f} s, most {max(found):.3f} s of {len(found)};"
                f" asked {stack.metric(stack.schedulers[0], 'headrace_preemptions_asked_total'):.0f}"
            )


if __name__ == "__main__":
    main()
