"""Jobs that wait for their grammars: nothing that is ordered meanwhile is lost, and whatever fails has a name."""

import asyncio
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from common.domain import ConstraintKind, FinishReason, OutputConstraint
from common.grammars import BadGrammar
from tests.support.engines import make_job
from worker.engine.constraint import Constraint, Grammar
from worker.engine.job import Job, Ticket
from worker.session.grammar_gate import GrammarGate

if TYPE_CHECKING:
    from worker.session.engine_thread import EngineThread

WANTED = OutputConstraint(ConstraintKind.REGEX, "a+")


class Orders:
    """What reaches the engine, in order."""

    def __init__(self) -> None:
        self.given: list[tuple[Any, ...]] = []

    def submit(self, job: Job) -> None:
        self.given.append(("submit", job))

    def refuse(self, ticket: Ticket, reason: str) -> None:
        self.given.append(("refuse", ticket, reason))

    def cancel(self, request_id: str, attempt: int, reason: FinishReason) -> None:
        self.given.append(("cancel", request_id, attempt, reason))

    def give_back(self, request_id: str, attempt: int, reason: str) -> None:
        self.given.append(("give back", request_id, attempt, reason))

    def give_back_all(self, reason: str) -> None:
        self.given.append(("give back all", reason))


class Compiled:
    """A grammar whose compiling the test ends."""

    def __init__(self) -> None:
        self.future: Future[Grammar] = Future()

    def compiled(self, constraint: OutputConstraint) -> "Future[Grammar]":
        assert constraint == WANTED
        return self.future

    def start(self) -> Constraint:
        raise AssertionError


class Bench:
    """A gate, and what is around it."""

    def __init__(self, compiler: Compiled | None) -> None:
        self.orders = Orders()
        self.gate = GrammarGate(cast("EngineThread", self.orders), compiler)
        self.tasks: list[asyncio.Task[None]] = []

    def submit(self, job: Job) -> None:
        self.gate.submit(job, lambda work: self.tasks.append(asyncio.ensure_future(work)))

    async def settled(self) -> list[tuple[Any, ...]]:
        await asyncio.gather(*self.tasks)
        return self.orders.given


JOB = replace(make_job("r", attempt=2), constraint=WANTED)


async def test_a_job_goes_on_with_its_grammar() -> None:
    """And one without waits for nobody."""
    compiler = Compiled()
    bench = Bench(compiler)
    bench.submit(JOB)
    bench.submit(make_job("free"))
    assert bench.orders.given == [("submit", make_job("free"))]
    compiler.future.set_result(compiler)
    assert (await bench.settled())[1:] == [("submit", replace(JOB, grammar=compiler))]


@pytest.mark.parametrize("is_missing", [True, False])
async def test_a_bad_grammar_ends_its_job(is_missing: bool) -> None:
    """So does a worker without the library: INTERNAL, and why."""
    compiler = Compiled()
    bench = Bench(None if is_missing else compiler)
    bench.submit(JOB)
    compiler.future.set_exception(BadGrammar("unclosed group"))
    ((order, job),) = await bench.settled()
    assert order == "submit"
    assert (job.failure.code, job.failure.reason) == ("INTERNAL", "BAD_CONSTRAINT")
    assert is_missing or "unclosed group" in job.failure.message


async def test_what_is_ordered_meanwhile_holds() -> None:
    """Cancelled, its end is told; given back, it is returned; neither runs when its grammar comes."""
    compiler = Compiled()
    bench = Bench(compiler)
    for name in ("cancelled", "returned", "drained", "stays"):
        bench.submit(replace(JOB, ticket=Ticket(name, 1, 2)))
    bench.gate.cancel("cancelled", 2, FinishReason.DEADLINE)
    bench.gate.cancel("stays", 1, FinishReason.CANCELLED)
    bench.gate.give_back("returned", 2, "preempted")
    kinds = [order[0] for order in bench.orders.given]
    assert kinds == ["submit", "cancel", "cancel", "refuse"]
    assert bench.orders.given[1] == ("cancel", "cancelled", 2, FinishReason.DEADLINE)
    bench.gate.give_back("drained", 2, "drained")
    compiler.future.set_result(compiler)
    *_, last = await bench.settled()
    assert (last[0], last[1].ticket.request_id) == ("submit", "stays")
    assert len(bench.orders.given) == 6


async def test_everything_goes_back_at_once() -> None:
    """What waits and what runs."""
    compiler = Compiled()
    bench = Bench(compiler)
    bench.submit(JOB)
    bench.gate.give_back_all("drained")
    assert bench.orders.given == [("refuse", JOB.ticket, "drained"), ("give back all", "drained")]
    compiler.future.set_result(compiler)
    assert len(await bench.settled()) == 2


async def test_a_later_attempt_replaces_an_earlier_one() -> None:
    """Only the last one goes on."""
    compiler = Compiled()
    bench = Bench(compiler)
    bench.submit(JOB)
    later = replace(JOB, ticket=Ticket("r", 1, 3))
    bench.submit(later)
    compiler.future.set_result(compiler)
    assert await bench.settled() == [("submit", replace(later, grammar=compiler))]
