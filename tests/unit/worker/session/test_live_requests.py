"""What a worker's spans tell of a request: the parts of its prompt, and when it had to make room."""

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from common.domain import TraceContext
from common.tracing import Tracing
from tests.support.engines import make_engine, make_job
from worker.engine.costs import StepCosts
from worker.engine.engine import Engine
from worker.engine.job import Job
from worker.session.live_requests import LiveRequests, Origin

NO_BATCH = TraceContext()


def context(number: int) -> TraceContext:
    return TraceContext(f"00-{number:032x}-{number:016x}-01")


def traced(engine: Engine, jobs: list[Job]) -> list[ReadableSpan]:
    """All spans of jobs that ran to their ends; each has its own trace."""
    kept = InMemorySpanExporter()
    tracing = Tracing(Resource({}), SimpleSpanProcessor(kept))
    live = LiveRequests(tracing, model="m", worker_id="w")
    for number, job in enumerate(jobs, 1):
        live.begin(job, Origin(context(number), NO_BATCH, "b"))
        engine.submit(job)
    while engine.has_work:
        live.observe(engine.step())
    assert len(live) == 0
    return list(kept.get_finished_spans())


def events_of(
    spans: list[ReadableSpan], request_id: str, event: str
) -> Iterator[dict[str, object]]:
    for span in spans:
        if span.attributes and span.attributes.get("headrace.request.id") == request_id:
            yield from (dict(e.attributes or {}) for e in span.events if e.name == event)


def test_a_long_prompt_shows_its_chunks() -> None:
    """Each part but the last is a moment of its own trace alone; a prompt of one part shows none."""
    long, short = make_job("long", "x" * 40), make_job("short", "x" * 4)
    spans = traced(make_engine(max_batch_tokens=16, max_share_tokens=8), [long, short])
    told = list(events_of(spans, "long", "headrace.prefill_chunk"))
    sizes = [int(str(event["headrace.prefill.tokens"])) for event in told]
    assert len(sizes) > 1
    assert 0 < 40 - sum(sizes) <= 16, "what is missing went with the first token"
    assert not list(events_of(spans, "short", "headrace.prefill_chunk"))
    prefills = {s.context.trace_id: s for s in spans if s.name == "headrace.prefill" and s.context}
    assert [dict(prefills[n].attributes or {})["headrace.prefill.chunks"] for n in (1, 2)] == [
        len(sizes) + 1,
        1,
    ]


@pytest.mark.parametrize("block_copy_s", [0.0, float("inf")])
def test_who_makes_room_on_its_worker_says_so(block_copy_s: float) -> None:
    """The younger of two waits for blocks, saved or to be computed again; the older is never interrupted."""
    engine = make_engine(
        kv_blocks=30,
        block_size=4,
        swap_blocks=100,
        costs=StepCosts(token_s=1.0, block_copy_s=block_copy_s),
    )
    jobs = [make_job(name, "x" * 8, max_tokens=90) for name in ("old", "young")]
    spans = traced(engine, jobs)
    made_room = list(events_of(spans, "young", "headrace.preempted"))
    assert made_room
    assert {event["headrace.outcome"] for event in made_room} == {"made room on the worker"}
    assert not list(events_of(spans, "old", "headrace.preempted"))
