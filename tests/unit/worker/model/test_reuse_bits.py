"""Blocks that are reused, shared, copied or restored give the same logits, bit for bit, as computing everything anew."""

import hashlib

import pytest
import torch

from common.domain import Quantization, SamplingParams, StopConditions
from common.prefix_keys import root_key
from tests.support.engines import TEXTS
from tests.support.fake_clock import FakeClock
from tests.support.tiny_models import FAMILIES, MIXTURES, VOCAB_SIZE, make_tiny_model
from worker.engine.block_store import PagedRunner
from worker.engine.engine import Engine
from worker.engine.job import Job, Ticket
from worker.engine.limits import EngineLimits
from worker.engine.model_settings import ModelSettings, RunnerKind
from worker.kernels.library import KernelsMissing, instruction_sets
from worker.model.load import load_model
from worker.sampling.sampler import sample

pytestmark = pytest.mark.timeout(600)

LEAN = ("llama", "qwen2-window", "qwen3")
KINDS = [(RunnerKind.GENERIC, family) for family in FAMILIES + MIXTURES]
try:
    instruction_sets()
    KINDS += [(RunnerKind.LEAN, family) for family in LEAN]
except KernelsMissing:
    pass  # without kernels there is nothing to hold equal

Digests = dict[tuple[int, int, int], str]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Digests:
    """The logits of every draw, by request, choice and position; each is drawn once or the same again."""
    seen: Digests = {}

    def recording(logits, draws, draw_tokens):
        for line, draw in zip(logits, draws, strict=True):
            if not draw.position:  # the warm-up's
                continue
            key = draw.params.seed, draw.choice, draw.position
            digest = hashlib.sha256(line.float().numpy().tobytes()).hexdigest()
            assert seen.setdefault(key, digest) == digest, key
        return sample(logits, draws, draw_tokens)

    monkeypatch.setattr("worker.model.scoring.sample", recording)
    return seen


def make_runner(kind: RunnerKind, family: str, folder) -> PagedRunner:
    is_lean = kind is RunnerKind.LEAN
    settings = ModelSettings(
        model=str(make_tiny_model(family, folder)),
        quantization=Quantization.INT8 if is_lean else Quantization.NONE,
        dtype=None if is_lean else "float32",
        runner=kind,
        kv_blocks=60,
        block_size=16,
    )
    return load_model(settings, lambda _: None).runner


def texts() -> list[list[int]]:
    """Prompts with beginnings in common, as long as blocks, chunks and neither."""
    generator = torch.Generator().manual_seed(5)
    base = torch.randint(VOCAB_SIZE, (200,), generator=generator).tolist()
    return [
        base[:48],
        [*base[:100], 7, 8, 9],
        [*base[:100], 9, 8],
        base[:130],
        base[:48],
        base[:33],
    ]


def job(number: int, prompt: list[int], *, n: int = 1, cached: bool) -> Job:
    return Job(
        ticket=Ticket(f"r{number}", 1, 1),
        prompt_token_ids=tuple(prompt),
        sampling=SamplingParams(seed=number, temperature=1.0, n=n),
        stop=StopConditions(max_tokens=9, ignore_eos=True),
        prefix_root=root_key(tenant="t") if cached else None,
    )


def run(runner: PagedRunner, jobs: list[Job], *, together: bool) -> int:
    """Run jobs side by side or one after the other; prompt tokens found."""
    limits = EngineLimits(16, 64, 32, 400, frozenset())
    engine = Engine(runner, limits, TEXTS.text_of, FakeClock())
    found = 0
    for index, one in enumerate(jobs):
        engine.submit(one)
        while engine.has_work and (not together or index == len(jobs) - 1):
            found += engine.step().cache.hit_tokens
            engine.check_integrity()
    return found


@pytest.mark.parametrize(("kind", "family"), KINDS)
def test_logits_are_the_same_with_and_without_reuse(kind, family, tmp_path, recorded):
    """Alone without the cache, one after another with it, side by side with it, and as one of several choices."""
    runner = make_runner(kind, family, tmp_path / family)
    plain = [job(i, text, cached=False) for i, text in enumerate(texts())]
    assert run(runner, plain, together=False) == 0
    num_draws = len(recorded)
    cached = [job(i, text, cached=True) for i, text in enumerate(texts())]
    assert run(runner, cached, together=False) >= 32 + 96 + 96 + 32
    run(runner, cached, together=True)
    assert len(recorded) == num_draws == 9 * len(plain)
    several = [job(i, text, n=3, cached=i % 2 == 0) for i, text in enumerate(texts())]
    run(runner, several, together=True)
    assert len(recorded) == 3 * num_draws


@pytest.mark.parametrize(("kind", "family"), [KINDS[0], KINDS[-1]])
def test_a_block_comes_back_as_it_was(kind, family, tmp_path):
    """Read, overwritten and written again, or copied to another place: the same bytes."""
    runner = make_runner(kind, family, tmp_path / family)
    run(runner, [job(0, texts()[1], cached=False)], together=False)
    store = runner.blocks
    saved = [store.read(block_id) for block_id in range(4)]
    assert len(set(saved)) == 4
    store.copy(1, 50)
    store.write(2, saved[3])
    store.write(3, saved[2])
    again = [store.read(block_id) for block_id in (0, 1, 3, 2, 50)]
    assert again == [*saved, saved[1]]
