"""The engine over the simulated runner, whose tokens depend on every block that a sequence should hold."""

import random

import pytest

from common.domain import FinishReason, StopConditions
from tests.support.engines import Outcomes, make_engine, make_job, run_all, run_alone
from tests.support.fake_clock import FakeClock
from worker.engine.job import Job
from worker.engine.roster import MAX_OVERTAKES

PROMPTS = ["a", "mill", "the wheel turns", "x" * 37, "water " * 15, "日本語 ☕"]


def jobs(**changes: int) -> list[Job]:
    return [
        make_job(f"r{i}", prompt, max_tokens=10 + 3 * i, temperature=i % 2, seed=i, **changes)
        for i, prompt in enumerate(PROMPTS)
    ]


@pytest.mark.parametrize("seed", range(8))
def test_interleaving_changes_no_tokens(seed: int) -> None:
    """Whenever requests join, and whoever is cancelled beside them, each gets the tokens it gets alone."""
    randomness = random.Random(seed)
    engine, outcomes = make_engine(kv_blocks=128), Outcomes()
    waiting = jobs()
    randomness.shuffle(waiting)
    while waiting or engine.has_work:
        if waiting and randomness.random() < 0.3:
            engine.submit(waiting.pop())
            engine.submit(make_job("victim", "v" * randomness.randint(1, 30), max_tokens=50))
        if randomness.random() < 0.2:
            engine.cancel("victim", 1, FinishReason.CANCELLED)
        outcomes.choices.pop(("victim", 0), None)
        outcomes.add(engine.step())
        engine.check_integrity()
    for job in jobs():
        assert outcomes.of(job.ticket.request_id).token_ids == run_alone(job).token_ids


@pytest.mark.parametrize("max_batch_tokens", [8, 9, 13, 16, 64, 512])
def test_chunked_prefill_equals_whole_prefill(max_batch_tokens: int) -> None:
    """The budget of a step decides when tokens are computed, not which."""
    outcomes = run_all(make_engine(max_batch_tokens=max_batch_tokens, kv_blocks=128), jobs())
    for job in jobs():
        whole = run_alone(job, max_batch_tokens=512, max_share_tokens=512)
        assert outcomes.of(job.ticket.request_id).token_ids == whole.token_ids


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_resume_anywhere_equals_an_undisturbed_run(temperature: float) -> None:
    """Whatever number of tokens was logged, the rest of tokens and text follows as if nothing had happened."""
    stop = StopConditions(max_tokens=40, stop=("zzz",))
    whole = run_alone(make_job(stop=stop, temperature=temperature))
    assert len(whole.token_ids) == 40
    engine, outcomes = make_engine(), Outcomes()
    engine.submit(make_job(stop=stop, temperature=temperature))
    while engine.has_work:
        outcomes.add(engine.step())
        before = outcomes.of() if ("r", 0) in outcomes.choices else None
        if before is None or before.finish is not None:
            continue
        job = make_job(
            stop=stop, temperature=temperature, attempt=2, generated={0: tuple(before.token_ids)}
        )
        rest = run_alone(job)
        assert before.token_ids + rest.token_ids == whole.token_ids
        assert before.text + rest.full_text == whole.full_text


def test_resume_behind_the_end_only_tells_it() -> None:
    """When all tokens were logged but not the finish, the finish comes without another token."""
    whole = run_alone(make_job(max_tokens=5))
    rest = run_alone(make_job(max_tokens=5, generated={0: tuple(whole.token_ids)}))
    assert (rest.token_ids, rest.finish) == ([], whole.finish)


def test_cancel_frees_everything_at_once() -> None:
    """A cancelled request tells its end with the next step and holds nothing behind it."""
    engine, outcomes = make_engine(max_seqs=1), Outcomes()
    engine.submit(make_job("a", "x" * 40, max_tokens=200))
    engine.submit(make_job("b"))
    for _ in range(6):
        outcomes.add(engine.step())
    assert engine.pool.num_used > 0
    engine.cancel("a", 1, FinishReason.CANCELLED)
    engine.cancel("a", 1, FinishReason.DEADLINE)
    engine.cancel("b", 1, FinishReason.CANCELLED)
    engine.cancel("b", 7, FinishReason.CANCELLED)
    engine.cancel("unknown", 1, FinishReason.CANCELLED)
    outcomes.add(engine.step())
    assert engine.pool.num_used == 0
    assert not engine.has_work
    assert {o.finish.reason for o in outcomes.choices.values() if o.finish} == {
        FinishReason.CANCELLED
    }
    assert outcomes.of("a").num_prompts_told == 1
    assert outcomes.of("b").num_prompts_told == 0


def test_cancel_of_another_attempt_does_nothing() -> None:
    """Late messages about an old dispatch do not touch the new one."""
    engine = make_engine()
    engine.submit(make_job(attempt=2))
    engine.cancel("r", 1, FinishReason.CANCELLED)
    engine.give_back("r", 1, "preempted")
    assert run_all(engine).of().finish.reason is FinishReason.LENGTH


