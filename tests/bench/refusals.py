"""``python -m tests.bench.refusals``: gaps between the tokens of streams beside one who sends what is refused (B07).

Ten thousand stop strings in 3.9 MB, again and again: reading and refusing them takes time from the gateway that relays the
streams. Both rows are of one run, of a simulated engine with ``--step-ms``; the first is without it.
"""

import argparse
import asyncio
from collections.abc import Sequence

from headrace.client import AsyncClient, InvalidRequest
from tests.bench.measure import Figures, answers_of, figures_of
from tests.support.stack import SIMULATED, running_stack

_MODEL = "sim"
_NUM_STREAMS, _NUM_TOKENS = 10, 100
STOPS = [f"{n:05}" + "x" * 380 for n in range(10_000)]


async def refuse_on(client: AsyncClient, until: asyncio.Task[Figures]) -> int:
    """Send it as long as something is measured; how often it was refused."""
    num_refused = 0
    while not until.done():
        try:
            await client.generate("x", model=_MODEL, max_tokens=4, stop=STOPS)
        except InvalidRequest:
            num_refused += 1
            continue
        raise AssertionError("it was not refused")
    return num_refused


async def measure(client: AsyncClient) -> Figures:
    """Ten streams at once."""
    prompts = [[number] * 8 for number in range(40, 40 + _NUM_STREAMS)]
    answers = await answers_of(client, _MODEL, prompts, _NUM_STREAMS, _NUM_TOKENS)
    return figures_of(answers, _NUM_STREAMS, _NUM_TOKENS)


async def compare(step_ms: float) -> None:
    """Print both."""
    flags = [*SIMULATED, "--step-ms", f"{step_ms:g}"]
    with running_stack(worker_flags=flags) as stack:
        async with AsyncClient(stack.targets) as client, AsyncClient(stack.targets) as other:
            calm = await measure(client)
            measuring = asyncio.create_task(measure(client))
            num_refused = await refuse_on(other, measuring)
            beside = await measuring
    print("| streams | gap p50 ms | gap p99 ms |\n|---|---|---|")
    for name, figures in (("alone", calm), (f"beside {num_refused} refusals", beside)):
        print(f"| {name} | {figures.itl_p50_ms:.1f} | {figures.itl_p99_ms:.1f} |")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse and measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.refusals", description=__doc__)
    parser.add_argument("--step-ms", type=float, default=30.0, help="of the simulated engine")
    asyncio.run(compare(parser.parse_args(arguments).step_ms))


if __name__ == "__main__":
    main()
