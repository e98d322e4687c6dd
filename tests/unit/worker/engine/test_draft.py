"""A draft model beside the engine: it changes nothing, keeps its own books, and what fails in it fails alone.

The simulated runner draws the same wherever its cache is right, so a draft of the same kind is always right: a guess that is
not tells of a wrong cache.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from common.domain import (
    ConstraintKind,
    FinishReason,
    OutputConstraint,
    OutputOptions,
    StopConditions,
)
from tests.support.engines import Outcomes, make_engine, make_job, run_all
from worker.engine.draft import FEW_TOKENS, DraftLimits, DraftProposer
from worker.engine.engine import Engine
from worker.engine.job import Job
from worker.engine.runner import Drawn, Row, RowFailed, RowResult
from worker.engine.speculation import Speculation
from worker.engine.step_times import StepTimes
from worker.grammar.compiler import GrammarCompiler
from worker.simulated.card import simulated_card
from worker.simulated.runner import SimulatedRunner
from worker.simulated.settings import SimulatedSettings

PROMPTS = ["a mill", "the wheel turns", "water " * 9]
QUICK = StepTimes.flat(0.01)


class Draft(SimulatedRunner):
    """Draws something else behind each of ``wrong`` tokens, and fails behind others."""

    def __init__(
        self, *, kv_blocks: int = 128, wrong: Sequence[int] = (), fail: object = None
    ) -> None:
        super().__init__(SimulatedSettings(kv_blocks=kv_blocks, block_size=4, eos_every=30))
        self._wrong = wrong
        self.fail = fail
        self.sizes: list[int] = []

    def run(self, rows: Sequence[Row]) -> list[RowResult]:
        self.sizes.append(sum(len(row.token_ids) for row in rows))
        if isinstance(self.fail, Exception) and len(self.sizes) > 3:
            raise self.fail
        return [self._spoilt(row, one) for row, one in zip(rows, super().run(rows), strict=True)]

    def _spoilt(self, row: Row, result: RowResult) -> RowResult:
        if isinstance(self.fail, RowFailed) and row.start > 20:
            return self.fail
        if isinstance(result, Drawn) and row.token_ids[-1] in self._wrong:
            return replace(result, token_id=(result.token_id + 1) % 256)
        return result


def drafting(
    runner: Draft, *, context_tokens: int = 512, vocab_tokens: int = 512, catch_up: int = 8
) -> DraftProposer:
    return DraftProposer(runner, DraftLimits(context_tokens, vocab_tokens, catch_up), QUICK)


def engine_with(proposer: DraftProposer | None, **limits: int) -> Engine:
    speculation = None if proposer is None else Speculation(proposer)
    return make_engine(speculation=speculation, eos_every=30, **{"kv_blocks": 128, **limits})


def jobs(stop: StopConditions | None = None, n: int = 1, temperature: float = 1.0) -> list[Job]:
    stop = stop or StopConditions(max_tokens=40)
    return [
        make_job(f"r{i}", prompt, stop=stop, temperature=temperature, seed=i, n=n)
        for i, prompt in enumerate(PROMPTS)
    ]


def told(outcomes: Outcomes) -> list[object]:
    return [(key, o.token_ids, o.text, o.finish) for key, o in sorted(outcomes.choices.items())]


def run_with(proposer: DraftProposer, some: list[Job], **limits: int) -> tuple[Outcomes, int, int]:
    """What came of the jobs, tokens guessed, and of these right; nothing is held at the end."""
    engine, outcomes = engine_with(proposer, **limits), Outcomes()
    guessed = right = 0
    for job in some:
        engine.submit(job)
    while engine.has_work:
        report = engine.step()
        outcomes.add(report)
        guessed += report.guessed_tokens
        right += report.accepted_tokens
        engine.check_integrity()
        proposer.check_integrity()
    assert proposer.pool.num_used == 0
    return outcomes, guessed, right


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kv_blocks", [24, 128])
@pytest.mark.parametrize("draft_blocks", [9, 20, 128])
@pytest.mark.parametrize("n", [1, 2])
def test_a_draft_of_the_same_mind_is_always_right(
    n: int, draft_blocks: int, kv_blocks: int, temperature: float
) -> None:
    """Also where sequences make room for others and come back, and where the draft's own blocks run out."""
    some = jobs(n=n, temperature=temperature)
    plain = run_all(engine_with(None, kv_blocks=kv_blocks), some)
    proposer = drafting(Draft(kv_blocks=draft_blocks))
    outcomes, guessed, right = run_with(proposer, some, kv_blocks=kv_blocks)
    assert told(outcomes) == told(plain)
    # What was guessed behind an end does not count as right.
    assert guessed - right <= 7 * len(some) * n
    assert right > 5


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kv_blocks", [24, 128])
def test_a_draft_of_another_mind_changes_nothing(kv_blocks: int, temperature: float) -> None:
    """Right guesses behind wrong ones and wrong ones behind right ones leave its cache as it should be."""
    some = jobs(temperature=temperature)
    plain = run_all(engine_with(None, kv_blocks=kv_blocks), some)
    proposer = drafting(Draft(wrong=range(0, 256, 3)))
    outcomes, guessed, right = run_with(proposer, some, kv_blocks=kv_blocks)
    assert told(outcomes) == told(plain)
    assert guessed / 4 < right < guessed


def constrained(job: Job) -> Job:
    constraint = OutputConstraint(ConstraintKind.REGEX, "[a-z]{5,9}")
    grammar = GrammarCompiler(simulated_card(SimulatedSettings())).compiled(constraint).result()
    return replace(job, constraint=constraint, grammar=grammar)


