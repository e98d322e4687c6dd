"""A worker's sessions, against the scheduler's side played over real gRPC."""

import asyncio
import hashlib
import threading

import pytest

from common.domain import StopConditions
from common.prefix_keys import block_keys, root_key, short_hash
from common.wire.card import decode_card
from headrace.internal.v1 import worker_service_pb2 as pb
from headrace.v1 import generation_pb2
from tests.support.engines import make_job, run_alone
from tests.support.scheduler_stub import StubSession, assignment, scheduler_stub
from tests.support.worker_in_process import running_worker
from worker.engine.block_store import PagedRunner
from worker.simulated.settings import SimulatedSettings

pytestmark = pytest.mark.integration
ENDLESS = StopConditions(max_tokens=3000)
SLOW = SimulatedSettings(step_ms=1, kv_blocks=1024)


async def test_hello_card_and_credit() -> None:
    """The worker introduces itself, sends its card in chunks when asked, and says what it can take."""
    async with scheduler_stub() as stub, running_worker([stub.address]):
        session = await stub.session()
        hello = await session.receive("hello")
        assert (hello.worker_id, hello.protocol, hello.kv_blocks, hello.max_seqs) == (
            "worker-1", 1, 256, 8,
        )  # fmt: skip
        session.send(card_request=pb.CardRequest(offset=0))
        data = b""
        while not (chunk := await session.receive("card_chunk")).last:
            data += chunk.data
        data += chunk.data
        assert hashlib.sha256(data).digest() == hello.card_hash
        assert decode_card(data).fingerprint == hello.fingerprint
        session.send(welcome=pb.Welcome(heartbeat_ms=60_000))
        credit = await session.receive("credit")
        assert (credit.free_seqs, credit.free_blocks) == (8, 256)


async def test_assignments_run_to_their_ends() -> None:
    """Requests of one Assign, a resumed one among them, give the tokens that the engine gives alone."""
    whole = run_alone(make_job(prompt="hello", max_tokens=12))
    async with scheduler_stub() as stub, running_worker([stub.address]) as worker:
        session = await stub.session()
        await session.welcome()
        session.send(
            assign=pb.Assign(
                batch_id="b1",
                assignments=[
                    assignment("a"),
                    assignment("b", "another prompt", max_tokens=40),
                    assignment("c", generated=whole.token_ids[:5], attempt=2),
                ],
            )
        )
        await session.until(lambda: all(session.finish_of(name) for name in "abc"))
        assert session.tokens_of("a") == whole.token_ids
        assert session.text_of("a") == whole.full_text
        assert session.tokens_of("c") == whole.token_ids[5:]
        assert len(session.tokens_of("b")) == 40
        first = next(s for o in session.outputs for s in o.sequences if s.request_id == "a")
        assert (first.epoch, first.attempt, first.prompt.worker_id) == (3, 1, "worker-1")
        last = session.outputs[-1]
        assert (last.credit.free_seqs, last.credit.free_blocks) == (8, 256)
        assert worker.ends == []


async def test_cache_is_told_and_told_anew() -> None:
    """Blocks come with the steps that prove them; the next session hears of all of them before anything runs."""
    root = root_key(tenant="t")
    tokens = tuple(("prefix " * 10).encode())
    expected = {short_hash(key) for key in block_keys(root, tokens, 16)}
    async with scheduler_stub() as stub, running_worker([stub.address]):
        session = await stub.session()
        await session.welcome()
        job = assignment("a", "prefix " * 10, max_tokens=3)
        job.body.tenant = "t"
        session.send(assign=pb.Assign(assignments=[job]))
        added = (await session.receive("cache_delta")).added
        assert set(added) == expected
        await session.until(lambda: session.finish_of("a") is not None)
        session.close()
        again = await stub.session()
        await again.welcome()
        assert set((await again.receive("cache_delta")).added) >= expected


async def test_cancel_and_preempt() -> None:
    """A cancelled request ends with the reason given, a preempted one is returned, the third goes on."""
    async with scheduler_stub() as stub, running_worker([stub.address], settings=SLOW):
        session = await stub.session()
        await session.welcome()
        names = ["cancelled", "preempted", "goes on"]
        session.send(
            assign=pb.Assign(assignments=[assignment(name, stop=ENDLESS) for name in names])
        )
        await session.until(lambda: all(session.tokens_of(name) for name in names))
        session.send(
            cancel=pb.CancelSequences(
                sequences=[pb.CancelSequence(request_id="cancelled", attempt=1)],
                reason=generation_pb2.FINISH_REASON_CANCELLED,
            )
        )
        session.send(
            preempt=pb.PreemptSequences(
                sequences=[pb.CancelSequence(request_id="preempted", attempt=1)]
            )
        )
        await session.until(
            lambda: "preempted" in session.returned and session.finish_of("cancelled") is not None
        )
        finish = session.finish_of("cancelled")
        assert finish is not None
        assert finish.reason == generation_pb2.FINISH_REASON_CANCELLED
        count = len(session.tokens_of("goes on"))
        await session.until(lambda: len(session.tokens_of("goes on")) > count)


