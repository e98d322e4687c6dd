"""Models that look back only so far: blocks out of sight are free, and the tokens are those of the model itself."""

from dataclasses import dataclass, replace

import pytest
import torch

from common.domain import FinishReason, Quantization, SamplingParams, StopConditions
from common.kv_need import rolling_blocks
from tests.support.engines import TEXTS
from tests.support.fake_clock import FakeClock
from tests.support.tiny_models import VOCAB_SIZE, greedy_answer, make_tiny_model
from worker.engine.block_store import PagedRunner
from worker.engine.costs import StepCosts
from worker.engine.draft import DraftLimits, DraftProposer
from worker.engine.engine import Engine
from worker.engine.job import Job, Ticket
from worker.engine.limits import EngineLimits
from worker.engine.lookup import LookupProposer
from worker.engine.model_settings import ModelSettings, RunnerKind
from worker.engine.speculation import Proposer, Speculation
from worker.engine.step_times import StepTimes
from worker.kernels.library import KernelsMissing, instruction_sets
from worker.model.load import LoadedModel, load_model

WINDOW, BLOCK, MOST, LONG_ANSWER = 24, 16, 150, 90
NUM_BLOCKS = 14
"""A request alone may come to hold 13 at a time; four that see everything would need 48."""
SEEN_BLOCKS = WINDOW // BLOCK + 2
PROMPTS = (10, 24, 30, 45)
LIMITS = EngineLimits(8, 64, 32, 400, frozenset(), window_tokens=WINDOW)

pytestmark = pytest.mark.timeout(600)


def loaded(kind: RunnerKind, folder) -> LoadedModel:
    is_lean = kind is RunnerKind.LEAN
    settings = ModelSettings(
        model=str(make_tiny_model("mistral", folder)),
        quantization=Quantization.INT8 if is_lean else Quantization.NONE,
        dtype=None if is_lean else "float32",
        runner=kind,
        kv_blocks=NUM_BLOCKS,
        block_size=BLOCK,
    )
    return load_model(settings, lambda _: None)


def job(number: int) -> Job:
    generator = torch.Generator().manual_seed(number)
    prompt = torch.randint(3, VOCAB_SIZE, (PROMPTS[number],), generator=generator).tolist()
    stop = StopConditions(max_tokens=MOST, ignore_eos=True)
    return Job(Ticket(f"r{number}", 1, 1), tuple(prompt), SamplingParams(0, temperature=0.0), stop)


def long_job() -> Job:
    """Prompt and answer of nearly twice what the pool holds."""
    generator = torch.Generator().manual_seed(9)
    prompt = torch.randint(3, VOCAB_SIZE, (300,), generator=generator).tolist()
    assert len(prompt) > NUM_BLOCKS * BLOCK
    stop = StopConditions(max_tokens=LONG_ANSWER, ignore_eos=True)
    return replace(job(0), prompt_token_ids=tuple(prompt), stop=stop)


@dataclass
class Ran:
    """What came of jobs side by side. ``most_used``: blocks in use at most while all of them decoded."""

    answers: dict[str, list[int]]
    most_used: int = 0
    num_preempted: int = 0
    right_guesses: int = 0


def run(
    runner: PagedRunner,
    jobs: list[Job],
    limits: EngineLimits = LIMITS,
    speculation: Speculation | None = None,
) -> Ran:
    """All of them to their ends; the books are checked after every step."""
    # Decodes take as long as a share of a prompt, so that a long one takes whole shares beside them.
    costs = StepCosts(token_s=1.0, decodes=StepTimes.flat(float(limits.max_share_tokens)))
    engine = Engine(runner, limits, TEXTS.text_of, FakeClock(), costs, speculation=speculation)
    ran = Ran({one.ticket.request_id: list(*one.generated.values()) for one in jobs})
    for one in jobs:
        engine.submit(one)
    while engine.has_work:
        report = engine.step()
        engine.check_integrity()
        for output in report.outputs:
            ran.answers[output.ticket.request_id] += output.token_ids
        ran.num_preempted += report.num_preempted
        ran.right_guesses += report.accepted_tokens
        if report.decode_seqs == len(jobs):
            ran.most_used = max(ran.most_used, engine.pool.num_used)
    assert engine.pool.num_used == 0
    return ran