def with_logprobs(job: Job) -> Job:
    return replace(job, output=OutputOptions(logprobs=True, top_logprobs=2))


@pytest.mark.parametrize(
    "stop",
    [
        StopConditions(max_tokens=40, stop=("zz", "e t", "a")),
        StopConditions(max_tokens=40, min_tokens=25),
        StopConditions(max_tokens=1),
        StopConditions(max_tokens=40, stop_token_ids=(101, 116)),
        StopConditions(max_tokens=40, ignore_eos=True),
    ],
)
def test_ends_are_the_same(stop: StopConditions) -> None:
    """Stop strings and tokens, least and most lengths: text, tokens and reasons; and logprobs beside them."""
    some = [with_logprobs(job) for job in jobs(stop)]
    plain = run_all(engine_with(None), some)
    outcomes, _, _ = run_with(drafting(Draft()), some)
    assert told(outcomes) == told(plain)


def test_resumed_answers_are_guessed_too() -> None:
    """What an earlier dispatch generated is read like a prompt."""
    stop = StopConditions(max_tokens=60, ignore_eos=True)
    job = make_job("r", "the wheel", stop=stop, temperature=1.0)
    whole = run_all(engine_with(None), [job]).of().token_ids
    resumed = replace(job, generated={0: tuple(whole[:13])})
    outcomes, _, right = run_with(drafting(Draft()), [resumed])
    assert [*whole[:13], *outcomes.of().token_ids] == whole
    assert right > 10


def test_cancelled_and_forgotten_texts_hold_nothing() -> None:
    """In the next step, or with the session."""
    proposer = drafting(Draft())
    engine = engine_with(proposer)
    for job in jobs():
        engine.submit(job)
    for _ in range(12):
        engine.step()
    assert engine.speculation.pool is proposer.pool
    before = proposer.pool.num_used
    engine.cancel("r0", 1, FinishReason.CANCELLED)
    engine.give_back("r1", 1, "preempted")
    engine.step()
    assert 0 < proposer.pool.num_used < before
    engine.reset()
    assert proposer.pool.num_used == 0


def test_long_texts_are_read_in_parts() -> None:
    """No step of the draft model reads more than it may, and all but a few tokens before the first guess."""
    runner = Draft()
    job = make_job("r", "long " * 20, max_tokens=30)
    run_with(drafting(runner, catch_up=8), [job])
    assert max(runner.sizes) <= max(8, FEW_TOKENS)
    assert runner.sizes[:5] == [8] * 5


def test_beyond_its_context_it_does_not_guess() -> None:
    """A draft model with a shorter context is of use up to there."""
    job = make_job("r", "the wheel", max_tokens=90)
    plain = run_all(engine_with(None), [job])
    outcomes, guessed, _ = run_with(drafting(Draft(), context_tokens=32), [job])
    assert told(outcomes) == told(plain)
    assert 0 < guessed < 32


def test_tokens_that_the_model_does_not_have_are_no_guesses() -> None:
    """Padded vocabularies differ in size."""
    some = jobs()
    outcomes, guessed, _ = run_with(drafting(Draft(), vocab_tokens=110), some)
    assert told(outcomes) == told(run_all(engine_with(None), some))
    assert guessed > 0


def test_what_its_tokens_change_is_not_guessed() -> None:
    """Penalties and grammars are left alone, and their neighbours are not."""
    penalized = make_job("p", "a mill", max_tokens=12)
    penalized = replace(penalized, sampling=replace(penalized.sampling, presence_penalty=0.5))
    some = [penalized, constrained(make_job("g", max_tokens=30))]
    outcomes, guessed, _ = run_with(drafting(Draft()), some)
    assert told(outcomes) == told(run_all(engine_with(None), some))
    assert guessed == 0
    some += jobs()
    outcomes, guessed, _ = run_with(drafting(Draft()), some)
    assert told(outcomes) == told(run_all(engine_with(None), some))
    assert guessed > 0


@pytest.mark.parametrize(
    ("fail", "event"),
    [
        (RowFailed("NUMERIC", "not a number"), "draft_off"),
        (MemoryError("no memory"), "draft_model_off"),
        (RuntimeError("broken"), "draft_model_off"),
    ],
)
def test_what_fails_in_the_draft_fails_alone(fail: object, event: str) -> None:
    """Each request is answered with the same tokens, a log line tells, nothing is held, and it is asked no more."""
    some = jobs()
    plain = run_all(engine_with(None), some)
    runner = Draft(fail=fail)
    with capture_logs() as logs:
        outcomes, _, _ = run_with(drafting(runner), some)
    assert told(outcomes) == told(plain)
    assert event in {line["event"] for line in logs}
    assert len(runner.sizes) < 60


def test_short_memory_ends_guessing_for_those_who_lack_it() -> None:
    """Whoever needs most goes on without guesses; the others keep theirs."""

    class Small(Draft):
        def run(self, rows: Sequence[Row]) -> list[RowResult]:
            if any(row.start > 50 for row in rows):
                raise MemoryError
            return super().run(rows)

    some = jobs(StopConditions(max_tokens=30, ignore_eos=True))
    with capture_logs() as logs:
        outcomes, _, right = run_with(drafting(Small()), some)
    assert told(outcomes) == told(run_all(engine_with(None), some))
    assert [line["request_id"] for line in logs if line["event"] == "draft_off"] == ["r2"]
    assert right > 30
