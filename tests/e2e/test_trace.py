"""One trace from client to model step, in an OTLP receiver that the test serves."""

import asyncio

import pytest

from headrace.client import AsyncClient
from headrace.client.trace import TraceContext
from tests.support.otlp_receiver import ReceivedSpan, running_otlp_receiver
from tests.support.outcomes import collect
from tests.support.stack import SIMULATED, Stack, running_stack, scrape

SERVICES = {"headrace-gateway", "headrace-scheduler", "headrace-worker"}
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def find(spans: list[ReceivedSpan], name: str) -> ReceivedSpan:
    (span,) = [span for span in spans if span.name == name]
    return span


def queue_time_sum(stack: Stack) -> float:
    series = scrape(stack.schedulers[0])
    return sum(v for name, v in series if name.startswith("headrace_queue_time_seconds_sum"))


async def test_one_trace_is_complete():
    """client → gateway → admission → queue → batch link → worker in one trace; queue span equals the queue metric."""
    with running_otlp_receiver() as receiver:
        environment = {"HEADRACE_OTLP_ENDPOINT": receiver.endpoint}
        with running_stack(worker_flags=SIMULATED, environment=environment) as stack:
            trace = TraceContext.new()
            async with AsyncClient(stack.targets) as client:
                outcome = await collect(client, "hello", model="sim", max_tokens=5, trace=trace)
            assert outcome.error is None
            wanted = {"headrace.admit", "headrace.queue", "headrace.generate"}

            def complete(spans) -> bool:
                return wanted <= {span.name for span in spans if span.trace_id == trace.trace_id}

            spans = await receiver.wait_for_async(complete, timeout_s=20)
            await receiver.wait_for_async(
                lambda spans: any(span.name.startswith("text_completion") for span in spans), 20
            )
            spans = [span for span in receiver.spans if span.trace_id == trace.trace_id]
            by_id = {span.span_id: span for span in spans}
            roots = [span for span in spans if span.parent_id not in by_id]
            assert [span.parent_id for span in roots] == [trace.traceparent[36:52]], (
                "all hang below the client's span"
            )
            assert {span.service for span in spans} == SERVICES
            queue = find(spans, "headrace.queue")
            assert queue.duration_s == pytest.approx(queue_time_sum(stack), abs=1e-4)
            generate = find(spans, "headrace.generate")
            batches = [span for span in receiver.spans if span.name == "headrace.batch"]
            linked = {link.trace_id for batch in batches for link in batch.links}
            assert linked == {trace.trace_id}, "the batch span links to its request"
            assert generate.start_ns >= queue.start_ns
            for span in spans:
                assert span.end_ns >= span.start_ns
                if "headrace.request.id" in span.attributes:
                    assert span.attributes["headrace.request.id"] == outcome.request_id


async def test_traces_of_parallel_requests_do_not_mix():
    """Each of many requests in one batch has its own complete trace; an unsampled parent stays unsampled."""
    with running_otlp_receiver() as receiver:
        environment = {"HEADRACE_OTLP_ENDPOINT": receiver.endpoint}
        with running_stack(
            worker_flags=[*SIMULATED, "--step-ms", "5"], environment=environment
        ) as stack:
            traces = [TraceContext.new() for _ in range(20)]
            unsampled = TraceContext(TraceContext.new().traceparent[:-2] + "00")
            async with AsyncClient(stack.targets) as client:
                outcomes = await asyncio.gather(
                    *(
                        collect(client, f"n{i}", model="sim", max_tokens=8, trace=trace)
                        for i, trace in enumerate([*traces, unsampled])
                    )
                )

            def complete(spans) -> bool:
                done = {span.trace_id for span in spans if span.name == "headrace.generate"}
                return {trace.trace_id for trace in traces} <= done

            await receiver.wait_for_async(complete, timeout_s=20)
            for trace, outcome in zip(traces, outcomes, strict=False):
                spans = [span for span in receiver.spans if span.trace_id == trace.trace_id]
                ids = {span.attributes.get("headrace.request.id") for span in spans} - {None}
                assert ids == {outcome.request_id}
            assert not [span for span in receiver.spans if span.trace_id == unsampled.trace_id]
