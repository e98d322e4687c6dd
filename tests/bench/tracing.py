"""``python -m tests.bench.tracing``: what tracing every request costs, with the simulated engine or the real model.

One stack, which sends its spans to a receiver that discards them, gets the same load in turns from callers who want their
requests traced and from callers who do not: in the same processes, because two stacks beside each other differ by more than
what is to be measured. Prints the ratio of throughputs and of the CPU time that a token costs the services, as medians over
pairs of rounds and of the sums.
"""

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from headrace.client import AsyncClient
from headrace.client.trace import TraceContext
from tests.bench.costs import Costs
from tests.bench.workload import NUM_REQUESTS, Workload, make_workload
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


async def run(
    client: AsyncClient,
    model: str,
    workload: Workload,
    requests: int,
    concurrency: int,
    *,
    sampled: bool,
) -> float:
    """Tokens per second of so many requests, whose callers decide whether they are traced."""
    places = asyncio.Semaphore(concurrency)

    async def ask(prompt: Sequence[int]) -> None:
        ids = f"{random.getrandbits(128) | 1:032x}-{random.getrandbits(64) | 1:016x}"
        trace = TraceContext(f"00-{ids}-{int(sampled):02}")
        async with (
            places,
            client.stream(
                prompt,
                model=model,
                max_tokens=workload.output_tokens,
                ignore_eos=True,
                bypass_prefix_cache=True,
                trace=trace,
            ) as stream,
        ):
            tokens = sum([event.count async for event in stream])
        assert tokens == workload.output_tokens

    began_s = time.perf_counter()
    async with asyncio.TaskGroup() as asking:
        for number in range(requests):
            asking.create_task(ask(workload.prompts[number % len(workload.prompts)]))
    return requests * workload.output_tokens / (time.perf_counter() - began_s)


async def measure(
    stack: Stack, rounds: int, requests: int, concurrency: int
) -> tuple[list[list[float]], list[list[float]]]:
    """Without and with tracing: tokens per second, and CPU microseconds per token of all services, of each round."""
    rates: tuple[list[float], list[float]] = ([], [])
    cpu_us: tuple[list[float], list[float]] = ([], [])
    costs = Costs(stack)
    async with AsyncClient(stack.targets) as client:
        (model,) = [model.name for model in await client.models()]
        workload = await make_workload(client, model)
        for number in range(rounds + 1):
            for sampled in (False, True) if number % 2 else (True, False):
                before = costs.cpu_s()
                rate = await run(client, model, workload, requests, concurrency, sampled=sampled)
                after = costs.cpu_s()
                spent_s = sum(after[name] - before[name] for name in after if name != "client")
                if number:  # the first round warms up
                    rates[sampled].append(rate)
                    cpu_us[sampled].append(spent_s * 1e6 / (requests * workload.output_tokens))
    return [*rates], [*cpu_us]


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
    # Answers whose quality is measured, a random few, cost more than what is to be seen here.
    engine = ["--quality-sample", "0", *(simulated if options.engine == "simulated" else ())]
    with (
        discarding_receiver() as address,
        running_stack(
            worker_flags=engine,
            environment={"HEADRACE_OTLP_ENDPOINT": address},
            ready_within_s=600,
        ) as stack,
    ):
        found = asyncio.run(measure(stack, options.rounds, options.requests, options.concurrency))
    for name, (without, traced) in zip(("tokens/s", "CPU µs per token"), found, strict=True):
        ratio = statistics.median(b / a for a, b in zip(without, traced, strict=True))
        print(
            f"{name}: {statistics.median(without):.1f} without,"
            f" {statistics.median(traced):.1f} with tracing, ratio {ratio:.3f},"
            f" of the sums {sum(traced) / sum(without):.3f}"
        )


if __name__ == "__main__":
    main()
