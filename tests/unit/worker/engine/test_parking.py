"""When blocks run out: the youngest make room and go on later, with the tokens they would have had."""

import random

import pytest

from common.domain import FinishReason
from common.prefix_keys import root_key
from tests.support.engines import Outcomes, make_engine, make_job, run_all, run_alone
from tests.support.fake_clock import FakeClock
from worker.engine.costs import StepCosts
from worker.engine.engine import Engine
from worker.engine.job import Job
from worker.engine.parking import AHEAD_TOKENS

COPY = StepCosts(token_s=1.0, block_copy_s=0.0)
COMPUTE = StepCosts(token_s=1.0, block_copy_s=float("inf"))
ROOT = root_key(tenant="t")
WAYS = [
    pytest.param(COPY, 1000, None, id="copy"),
    pytest.param(COPY, 30, None, id="copy some"),
    pytest.param(COMPUTE, 1000, None, id="compute"),
    pytest.param(COMPUTE, 0, ROOT, id="find again"),
]


def mixed_jobs(randomness: random.Random, root: bytes | None) -> list[Job]:
    return [
        make_job(
            f"r{number}",
            "p" * randomness.randint(1, 20),
            max_tokens=80 if number % 3 else 40,
            n=1 if number % 3 else 2,
            temperature=1.0,
            seed=number,
            prefix_root=root,
        )
        for number in range(9)
    ]


@pytest.mark.parametrize(("costs", "swap_blocks", "root"), WAYS)
@pytest.mark.parametrize("seed", range(3))
def test_pressure_alters_nothing(
    costs: StepCosts, swap_blocks: int, root: bytes | None, seed: int
) -> None:
    """With too few blocks for all, by either way and by both: every choice ends with its undisturbed tokens and text."""
    randomness = random.Random(seed)
    jobs = mixed_jobs(randomness, root)
    engine = make_engine(kv_blocks=64, block_size=2, costs=costs, swap_blocks=swap_blocks)
    outcomes, counts = Outcomes(), {"preempted": 0, "swapped": 0, "recomputed": 0}
    for job in jobs:
        engine.submit(job)
    while engine.has_work:
        report = engine.step()
        outcomes.add(report)
        engine.check_integrity()
        counts["preempted"] += report.num_preempted
        counts["swapped"] += report.swapped_blocks
        counts["recomputed"] += report.recomputed_tokens
    assert not outcomes.returned
    assert counts["preempted"] > 0
    assert (counts["swapped"] > 0) == (costs is COPY)
    if costs is COMPUTE:
        assert counts["recomputed"] > 0
    elif swap_blocks == 1000:
        assert counts["recomputed"] == 0
    assert engine.pool.num_used == 0
    for job in jobs:
        alone = run_all(make_engine(kv_blocks=256), [job])
        for index in job.choices:
            name = job.ticket.request_id
            assert outcomes.of(name, index).token_ids == alone.of(name, index).token_ids
            assert outcomes.of(name, index).full_text == alone.of(name, index).full_text
            assert (
                outcomes.of(name, index).num_prompts_told == alone.of(name, index).num_prompts_told
            )


@pytest.mark.parametrize("costs", [COPY, COMPUTE])
def test_a_pool_for_little_more_than_one_makes_progress(costs: StepCosts) -> None:
    """On 1.2 times one request's blocks the oldest advances in every step, and pre-emptions stay few."""
    engine = make_engine(kv_blocks=30, block_size=4, costs=costs, swap_blocks=100)  # each needs 25
    outcomes, num_preempted, num_steps = Outcomes(), 0, 0
    names = [f"r{number}" for number in range(6)]
    for name in names:
        engine.submit(make_job(name, name * 10, max_tokens=80))
    while engine.has_work:
        oldest = next(
            n for n in names if (n, 0) not in outcomes.choices or not outcomes.of(n).finish
        )
        before = len(outcomes.of(oldest).token_ids) if (oldest, 0) in outcomes.choices else 0
        report = engine.step()
        outcomes.add(report)
        engine.check_integrity()
        num_preempted, num_steps = num_preempted + report.num_preempted, num_steps + 1
        if before and costs is COPY:
            assert len(outcomes.of(oldest).token_ids) == before + 1, oldest
    assert num_steps < len(names) * (80 + 20)
    # A group that goes on runs for a while, so none is interrupted more often than this.
    assert num_preempted <= len(names) * (80 // AHEAD_TOKENS + 1)
    for name in names:
        assert (
            outcomes.of(name).token_ids
            == run_alone(make_job(name, name * 10, max_tokens=80)).token_ids
        )


def pressed(costs: StepCosts, clock: FakeClock, **limits: float) -> tuple[Engine, Outcomes]:
    """Two requests, the younger of which has just made room."""
    engine, outcomes = (
        make_engine(
            kv_blocks=30, block_size=4, clock=clock, costs=costs, swap_blocks=100, **limits
        ),
        Outcomes(),
    )
    for name in ("old", "young"):
        engine.submit(make_job(name, "x" * 8, max_tokens=90))
    while not (report := engine.step()).num_preempted:
        outcomes.add(report)
    outcomes.add(report)
    assert (engine.num_running, engine.num_waiting) == (1, 1)
    return engine, outcomes


@pytest.mark.parametrize("costs", [COPY, COMPUTE])
def test_who_waits_too_long_is_given_back(costs: StepCosts) -> None:
    """Another worker may have room; what was kept of it is gone with it."""
    clock = FakeClock()
    engine, outcomes = pressed(costs, clock, park_s=5.0)
    clock.advance(4.9)
    outcomes.add(engine.step())
    assert not outcomes.returned
    clock.advance(0.2)
    outcomes.add(engine.step())
    assert outcomes.returned == [("young", "preempted")]
    run_all(engine, (), outcomes)
    assert outcomes.of("old").finish.reason is FinishReason.LENGTH


@pytest.mark.parametrize("costs", [COPY, COMPUTE])
@pytest.mark.parametrize("reason", [FinishReason.CANCELLED, FinishReason.DEADLINE])
def test_who_waits_can_be_ended(costs: StepCosts, reason: FinishReason) -> None:
    """A parked request ends like any other, with the text it had."""
    engine, outcomes = pressed(costs, FakeClock())
    engine.cancel("young", 1, reason)
    outcomes.add(engine.step())
    young = outcomes.of("young")
    assert young.finish.reason is reason
    alone = run_alone(make_job("young", "x" * 8, max_tokens=90))
    assert young.token_ids == alone.token_ids[: len(young.token_ids)]
    run_all(engine, (), outcomes)
