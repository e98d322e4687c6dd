"""One trace from client to model step, in an OTLP receiver that the test serves."""

import asyncio
import re
from collections import Counter

import pytest

from headrace.client import AsyncClient
from headrace.client.trace import TraceContext
from tests.support.otlp_receiver import ReceivedSpan, running_otlp_receiver
from tests.support.outcomes import TokenCount, collect
from tests.support.stack import SIMULATED, Stack, running_stack

# The last thing that each process records of a request.
LAST_SPANS = {"text_completion sim", "headrace.settle", "headrace.generate"}
EVERY_REQUEST = {
    "headrace.validate", "headrace.admit", "headrace.queue", "headrace.dispatch",
    "headrace.generate", "headrace.prefill", "headrace.decode", "headrace.settle",
}  # fmt: skip
SERVICES = {"headrace-gateway", "headrace-scheduler", "headrace-worker"}
# Why the batch now, which lengths, why this request, and its class.
REASON = re.compile(r"[a-z ]+, bucket <=\d+; [a-z ]+(, \d+ tokens cached)?, class NORMAL")
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def find(spans: list[ReceivedSpan], name: str) -> ReceivedSpan:
    (span,) = [span for span in spans if span.name == name]
    return span


def queue_times(stack: Stack) -> tuple[float, float]:
    """Sum and count of the queue-time metric."""
    scheduler = stack.schedulers[0]
    return (
        stack.metric(scheduler, "headrace_queue_time_seconds_sum"),
        stack.metric(scheduler, "headrace_queue_time_seconds_count"),
    )


async def test_one_trace_is_complete():
    """client → gateway → admission → queue → batch link → worker in one trace; queue span equals the queue metric."""
    with running_otlp_receiver() as receiver:
        environment = {"HEADRACE_OTLP_ENDPOINT": receiver.endpoint}
        with running_stack(worker_flags=SIMULATED, environment=environment) as stack:
            trace = TraceContext.new()
            async with AsyncClient(stack.targets) as client:
                outcome = await collect(client, "hello", model="sim", max_tokens=5, trace=trace)
            assert outcome.error is None

            def complete(spans) -> bool:
                return {
                    span.name for span in spans if span.trace_id == trace.trace_id
                } >= EVERY_REQUEST

            spans = await receiver.wait_for_async(complete, timeout_s=90)
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
            assert queue.duration_s == pytest.approx(queue_times(stack)[0], abs=1e-4)
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
    """Case B48: of 50 requests in common batches each has its own complete trace; an unsampled parent stays unsampled."""
    with running_otlp_receiver() as receiver:
        environment = {"HEADRACE_OTLP_ENDPOINT": receiver.endpoint}
        with running_stack(
            worker_flags=[*SIMULATED, "--step-ms", "5"], environment=environment
        ) as stack:
            traces = [TraceContext.new() for _ in range(50)]
            unsampled = [
                TraceContext(TraceContext.new().traceparent[:-2] + "00") for _ in range(5)
            ]
            async with AsyncClient(stack.targets) as client:
                outcomes = await asyncio.gather(
                    *(
                        collect(
                            client,
                            f"n{i}",
                            model="sim",
                            max_tokens=8,
                            trace=trace,
                            labels={"number": str(i)},
                        )
                        for i, trace in enumerate([*traces, *unsampled])
                    )
                )

            # A request that was refused leaves no trace to wait for.
            assert [one.error for one in outcomes if one.error is not None] == []

            def complete(spans) -> bool:
                ended = Counter(s.trace_id for s in spans if s.name in LAST_SPANS)
                return all(ended[trace.trace_id] == len(LAST_SPANS) for trace in traces)

            await receiver.wait_for_async(complete, timeout_s=90)
            for number, (trace, outcome) in enumerate(zip(traces, outcomes, strict=False)):
                spans = [span for span in receiver.spans if span.trace_id == trace.trace_id]
                ids = {span.attributes.get("headrace.request.id") for span in spans} - {None}
                assert ids == {outcome.request_id}
                assert {span.service for span in spans} == SERVICES
                assert {span.name for span in spans} == {*EVERY_REQUEST, "text_completion sim"}
                root = find(spans, "text_completion sim")
                assert root.attributes["headrace.label.number"] == str(number)
                assert root.attributes["rpc.response.status_code"] == "OK"
            assert not {s.trace_id for s in receiver.spans} & {t.trace_id for t in unsampled}
            linked = sum(queue_times(stack)[1:])
            assert linked == len(outcomes), "every queue time is in the metric, sampled or not"
            waits = receiver.named("headrace.queue")
            assert sum(span.duration_s for span in waits) <= queue_times(stack)[0] + 1e-3
            assert_batches_and_members_agree(receiver.spans, traces)


