"""Engines over the simulated runner, jobs for them, and what came of each job."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from common.domain import SamplingParams, StopConditions
from tests.support.fake_clock import FakeClock
from worker.engine.block_store import PagedRunner
from worker.engine.costs import StepCosts
from worker.engine.engine import Engine
from worker.engine.job import Job, Ticket
from worker.engine.limits import EngineLimits
from worker.engine.lower_tier import LowerTier
from worker.engine.report import Finish, StepReport
from worker.engine.speculation import Speculation
from worker.simulated.runner import SimulatedRunner
from worker.simulated.settings import SimulatedSettings
from worker.simulated.vocabulary import EOS_ID, tokenizer_json
from worker.text.texts import Texts

TEXTS = Texts(tokenizer_json())


def make_engine(
    *,
    clock: FakeClock | None = None,
    runner: PagedRunner | None = None,
    kv_blocks: int = 64,
    block_size: int = 4,
    max_seqs: int = 8,
    max_batch_tokens: int = 16,
    max_share_tokens: int = 8,
    context_tokens: int = 512,
    eos_every: int = 0,
    prefix_cache: bool = True,
    cache_ttl_s: float = float("inf"),
    swap_blocks: int = 0,
    park_s: float = float("inf"),
    window_tokens: int = 0,
    quality_sample: float = 0.0,
    costs: StepCosts | None = None,
    lower: LowerTier | None = None,
    speculation: Speculation | None = None,
) -> Engine:
    """A small engine: small blocks and budgets, so that short texts meet every border."""
    settings = SimulatedSettings(kv_blocks=kv_blocks, block_size=block_size, eos_every=eos_every)
    limits = EngineLimits(
        max_seqs=max_seqs,
        max_batch_tokens=max_batch_tokens,
        max_share_tokens=max_share_tokens,
        context_tokens=context_tokens,
        eos_token_ids=frozenset({EOS_ID}),
        prefix_cache=prefix_cache,
        cache_ttl_s=cache_ttl_s,
        swap_blocks=swap_blocks,
        park_s=park_s,
        window_tokens=window_tokens,
        quality_sample=quality_sample,
    )
    runner = runner or SimulatedRunner(settings)
    return Engine(runner, limits, TEXTS.text_of, clock or FakeClock(), costs, lower, speculation)


def make_job(
    name: str = "r",
    prompt: str = "hello",
    *,
    max_tokens: int = 12,
    stop: StopConditions | None = None,
    temperature: float = 0.0,
    seed: int = 1,
    n: int = 1,
    attempt: int = 1,
    deadline_s: float | None = None,
    generated: dict[int, tuple[int, ...]] | None = None,
    finished_choices: frozenset[int] = frozenset(),
    prefix_root: bytes | None = None,
    prompt_token_ids: tuple[int, ...] | None = None,
) -> Job:
    """A job whose prompt is the bytes of ``prompt``, unless tokens are given."""
    return Job(
        ticket=Ticket(name, epoch=1, attempt=attempt),
        prompt_token_ids=prompt_token_ids or tuple(prompt.encode()),
        sampling=SamplingParams(seed=seed, temperature=temperature, n=n),
        stop=stop or StopConditions(max_tokens=max_tokens),
        deadline_s=deadline_s,
        generated=generated or {},
        finished_choices=finished_choices,
        prefix_root=prefix_root,
    )


@dataclass
class Outcome:
    """Everything an engine told of one choice."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    finish: Finish | None = None
    num_prompts_told: int = 0
    cached_tokens: int = 0

    @property
    def full_text(self) -> str:
        return self.text + (self.finish.text if self.finish else "")


@dataclass
class Outcomes:
    """What came of every job, by request and choice."""

    choices: dict[tuple[str, int], Outcome] = field(default_factory=dict)
    returned: list[tuple[str, str]] = field(default_factory=list)

    def add(self, report: StepReport) -> None:
        for output in report.outputs:
            key = output.ticket.request_id, output.index
            outcome = self.choices.setdefault(key, Outcome())
            assert outcome.finish is None, key
            assert len(output.token_ids) == len(output.text_chars)
            assert sum(output.text_chars) == len(output.text)
            outcome.token_ids += output.token_ids
            outcome.text += output.text
            outcome.finish = output.finish
            outcome.num_prompts_told += output.took_up_prompt
            outcome.cached_tokens += output.cached_tokens
        self.returned += [(r.ticket.request_id, r.reason) for r in report.returned]

    def of(self, name: str = "r", index: int = 0) -> Outcome:
        return self.choices[name, index]


def run_all(
    engine: Engine, jobs: Iterable[Job] = (), outcomes: Outcomes | None = None
) -> Outcomes:
    """Submit jobs and step until nothing is left; the books are checked after every step."""
    outcomes = outcomes or Outcomes()
    for job in jobs:
        engine.submit(job)
    while engine.has_work:
        outcomes.add(engine.step())
        engine.check_integrity()
    assert engine.pool.num_used == 0
    return outcomes


def run_alone(job: Job, **limits: int) -> Outcome:
    """What comes of a job that has an engine for itself."""
    return run_all(make_engine(**limits), [job]).of(job.ticket.request_id)