async def test_an_order_of_another_epoch_stops_nothing() -> None:
    """A scheduler that was replaced may say late what its successor must not suffer from."""
    async with scheduler_stub() as stub, running_worker([stub.address], settings=SLOW):
        session = await stub.session()
        await session.welcome()
        session.send(assign=pb.Assign(assignments=[assignment("goes on", stop=ENDLESS)]))
        await session.until(lambda: session.tokens_of("goes on"))
        late = [pb.CancelSequence(request_id="goes on", attempt=1, epoch=4)]
        cancelled = generation_pb2.FINISH_REASON_CANCELLED
        session.send(cancel=pb.CancelSequences(sequences=late, reason=cancelled))
        session.send(preempt=pb.PreemptSequences(sequences=late))
        count = len(session.tokens_of("goes on"))
        await session.until(lambda: len(session.tokens_of("goes on")) > count + 2)
        assert session.finish_of("goes on") is None
        late[0].epoch = 3
        session.send(cancel=pb.CancelSequences(sequences=late, reason=cancelled))
        await session.until(lambda: session.finish_of("goes on") is not None)


async def test_deadline_in_the_worker() -> None:
    """A request whose time is over ends with DEADLINE although the scheduler said nothing."""
    async with scheduler_stub() as stub, running_worker([stub.address], settings=SLOW):
        session = await stub.session()
        await session.welcome()
        session.send(
            assign=pb.Assign(assignments=[assignment("r", stop=ENDLESS, remaining_ms=50)])
        )
        await session.until(lambda: session.finish_of("r") is not None)
        finish = session.finish_of("r")
        assert finish is not None
        assert finish.reason == generation_pb2.FINISH_REASON_DEADLINE


async def test_reconnect_drops_every_sequence() -> None:
    """Behind a lost session the worker comes back by itself, empty, and runs what it is assigned again."""
    async with scheduler_stub() as stub, running_worker([stub.address], settings=SLOW) as worker:
        session = await stub.session()
        await session.welcome()
        session.send(assign=pb.Assign(assignments=[assignment("r", stop=ENDLESS)]))
        await session.until(lambda: bool(session.tokens_of("r")))
        session.close()
        again = await stub.session()
        credit = await again.welcome()
        assert (credit.free_seqs, credit.free_blocks) == (8, 1024)
        again.send(assign=pb.Assign(assignments=[assignment("r", attempt=2)]))
        await again.until(lambda: again.finish_of("r") is not None)
        assert all(s.attempt == 2 for output in again.outputs for s in output.sequences)
        assert worker.ends == ["the scheduler closed the session"]


async def test_unreachable_schedulers_are_passed_over() -> None:
    """The worker tries its addresses in turn until one answers."""
    async with scheduler_stub() as stub, running_worker(["127.0.0.1:1", stub.address]) as worker:
        session = await stub.session()
        await session.welcome()
        assert len(worker.ends) == 1


async def test_redirect_is_followed() -> None:
    """A worker sent elsewhere dials there at once."""
    async with (
        scheduler_stub() as first,
        scheduler_stub() as second,
        running_worker([first.address]),
    ):
        session = await first.session()
        await session.receive("hello")
        session.send(redirect=pb.Redirect(address=second.address))
        await (await second.session()).welcome()


async def start_endless(session: StubSession) -> None:
    await session.welcome()
    session.send(assign=pb.Assign(assignments=[assignment("long", stop=ENDLESS)]))
    await session.until(lambda: bool(session.tokens_of("long")))


async def test_drain_gives_back_what_outlives_the_grace() -> None:
    """Drained, the worker takes nothing new, returns what is left after the grace, and leaves."""
    async with scheduler_stub() as stub, running_worker([stub.address], settings=SLOW) as worker:
        session = await stub.session()
        await start_endless(session)
        session.send(drain=pb.Drain(grace_ms=100))
        await session.receive("draining")
        session.send(assign=pb.Assign(assignments=[assignment("late")]))
        await session.wait_closed()
        assert session.returned == {"long": "drained", "late": "drained"}
        await worker.left()


