"""Speculation over the simulated runner, with guessers that know what comes, more or less."""

import itertools
import random
from collections.abc import Sequence

import pytest

from common.domain import StopConditions
from tests.support.engines import Outcomes, make_engine, make_job, run_all, run_alone
from worker.engine.job import Job
from worker.engine.report import StepReport
from worker.engine.speculation import MAX_GUESSES, MAX_TOKENS, Speculation

PROMPTS = ["a mill", "the wheel turns", "water " * 9]
STOP = StopConditions(max_tokens=40, stop=("zz", "e t"))


def jobs(temperature: float, stop: StopConditions = STOP, n: int = 1) -> list[Job]:
    return [
        make_job(f"r{i}", prompt, stop=stop, temperature=temperature, seed=i, n=n)
        for i, prompt in enumerate(PROMPTS)
    ]


class Knowing:
    """Knows the texts as they come without speculation; guesses wrong now and then."""

    def __init__(self, texts: Sequence[Sequence[int]], share_right: float) -> None:
        self._texts = [list(text) for text in texts]
        self._share_right = share_right
        self._randomness = random.Random(3)

    def propose(self, token_ids: Sequence[int], count: int) -> list[int]:
        known = list(token_ids)
        text = next(text for text in self._texts if text[: len(known)] == known)
        guesses = text[len(known) : len(known) + count]
        return [
            guess if self._randomness.random() < self._share_right else (guess + 1) % 256
            for guess in guesses
        ]


def knowing(of: list[Job], share_right: float) -> Speculation:
    texts = []
    for job in of:
        outcomes = run_all(make_engine(kv_blocks=128), [job])
        texts += [[*job.prompt_token_ids, *o.token_ids] for o in outcomes.choices.values()]
    return Speculation(lambda: Knowing(texts, share_right))


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
    speculation = Speculation(lambda: Knowing([[*text, *range(9)] for text in texts], share_right))
    engine = make_engine(kv_blocks=kv_blocks, eos_every=30, speculation=speculation)
    assert told(run_all(engine, some)) == told(plain)


def test_choices_with_scores_and_least_lengths() -> None:
    """Several choices of one prompt, and ends that are forbidden for a while."""
    stop = StopConditions(max_tokens=30, min_tokens=12)
    some = jobs(1.0, stop, n=2)[:2]
    plain = run_all(make_engine(kv_blocks=128, eos_every=5), some)
    engine = make_engine(kv_blocks=128, eos_every=5, speculation=Speculation())
    assert told(run_all(engine, some)) == told(plain)


def steps_of(job: Job, speculation: Speculation | None, **limits: int) -> list[StepReport]:
    engine, reports = make_engine(speculation=speculation, **limits), []
    engine.submit(job)
    while engine.has_work:
        reports.append(engine.step())
    return reports


def test_right_guesses_save_steps() -> None:
    """A step brings the guesses and one token more; what was guessed and right is told."""
    job = make_job(max_tokens=31)
    plain = steps_of(job, None)
    reports = steps_of(job, knowing([job], 1.0))
    assert len(reports) < len(plain) / (MAX_GUESSES - 1)
    guessed = sum(report.guessed_tokens for report in reports)
    assert guessed == sum(report.accepted_tokens for report in reports) > 20


def test_wrong_guesses_make_longer_and_longer_pauses() -> None:
    """Where nothing is right, few steps are filled up."""
    job = make_job(max_tokens=60)
    reports = steps_of(job, knowing([job], 0.0))
    filled = [i for i, report in enumerate(reports) if report.guessed_tokens]
    pauses = [later - earlier for earlier, later in itertools.pairwise(filled)]
    assert len(filled) > 2
    assert pauses == sorted(pauses)
    assert sum(report.accepted_tokens for report in reports) == 0


def test_many_decodes_and_prompts_leave_no_room() -> None:
    """Steps in which tokens cost what they compute are not filled up."""
    several = [make_job(f"r{i}", "mill", max_tokens=9) for i in range(MAX_TOKENS // 2 + 1)]
    engine = make_engine(kv_blocks=128, speculation=knowing(several, 1.0))
    for job in several:
        engine.submit(job)
    while engine.has_work:
        report = engine.step()
        tokens = report.decode_seqs + report.guessed_tokens
        assert tokens <= MAX_TOKENS
        assert not (report.prefill_tokens and report.guessed_tokens)
        assert not (report.decode_seqs == len(several) and report.guessed_tokens)


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