def assert_batches_and_members_agree(spans: list[ReceivedSpan], traces) -> None:
    """A batch span links to the dispatch span of each member; each worker's span links to its batch's."""
    batches = {span.span_id: span for span in spans if span.name == "headrace.batch"}
    dispatches = {span.span_id: span for span in spans if span.name == "headrace.dispatch"}
    linked = [link.span_id for batch in batches.values() for link in batch.links]
    assert sorted(linked) == sorted(dispatches)
    assert {span.trace_id for span in dispatches.values()} == {t.trace_id for t in traces}
    for dispatch in dispatches.values():
        reason = str(dispatch.attributes["headrace.plan.reason"])
        assert REASON.fullmatch(reason), reason
    for generate in (span for span in spans if span.name == "headrace.generate"):
        (link,) = generate.links
        members = {one.span_id for one in batches[link.span_id].links}
        assert generate.parent_id in members


async def test_a_takeover_is_in_the_trace():
    """The leading scheduler is killed in mid-stream: the trace names the takeover, the tokens kept, and the second run."""
    with running_otlp_receiver() as receiver:
        environment = {"HEADRACE_OTLP_ENDPOINT": receiver.endpoint}
        with running_stack(
            schedulers=2, worker_flags=[*SIMULATED, "--step-ms", "40"], environment=environment
        ) as stack:
            trace = TraceContext.new()
            count = TokenCount()
            # Known beforehand, and far from the end when it dies: who asks then may be late.
            leader = stack.leading_scheduler()
            async with AsyncClient(stack.targets) as client, asyncio.TaskGroup() as tasks:
                request = tasks.create_task(
                    collect(
                        client,
                        "hello",
                        model="sim",
                        max_tokens=200,
                        ignore_eos=True,
                        trace=trace,
                        count=count,
                    )
                )
                await count.more(10)
                leader.kill()
                outcome = await request
            assert outcome.error is None

            def complete(spans) -> bool:
                mine = Counter(s.name for s in spans if s.trace_id == trace.trace_id)
                wanted = {"headrace.takeover", *LAST_SPANS}
                return wanted <= mine.keys() and mine["headrace.generate"] == 2

            await receiver.wait_for_async(complete, timeout_s=90)
            spans = [span for span in receiver.spans if span.trace_id == trace.trace_id]
            takeover = find(spans, "headrace.takeover")
            assert takeover.attributes["headrace.tokens_resumed"] >= 10
            assert takeover.attributes["headrace.epoch"] == 2
            resumed = max((s for s in spans if s.name == "headrace.generate"), key=start)
            assert resumed.attributes["headrace.epoch"] == 2
            assert resumed.start_ns >= takeover.end_ns
            lost = min((s for s in spans if s.name == "headrace.generate"), key=start)
            assert lost.attributes["headrace.outcome"] == "session over"


async def test_waits_are_in_the_trace_however_they_end():
    """A request that expires in the queue, and one that waits again after its worker died: each wait says why it ended."""
    with running_otlp_receiver() as receiver:
        environment = {"HEADRACE_OTLP_ENDPOINT": receiver.endpoint}
        flags = [*SIMULATED, "--step-ms", "40", "--max-seqs", "1"]
        with running_stack(workers=2, worker_flags=flags, environment=environment) as stack:
            traces = [TraceContext.new() for _ in range(3)]
            count = TokenCount()
            async with AsyncClient(stack.targets) as client, asyncio.TaskGroup() as tasks:
                options = {"model": "sim", "ignore_eos": True, "count": count}
                running = [
                    tasks.create_task(
                        collect(client, "hello", max_tokens=250, trace=trace, **options)
                    )
                    for trace in traces[:2]
                ]
                await count.more(10)
                late = await collect(
                    client, "late", max_tokens=5, timeout_s=1.5, trace=traces[2], **options
                )
                stack.workers[0].kill()
                outcomes = [await one for one in running]
            assert late.error is not None
            assert [one.error for one in outcomes] == [None, None]

            def waits(number: int) -> list[ReceivedSpan]:
                found = receiver.named("headrace.queue")
                mine = [span for span in found if span.trace_id == traces[number].trace_id]
                return sorted(mine, key=start)

            await receiver.wait_for_async(
                lambda _: sum(len(waits(number)) for number in range(3)) == 4, timeout_s=90
            )
            (expired,) = waits(2)
            assert expired.attributes["headrace.outcome"] == "deadline"
            (again,) = [waits(number) for number in (0, 1) if len(waits(number)) == 2]
            assert "headrace.requeued_after" not in again[0].attributes
            assert again[1].attributes["headrace.requeued_after"] == "worker lost"
            assert again[1].start_ns > again[0].end_ns


def start(span: ReceivedSpan) -> int:
    return span.start_ns
