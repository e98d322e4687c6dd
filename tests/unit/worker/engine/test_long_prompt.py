"""A prompt as long as the context beside others, in steps and in the time that they take (B36)."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from common.prefix_keys import root_key
from tests.support.engines import Outcomes, make_engine, make_job, run_all
from tests.support.fake_clock import FakeClock
from worker.engine.costs import MAX_WAIT_S
from worker.engine.engine import Engine
from worker.engine.job import Job
from worker.engine.report import StepReport
from worker.engine.roster import EXPECTED_S
from worker.simulated.runner import SimulatedRunner
from worker.simulated.settings import SimulatedSettings

STEP_S, TOKEN_S = 0.008, 1 / 2000
LONG = make_job("long", prompt="x" * 4000, max_tokens=3)
STREAM = make_job("stream", prompt="hello", max_tokens=4000)


def timed_engine() -> tuple[Engine, FakeClock]:
    """Its steps take 8 ms, and half a millisecond for each token of a prompt."""
    clock = FakeClock()
    speed = SimulatedSettings(
        kv_blocks=600, block_size=16, step_ms=1000 * STEP_S, prefill_tokens_per_s=1 / TOKEN_S
    )
    runner = SimulatedRunner(speed, sleep=clock.advance)
    engine = make_engine(
        clock=clock,
        runner=runner,
        max_batch_tokens=512,
        max_share_tokens=128,
        context_tokens=8192,
        costs=runner.costs,
    )
    return engine, clock


def steps_until_told(engine: Engine, name: str) -> list[StepReport]:
    """The steps to the first token of a request."""
    reports = []
    while True:
        reports.append(engine.step())
        if any(o.ticket.request_id == name and o.token_ids for o in reports[-1].outputs):
            return reports


def test_a_stream_waits_twice_as_long_for_a_token_at_most():
    """While the prompt is computed, all of which takes no more than twice its own time."""
    engine, clock = timed_engine()
    engine.submit(STREAM)
    steps_until_told(engine, "stream")
    began_s = clock()
    engine.submit(LONG)
    steps = steps_until_told(engine, "long")
    assert max(step.duration_s for step in steps) <= 2 * STEP_S
    assert all(step.decode_seqs == 1 and step.prefill_tokens for step in steps)
    assert clock() - began_s <= 2 * len(LONG.prompt_token_ids) * TOKEN_S + STEP_S


def test_alone_it_has_as_much_of_a_step_as_prompts_may_have():
    """Nobody is there and nobody is expected: also where others were there before, one after another."""
    engine, _ = timed_engine()
    run_all(engine, [make_job("before", max_tokens=2)])
    engine.submit(LONG)
    *steps, _ = steps_until_told(engine, "long")
    assert {step.prefill_tokens for step in steps} == {round(MAX_WAIT_S / TOKEN_S)}


@pytest.mark.parametrize(("later_s", "waits_s"), [(0.0, STEP_S), (EXPECTED_S + 0.1, MAX_WAIT_S)])
def test_who_comes_finds_a_short_step_under_way_where_others_came_lately(
    later_s: float, waits_s: float
) -> None:
    """So a first token comes soon although the long prompt was alone; after a while without anybody it takes more again."""
    engine, clock = timed_engine()
    engine.submit(LONG)
    engine.step()
    engine.submit(make_job("first", max_tokens=2))
    while engine.num_running > 1 or engine.num_waiting:
        engine.step()
    clock.advance(later_s)
    under_way = engine.step()
    assert under_way.duration_s == pytest.approx(STEP_S + waits_s)
    engine.submit(make_job("second", max_tokens=2))
    (step,) = steps_until_told(engine, "second")
    prompt_s = len(make_job().prompt_token_ids) * TOKEN_S
    assert step.duration_s <= 2 * STEP_S + prompt_s + 1e-9


def test_a_long_text_whose_beginning_is_known_is_no_long_prompt():
    """What is left to compute counts: beside a stream it is done in as many tokens a step as any prompt."""
    engine, _ = timed_engine()
    root = root_key(tenant="t")
    run_all(engine, [replace(LONG, prefix_root=root)])
    engine.submit(STREAM)
    steps_until_told(engine, "stream")
    more = make_job("more", prompt="x" * 4000 + "y" * 60, max_tokens=2, prefix_root=root)
    engine.submit(more)
    (step,) = steps_until_told(engine, "more")
    assert 60 <= step.prefill_tokens <= 60 + 16


def outcomes_beside(engine: Engine, jobs: Sequence[Job]) -> Outcomes:
    """Each joins two steps after the one before."""
    outcomes = Outcomes()
    for job in jobs:
        engine.submit(job)
        for _ in range(2):
            outcomes.add(engine.step())
    return run_all(engine, outcomes=outcomes)


def test_how_much_of_it_a_step_takes_changes_no_token():
    """Its answer and those beside it are what each is alone."""
    chats = [make_job(f"chat {i}", prompt=f"chat {i} " * (i + 1), max_tokens=9) for i in range(6)]
    jobs = [chats[0], LONG, *chats[1:]]
    beside = outcomes_beside(timed_engine()[0], jobs)
    for job in jobs:
        name = job.ticket.request_id
        assert beside.of(name) == run_all(timed_engine()[0], [job]).of(name)