async def test_drain_lets_short_requests_finish() -> None:
    """What ends within the grace ends in full, and the worker does not wait for the grace to pass."""
    async with scheduler_stub() as stub, running_worker([stub.address], settings=SLOW) as worker:
        session = await stub.session()
        await session.welcome()
        session.send(assign=pb.Assign(assignments=[assignment("short", max_tokens=100)]))
        await session.until(lambda: bool(session.tokens_of("short")))
        worker.dialer.leave(grace_s=600, reason="test")
        await session.wait_closed()
        assert len(session.tokens_of("short")) == 100
        assert session.returned == {}
        await worker.left()


async def test_reading_goes_on_during_a_long_step() -> None:
    """While a step computes, the worker still answers; its heartbeat tells that the step makes no progress."""
    entered, release = threading.Event(), threading.Event()

    class Stuck:
        def __init__(self, runner: PagedRunner) -> None:
            self._runner = runner
            self.num_blocks, self.block_size = runner.num_blocks, runner.block_size
            self.blocks = runner.blocks

        def run(self, rows):
            entered.set()
            release.wait(80)
            return self._runner.run(rows)

    async with scheduler_stub() as stub, running_worker([stub.address], wrap=Stuck):
        try:
            session = await stub.session()
            await session.welcome()
            session.send(ping=pb.Ping())
            assert (await session.receive("heartbeat")).last_step_age_ms == 0
            session.send(assign=pb.Assign(assignments=[assignment("r")]))
            await asyncio.to_thread(entered.wait, 60)
            ages = []
            while not ages or ages[-1] <= ages[0]:
                session.send(ping=pb.Ping())
                ages.append((await session.receive("heartbeat")).last_step_age_ms)
        finally:
            release.set()
        await session.until(lambda: session.finish_of("r") is not None)


async def test_impossible_assignment_fails_alone() -> None:
    """A request without a prompt, which no gateway lets through, ends with an error, and its batch mate runs."""
    bad = assignment("bad")
    bad.body.ClearField("prompt_token_ids")
    async with scheduler_stub() as stub, running_worker([stub.address]):
        session = await stub.session()
        await session.welcome()
        session.send(assign=pb.Assign(assignments=[bad, assignment("good")]))
        await session.until(lambda: all(session.finish_of(name) for name in ("bad", "good")))
        finish = session.finish_of("bad")
        assert finish is not None
        assert finish.reason == generation_pb2.FINISH_REASON_ERROR
        assert finish.error.reason == "DOES_NOT_FIT"


async def test_span_per_sequence() -> None:
    """Each sequence has a span under its own trace, linked to the batch, ended whatever happens."""
    traces = [f"{number:032x}" for number in (1, 2)]
    batch = f"00-{9:032x}-{9:016x}-01"
    async with scheduler_stub() as stub, running_worker([stub.address], settings=SLOW) as worker:
        session = await stub.session()
        await session.welcome()
        session.send(
            assign=pb.Assign(
                batch_id="b1",
                traceparent=batch,
                assignments=[
                    assignment("ends", traceparent=f"00-{traces[0]}-{1:016x}-01"),
                    assignment("lost", traceparent=f"00-{traces[1]}-{2:016x}-01", stop=ENDLESS),
                ],
            )
        )
        await session.until(lambda: session.finish_of("ends") is not None)
        session.close()
        await stub.session()
        spans = {
            span.attributes["headrace.request.id"]: span
            for span in worker.spans.get_finished_spans()
            if span.name == "headrace.generate"
        }
        phases = [s for s in worker.spans.get_finished_spans() if s.name != "headrace.generate"]
    for name, trace in zip(("ends", "lost"), traces, strict=True):
        span = spans[name]
        assert f"{span.context.trace_id:032x}" == trace
        assert [f"{link.context.trace_id:032x}" for link in span.links] == [f"{9:032x}"]
        assert span.attributes["headrace.attempt"] == 1
    assert spans["ends"].attributes["gen_ai.usage.output_tokens"] == 12
    assert spans["ends"].attributes["gen_ai.response.finish_reasons"] == ("length",)
    assert spans["lost"].attributes["headrace.outcome"] == "session over"
    below = {
        name: sorted(p.name for p in phases if p.parent.span_id == spans[name].context.span_id)
        for name in spans
    }
    assert below["ends"] == ["headrace.decode", "headrace.prefill"]
    assert "headrace.prefill" in below["lost"], "what was cut off is shown as far as it went"
