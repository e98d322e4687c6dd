"""Speculation over the simulated runner, with guessers that know what comes, more or less."""

import pytest

from common.domain import StopConditions
from tests.support.engines import Outcomes, make_engine, make_job, run_all, run_alone
from tests.support.knowing import Knowing
from worker.engine.job import Job
from worker.engine.lookup import LookupProposer
from worker.engine.report import StepReport
from worker.engine.speculation import MAX_GUESSES, Speculation
from worker.engine.step_times import StepTimes

PROMPTS = ["a mill", "the wheel turns", "water " * 9]
STOP = StopConditions(max_tokens=40, stop=("zz", "e t"))


def jobs(temperature: float, stop: StopConditions = STOP, n: int = 1) -> list[Job]:
    return [
        make_job(f"r{i}", prompt, stop=stop, temperature=temperature, seed=i, n=n)
        for i, prompt in enumerate(PROMPTS)
    ]


ROOM_FOR_FOUR = StepTimes(((1, ((0, 1.0), (3, 1.0), (4, 2.0))), (4, ((0, 1.0), (0.25, 5.0)))))
"""One decode and three guesses take no longer than a decode; guesses beside four decodes take long."""


def knowing(of: list[Job], share_right: float, times: StepTimes | None = None) -> Speculation:
    texts = []
    for job in of:
        outcomes = run_all(make_engine(kv_blocks=128), [job])
        texts += [[*job.prompt_token_ids, *o.token_ids] for o in outcomes.choices.values()]
    return Speculation(Knowing(texts, share_right), times)


def told(outcomes: Outcomes) -> list[object]:
    return [(key, o.token_ids, o.text, o.finish) for key, o in sorted(outcomes.choices.items())]


@pytest.mark.parametrize("share_right", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kv_blocks", [24, 128])
def test_speculation_changes_nothing(
    temperature: float, share_right: float, kv_blocks: int
) -> None:
    """Tokens, text, ends and books are the same, with right and wrong guesses, and where blocks run out."""
    some = jobs(temperature)
    plain = run_all(make_engine(kv_blocks=kv_blocks, eos_every=30), some)
    texts = [[*job.prompt_token_ids, *plain.of(job.ticket.request_id).token_ids] for job in some]
    speculation = Speculation(Knowing([[*text, *range(9)] for text in texts], share_right))
    engine = make_engine(kv_blocks=kv_blocks, eos_every=30, speculation=speculation)
    assert told(run_all(engine, some)) == told(plain)


def test_choices_with_scores_and_least_lengths() -> None:
    """Several choices of one prompt, and ends that are forbidden for a while."""
    stop = StopConditions(max_tokens=30, min_tokens=12)
    some = jobs(1.0, stop, n=2)[:2]
    plain = run_all(make_engine(kv_blocks=128, eos_every=5), some)
    engine = make_engine(kv_blocks=128, eos_every=5, speculation=Speculation(LookupProposer()))
    assert told(run_all(engine, some)) == told(plain)


def steps_of(job: Job, speculation: Speculation | None, **limits: int) -> list[StepReport]:
    engine, reports = make_engine(speculation=speculation, **limits), []
    engine.submit(job)
    while engine.has_work:
        reports.append(engine.step())
    return reports


def test_right_guesses_save_steps() -> None:
    """A step brings the guesses and one token more; what was guessed and right is told."""
    job = make_job(max_tokens=41)
    plain = steps_of(job, None)
    reports = steps_of(job, knowing([job], 1.0))
    assert len(reports) < len(plain) / (MAX_GUESSES - 1)
    guessed = sum(report.guessed_tokens for report in reports)
    assert guessed == sum(report.accepted_tokens for report in reports) > 30


def test_no_more_is_guessed_than_pays() -> None:
    """As many guesses as the step takes without becoming longer; none where they are longer than what they bring."""
    few = [make_job(max_tokens=60)]
    reports = steps_of(few[0], knowing(few, 1.0, ROOM_FOR_FOUR))
    guessed = [report.guessed_tokens for report in reports if report.decode_seqs]
    assert set(guessed[:-1]) == {3}  # the last step has only so much left to guess
    several = [make_job(f"r{i}", "mill", max_tokens=20) for i in range(4)]
    engine = make_engine(kv_blocks=128, speculation=knowing(several, 1.0, ROOM_FOR_FOUR))
    for job in several:
        engine.submit(job)
    while engine.has_work:
        report = engine.step()
        assert not (report.guessed_tokens and report.decode_seqs == len(several))
        assert not (report.guessed_tokens and report.prefill_tokens)


def test_wrong_guesses_become_rare_and_are_tried_again() -> None:
    """Where nothing is right, few steps are filled up where that takes time, and some are."""
    job = make_job(max_tokens=400)
    slow = StepTimes(((1, ((0, 1.0), (7, 4.0))),))
    reports = steps_of(job, knowing([job], 0.0, slow), kv_blocks=128)
    filled = [i for i, report in enumerate(reports) if report.guessed_tokens]
    assert sum(report.accepted_tokens for report in reports) == 0
    assert filled[-1] > len(reports) / 2
    assert len(filled) < len(reports) / 10


def test_what_its_tokens_change_is_not_guessed() -> None:
    """Draws that depend on the tokens before them wait for those."""
    job = make_job("p", "a mill", max_tokens=12)
    penalized = Job(
        job.ticket,
        job.prompt_token_ids,
        type(job.sampling)(seed=1, temperature=0.0, presence_penalty=0.5),
        job.stop,
    )
    assert run_alone(penalized).finish is not None
    reports = steps_of(penalized, knowing([penalized], 1.0))
    assert sum(report.guessed_tokens for report in reports) == 0