def test_deadline_ends_waiting_and_running_requests() -> None:
    """A deadline is noticed in the step behind it, with the text so far, wherever the request is."""
    clock = FakeClock()
    engine, outcomes = make_engine(clock=clock, max_seqs=1), Outcomes()
    engine.submit(make_job("runs", max_tokens=200, deadline_s=clock() + 5))
    engine.submit(make_job("waits", max_tokens=200, deadline_s=clock() + 5))
    for _ in range(4):
        outcomes.add(engine.step())
    num_tokens = len(outcomes.of("runs").token_ids)
    assert num_tokens > 0
    clock.advance(5)
    outcomes.add(engine.step())
    for name in ("runs", "waits"):
        assert outcomes.of(name).finish.reason is FinishReason.DEADLINE
    assert len(outcomes.of("runs").token_ids) == num_tokens
    assert engine.pool.num_used == 0


def test_request_that_can_never_fit_fails_alone() -> None:
    """It ends with INTERNAL at once and stands in nobody's way."""
    engine = make_engine(kv_blocks=4, block_size=4)
    outcomes = run_all(engine, [make_job("big", "x" * 10, max_tokens=10), make_job("small", "x")])
    failed = outcomes.of("big").finish
    assert (failed.reason, failed.failure.reason) == (FinishReason.ERROR, "DOES_NOT_FIT")
    assert outcomes.of("small").finish.reason is FinishReason.LENGTH


def test_context_limit_ends_with_length() -> None:
    """Nothing is computed beyond the model's context."""
    outcome = run_alone(make_job("r", "x" * 30, max_tokens=30), context_tokens=40)
    assert len(outcome.token_ids) == 10
    assert outcome.finish.reason is FinishReason.LENGTH


def test_choices_share_a_ticket_and_differ() -> None:
    """With n = 3 each choice ends on its own with other tokens, and the prompt is told once."""
    job = make_job(n=3, temperature=1.0)
    outcomes = run_all(make_engine(), [job])
    choices = [outcomes.of(index=index) for index in range(3)]
    assert len({tuple(choice.token_ids) for choice in choices}) == 3
    assert sum(choice.num_prompts_told for choice in choices) == 1
    assert [run_all(make_engine(), [job]).of(index=i).token_ids for i in range(3)] == [
        choice.token_ids for choice in choices
    ]


def test_give_back_all_returns_what_lives() -> None:
    """Draining returns running and waiting requests, frees the blocks and tells no finish."""
    engine, outcomes = make_engine(max_seqs=1), Outcomes()
    engine.submit(make_job("a", max_tokens=100))
    engine.submit(make_job("b"))
    outcomes.add(engine.step())
    engine.give_back_all("drained")
    outcomes.add(engine.step())
    assert sorted(outcomes.returned) == [("a", "drained"), ("b", "drained")]
    assert not engine.has_work
    assert engine.pool.num_used == 0


def test_credit_counts_what_was_promised() -> None:
    """Slots and blocks of waiting requests are taken off although they are not allocated yet."""
    engine = make_engine(kv_blocks=64, block_size=4, max_seqs=8)
    engine.submit(make_job("a", "x" * 9))
    credit = engine.credit
    assert (credit.free_seqs, credit.free_blocks, credit.pending_prefill_tokens) == (7, 61, 8)


def test_a_newer_dispatch_replaces_an_older_one() -> None:
    """The same request assigned again leaves no trace of the earlier dispatch."""
    engine = make_engine()
    engine.submit(make_job(max_tokens=50))
    engine.step()
    engine.submit(make_job(max_tokens=3, attempt=2))
    outcomes = run_all(engine)
    assert len(outcomes.of().token_ids) == 3


def test_head_that_does_not_fit_is_overtaken_boundedly() -> None:
    """Small requests go past a large one that waits for room, but so often and no more."""
    engine, outcomes = make_engine(kv_blocks=20, block_size=4, max_seqs=2), Outcomes()
    engine.submit(make_job("runs", "x" * 30, max_tokens=40))
    outcomes.add(engine.step())
    engine.submit(make_job("large", "x" * 60, max_tokens=4))
    for number in range(3 * MAX_OVERTAKES):
        engine.submit(make_job(f"small{number}", "x", max_tokens=1))
    while ("runs", 0) not in outcomes.choices or outcomes.of("runs").finish is None:
        outcomes.add(engine.step())
        engine.check_integrity()
    overtakers = [name for name, _ in outcomes.choices if name.startswith("small")]
    assert len(overtakers) == MAX_OVERTAKES
    run_all(engine, (), outcomes)
    assert len(outcomes.choices) == 2 + 3 * MAX_OVERTAKES
