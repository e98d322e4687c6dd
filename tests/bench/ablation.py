"""``python -m tests.bench.ablation``: length buckets and the batch window, on and off, with the default model.

One worker with few slots, more clients than slots, English prompts of 50 to 500 tokens; the four settings in turns. Prints
tokens per second and the time to the first token of short and of long prompts. The same in the simulator, at several
loads: ``python -m tests.bench.simulate``.
"""

import argparse
import asyncio
import functools
import time
from collections.abc import Sequence

from headrace.client import AsyncClient
from tests.bench.simulate.report import percentile
from tests.bench.workload import make_workload
from tests.support.stack import running_stack

_SETTINGS = {
    "both": ["--batch-window-ms", "10"],
    "without buckets": ["--no-length-buckets", "--batch-window-ms", "10"],
    "without window": ["--batch-window-ms", "0"],
    "without both": ["--no-length-buckets", "--batch-window-ms", "0"],
}
_SHORT_TOKENS = 200


async def measure(targets: Sequence[str], options: argparse.Namespace) -> str:
    """A row of the table."""
    first_s: dict[bool, list[float]] = {True: [], False: []}
    async with AsyncClient(targets) as client:
        (model,) = [one.name for one in await client.models()]
        workload = await make_workload(client, model)
        waiting = iter(workload.prompts[: options.requests])

        async def lane() -> None:
            for prompt in waiting:
                began_s, seen_s = time.perf_counter(), None
                async for event in client.stream(
                    prompt,
                    model=model,
                    max_tokens=options.tokens,
                    temperature=0.0,
                    ignore_eos=True,
                    bypass_prefix_cache=True,
                ):
                    if event.count and seen_s is None:
                        seen_s = time.perf_counter() - began_s
                assert seen_s is not None
                first_s[len(prompt) <= _SHORT_TOKENS].append(seen_s)

        await client.generate("warm up", model=model, max_tokens=2)
        began_s = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(options.concurrency):
                tasks.create_task(lane())
        rate = options.requests * options.tokens / (time.perf_counter() - began_s)
    short, long = (
        f"{percentile(first_s[key], 0.5):.2f}, {percentile(first_s[key], 0.95):.2f} s"
        for key in (True, False)
    )
    return f"{rate:.1f} | {short} | {long} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ablation", description=__doc__)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=24)
    parser.add_argument("--slots", default="8")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    print(f"| rules | tokens/s | TTFT p50, p95: <={_SHORT_TOKENS} | longer |\n|---|---|---|---|")
    run = functools.partial(measure, options=options)
    for _ in range(options.rounds):
        for name, flags in _SETTINGS.items():
            with running_stack(
                worker_flags=["--max-seqs", options.slots], scheduler_flags=flags
            ) as stack:
                print(f"| {name} | {asyncio.run(run(stack.targets))}", flush=True)


if __name__ == "__main__":
    main()
