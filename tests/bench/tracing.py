"""``python -m tests.bench.tracing``: what tracing every request costs, with the simulated engine or the real model.

Two stacks, one of which sends all its spans to a receiver that discards them, get the same load in turns. Prints the
ratio of their throughputs and of the CPU time that a token costs the services, as medians over the rounds and between the
best rounds: on a busy machine the best are those that nobody disturbed.
"""

import argparse
import asyncio
import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from headrace.client import AsyncClient
from tests.bench.costs import Costs
from tests.bench.measure import run_closed_loop
from tests.bench.workload import NUM_REQUESTS, make_workload
from tests.support.stack import SIMULATED, Stack, running_stack


class _Discard(grpc.GenericRpcHandler):
    """Answers every export without looking at it: a receiver's own work is not to be measured."""

    def service(self, handler_call_details):
        answer = trace_service_pb2.ExportTraceServiceResponse().SerializeToString()
        return grpc.unary_unary_rpc_method_handler(lambda request, context: answer)


@contextmanager
def discarding_receiver() -> Iterator[str]:
    """Its address."""
    server = grpc.server(ThreadPoolExecutor(max_workers=2), handlers=[_Discard()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait(5)


async def measure(
    stacks: list[Stack], rounds: int, concurrency: int, requests: int
) -> list[list[float]]:
    """Per stack: tokens per second, and CPU microseconds per token of all its processes, of each round."""
    rates: list[list[float]] = [[], []]
    cpu_us: list[list[float]] = [[], []]
    for number in range(rounds + 1):
        for place in (0, 1) if number % 2 else (1, 0):
            costs = Costs(stacks[place])
            async with AsyncClient(stacks[place].targets) as client:
                (model,) = [model.name for model in await client.models()]
                workload = await make_workload(client, model)
                before = costs.cpu_s()
                figures = await run_closed_loop(
                    client, model, workload, concurrency=concurrency, requests=requests
                )
                after = costs.cpu_s()
                spent_s = sum(after[name] - before[name] for name in after if name != "client")
            if number:  # the first round warms up
                rates[place].append(figures.output_tokens_per_s)
                cpu_us[place].append(spent_s * 1e6 / (requests * workload.output_tokens))
    return [*rates, *cpu_us]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tracing", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--requests", type=int, default=NUM_REQUESTS, help="of each round")
    parser.add_argument("--step-ms", default="0", help="time of a simulated step")
    parser.add_argument("--engine", choices=["model", "simulated"], default="simulated")
    options = parser.parse_args()
    simulated = [*SIMULATED, "--step-ms", options.step_ms]
    flags = simulated if options.engine == "simulated" else []
    with (
        discarding_receiver() as address,
        running_stack(worker_flags=flags, ready_within_s=600) as plain,
        running_stack(
            worker_flags=flags,
            environment={"HEADRACE_OTLP_ENDPOINT": address},
            ready_within_s=600,
        ) as traced,
    ):
        found = asyncio.run(
            measure([plain, traced], options.rounds, options.concurrency, options.requests)
        )
    for name, without, with_tracing, best in (
        ("tokens/s", found[0], found[1], max),
        ("CPU µs per token", found[2], found[3], min),
    ):
        ratio = statistics.median(b / a for a, b in zip(without, with_tracing, strict=True))
        print(
            f"{name}: {statistics.median(without):.1f} without,"
            f" {statistics.median(with_tracing):.1f} with tracing, ratio {ratio:.3f},"
            f" of the best {best(with_tracing) / best(without):.3f}"
        )


if __name__ == "__main__":
    main()
