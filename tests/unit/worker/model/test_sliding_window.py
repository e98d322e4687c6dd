"""Models that look back only so far: blocks out of sight are free, and the tokens are those of the model itself."""

from dataclasses import replace

import pytest
import torch
import transformers

from common.domain import FinishReason, Quantization, SamplingParams, StopConditions
from common.kv_need import rolling_blocks
from tests.support.engines import TEXTS
from tests.support.fake_clock import FakeClock
from tests.support.tiny_models import VOCAB_SIZE, make_tiny_model
from worker.engine.block_store import PagedRunner
from worker.engine.costs import StepCosts
from worker.engine.engine import Engine
from worker.engine.job import Job, Ticket
from worker.engine.limits import EngineLimits
from worker.engine.model_settings import ModelSettings, RunnerKind
from worker.kernels.library import KernelsMissing, instruction_sets
from worker.model.load import LoadedModel, load_model

WINDOW, BLOCK, MOST = 24, 16, 150
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


Answers = dict[str, list[int]]


def run(runner: PagedRunner, jobs: list[Job], limits: EngineLimits) -> tuple[Answers, int, int]:
    """Answers side by side, blocks in use at most while all of them decode, and how often one had to make room."""
    engine = Engine(runner, limits, TEXTS.text_of, FakeClock(), StepCosts(token_s=1.0))
    answers: Answers = {one.ticket.request_id: list(*one.generated.values()) for one in jobs}
    for one in jobs:
        engine.submit(one)
    most_used = num_preempted = 0
    while engine.has_work:
        report = engine.step()
        engine.check_integrity()
        for output in report.outputs:
            answers[output.ticket.request_id] += output.token_ids
        num_preempted += report.num_preempted
        if report.decode_seqs == len(jobs):
            most_used = max(most_used, engine.pool.num_used)
    assert engine.pool.num_used == 0
    return answers, most_used, num_preempted


def test_generic_tokens_past_the_window_are_those_of_transformers(tmp_path):
    """Four answers of six windows each, side by side on blocks for one; also where one resumes behind the window."""
    model = loaded(RunnerKind.GENERIC, tmp_path / "m")
    assert model.card.sliding_window == WINDOW
    jobs = [job(number) for number in range(len(PROMPTS))]
    answers, most_used, num_preempted = run(model.runner, jobs, LIMITS)
    assert most_used <= len(jobs) * SEEN_BLOCKS
    assert num_preempted == 0
    oracle = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "m", dtype=torch.float32)
    for one in jobs:
        expected = oracle.generate(
            torch.tensor([one.prompt_token_ids]),
            attention_mask=torch.ones((1, len(one.prompt_token_ids)), dtype=torch.int64),
            max_new_tokens=MOST,
            do_sample=False,
            eos_token_id=[],
            pad_token_id=0,
        )
        answer = answers[one.ticket.request_id]
        assert answer == expected[0, len(one.prompt_token_ids) :].tolist()
        resumed = replace(one, generated={0: tuple(answer[:70])})
        assert run(model.runner, [resumed], LIMITS)[0] == {one.ticket.request_id: answer}


def test_a_text_longer_than_memory_rolls(tmp_path):
    """Prompt and answer of twice what the pool holds, beside another: transformers' tokens, also resumed near the end."""
    model = loaded(RunnerKind.GENERIC, tmp_path / "m")
    base, beside = job(0), job(1)
    generator = torch.Generator().manual_seed(9)
    prompt = torch.randint(3, VOCAB_SIZE, (300,), generator=generator).tolist()
    long = replace(base, prompt_token_ids=tuple(prompt), stop=replace(base.stop, max_tokens=90))
    assert len(prompt) > NUM_BLOCKS * BLOCK
    oracle = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "m", dtype=torch.float32)
    expected = oracle.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.int64),
        max_new_tokens=90,
        do_sample=False,
        eos_token_id=[],
        pad_token_id=0,
    )[0, len(prompt) :].tolist()
    answers, most_used, _ = run(model.runner, [long, beside], LIMITS)
    assert answers["r0"] == expected
    assert most_used <= 2 * (rolling_blocks(WINDOW, BLOCK))
    resumed = replace(long, generated={0: tuple(expected[:80])})
    assert run(model.runner, [resumed], LIMITS)[0] == {"r0": expected}
    engine = Engine(model.runner, LIMITS, TEXTS.text_of, FakeClock(), StepCosts(token_s=1.0))
    several = replace(long, sampling=replace(long.sampling, n=2))
    for one, fails in ((long, False), (several, True)):
        engine.submit(one)
        failures = [output.finish for output in engine.step().outputs if output.finish]
        assert bool(failures) == fails
        engine.cancel("r0", 1, FinishReason.CANCELLED)
        engine.step()


def test_lean_tokens_do_not_depend_on_what_is_given_back(tmp_path):
    """Each answer alone with all blocks kept equals the one beside others with blocks given back and overwritten."""
    try:
        instruction_sets()
    except KernelsMissing as missing:
        pytest.skip(str(missing))
    model = loaded(RunnerKind.LEAN, tmp_path / "m")
    jobs = [job(number) for number in range(len(PROMPTS))]
    answers, most_used, num_preempted = run(model.runner, jobs, LIMITS)
    assert most_used <= len(jobs) * SEEN_BLOCKS
    assert num_preempted == 0
    for one in jobs:
        alone, most_held, _ = run(model.runner, [one], replace(LIMITS, window_tokens=0))
        assert alone == {one.ticket.request_id: answers[one.ticket.request_id]}
        assert most_held > SEEN_BLOCKS