def test_generic_tokens_past_the_window_are_those_of_transformers(tmp_path):
    """Four answers of six windows each, side by side on blocks for one; also where one resumes behind the window."""
    model = loaded(RunnerKind.GENERIC, tmp_path / "m")
    assert model.card.sliding_window == WINDOW
    jobs = [job(number) for number in range(len(PROMPTS))]
    ran = run(model.runner, jobs)
    assert ran.most_used <= len(jobs) * SEEN_BLOCKS
    assert ran.num_preempted == 0
    for one in jobs:
        answer = ran.answers[one.ticket.request_id]
        assert answer == greedy_answer(tmp_path / "m", list(one.prompt_token_ids), MOST)
        resumed = replace(one, generated={0: tuple(answer[:70])})
        assert run(model.runner, [resumed]).answers == {one.ticket.request_id: answer}


def test_a_text_longer_than_memory_rolls(tmp_path):
    """Prompt and answer of twice what the pool holds, beside another: transformers' tokens, also resumed near the end."""
    model = loaded(RunnerKind.GENERIC, tmp_path / "m")
    long, beside = long_job(), job(1)
    expected = greedy_answer(tmp_path / "m", list(long.prompt_token_ids), LONG_ANSWER)
    ran = run(model.runner, [long, beside])
    assert ran.answers["r0"] == expected
    assert ran.most_used <= 2 * (rolling_blocks(WINDOW, BLOCK))
    resumed = replace(long, generated={0: tuple(expected[:80])})
    assert run(model.runner, [resumed]).answers == {"r0": expected}
    engine = Engine(model.runner, LIMITS, TEXTS.text_of, FakeClock(), StepCosts(token_s=1.0))
    several = replace(long, sampling=replace(long.sampling, n=2))
    for one, fails in ((long, False), (several, True)):
        engine.submit(one)
        failures = [output.finish for output in engine.step().outputs if output.finish]
        assert bool(failures) == fails
        engine.cancel("r0", 1, FinishReason.CANCELLED)
        engine.step()


@pytest.mark.parametrize("kind", ["lookup", "draft"])
def test_guesses_alter_nothing_where_texts_roll(kind, tmp_path):
    """With speculation transformers' tokens too, of a text that rolls and of others past the window; some guesses are right."""
    model = loaded(RunnerKind.GENERIC, tmp_path / "m")
    proposer: Proposer = LookupProposer()
    if kind == "draft":  # the model itself, whose blocks are for a part of the long text only
        limits = DraftLimits(400, VOCAB_SIZE, 32)
        draft = loaded(RunnerKind.GENERIC, tmp_path / "m").runner
        proposer = DraftProposer(draft, limits, StepTimes.flat(0.01))
    jobs = [long_job(), *(replace(job(number), stop=long_job().stop) for number in (1, 3))]
    ran = run(model.runner, jobs, speculation=Speculation(proposer))
    for one in jobs:
        expected = greedy_answer(tmp_path / "m", list(one.prompt_token_ids), LONG_ANSWER)
        assert ran.answers[one.ticket.request_id] == expected
    assert ran.right_guesses > 0


def test_lean_tokens_do_not_depend_on_what_is_given_back(tmp_path):
    """Each answer alone with all blocks kept equals the one beside others with blocks given back and overwritten."""
    try:
        instruction_sets()
    except KernelsMissing as missing:
        pytest.skip(str(missing))
    model = loaded(RunnerKind.LEAN, tmp_path / "m")
    jobs = [job(number) for number in range(len(PROMPTS))]
    ran = run(model.runner, jobs)
    assert ran.most_used <= len(jobs) * SEEN_BLOCKS
    assert ran.num_preempted == 0
    for one in jobs:
        alone = run(model.runner, [one], replace(LIMITS, window_tokens=0))
        assert alone.answers == {one.ticket.request_id: ran.answers[one.ticket.request_id]}
        assert alone.most_used > SEEN_BLOCKS
