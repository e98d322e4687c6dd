"""What the soak asks for, and what each body answers when nothing disturbs it."""

import random
from dataclasses import dataclass, replace

from common.domain import (
    ConstraintKind,
    OutputConstraint,
    OutputOptions,
    SamplingParams,
    StopConditions,
)
from common.logprobs import Logprobs
from common.model_card import ModelCard
from common.prefix_keys import root_key
from tests.support.engines import TEXTS, Outcomes
from tests.support.fake_clock import FakeClock
from worker.engine.block_store import PagedRunner
from worker.engine.engine import Engine
from worker.engine.job import Job, Ticket
from worker.engine.limits import EngineLimits
from worker.grammar.compiler import GrammarCompiler

DOOMED = 253
"""A token on which rows fail; no prompt but a doomed one holds it, and a bias keeps it from being drawn."""
BROKEN = 254
"""Another one, on which the whole step raises."""
TENANTS = ("a", "b", "c")
LONGEST_TOKENS = 200
LENGTHS = {1: (1, 12, 50, 90, 90), 2: (3, 40), 4: (5, 12)}
"""Lengths of answers by the number of choices: each needs about as many blocks at most."""
LIMITS = EngineLimits(
    max_seqs=12,
    max_batch_tokens=48,
    max_share_tokens=16,
    context_tokens=LONGEST_TOKENS,
    eos_token_ids=frozenset({10}),
)


CONSTRAINTS = (
    OutputConstraint(ConstraintKind.REGEX, "([a-f]{3}-){1,30}end"),
    OutputConstraint(
        ConstraintKind.JSON_SCHEMA, '{"type": "array", "items": {"type": "integer"}}'
    ),
    OutputConstraint(ConstraintKind.CHOICE, options=("a mill", "a miller", "the wheel turns")),
)

Answer = tuple[tuple[int, ...], str, tuple[Logprobs, ...]]
"""Tokens of a choice, its text, and the scores of the tokens where they are wanted."""


@dataclass(frozen=True)
class Body:
    """A request without a name; ``expected`` holds the answer of each choice, ``prompt`` the prompt's scores if wanted."""

    job: Job
    is_doomed: bool
    expected: tuple[Answer, ...] = ()
    prompt: tuple[Logprobs, ...] = ()


def draw_bodies(
    rng: random.Random, count: int, runner: PagedRunner, card: ModelCard
) -> list[Body]:
    """Bodies with beginnings in common, and their answers by ``runner``, one alone after the other, without any reuse."""
    stories = [[rng.randrange(32, 120) for _ in range(90)] for _ in range(4)]
    compiler = GrammarCompiler(card)
    bodies = [_draw(rng, stories, compiler) for _ in range(count)]
    return [body if body.is_doomed else _answered(body, runner) for body in bodies]


def _draw(rng: random.Random, stories: list[list[int]], compiler: GrammarCompiler) -> Body:
    story = rng.choice(stories)
    prompt = story[: rng.choice([1, 7, 16, 31, 32, 33, 60, 90])] + [
        rng.randrange(32, 120) for _ in range(rng.choice([1, 1, 5, 17]))
    ]
    is_doomed = rng.random() < 0.08
    if is_doomed:
        prompt.append(rng.choice([DOOMED, BROKEN]))
    n = rng.choice([1, 1, 1, 2, 4])
    is_greedy = rng.random() < 0.3
    sampling = SamplingParams(
        seed=rng.getrandbits(40),
        temperature=0.0 if is_greedy else rng.choice([0.7, 1.0, 1.5]),
        top_p=rng.choice([1.0, 0.9]),
        top_k=rng.choice([0, 20]),
        min_p=rng.choice([0.0, 0.0, 0.02]),
        typical_p=rng.choice([1.0, 1.0, 0.9]),
        repetition_penalty=rng.choice([1.0, 1.2]),
        presence_penalty=rng.choice([0.0, 0.5]),
        frequency_penalty=rng.choice([0.0, 0.3]),
        n=n,
        logit_bias={DOOMED: -100.0, BROKEN: -100.0},
    )
    stop = StopConditions(
        max_tokens=rng.choice(LENGTHS[n]),
        min_tokens=rng.choice([0, 0, 2]),
        stop=rng.choice([(), (), ("a ", "th")]),
        ignore_eos=rng.random() < 0.7,
    )
    stop = replace(stop, min_tokens=min(stop.min_tokens, stop.max_tokens))
    root = root_key(tenant=rng.choice(TENANTS)) if rng.random() < 0.85 else None
    constraint = rng.choice([None] * 9 + [*CONSTRAINTS])
    job = Job(
        Ticket("", 1, 1),
        tuple(prompt),
        sampling,
        stop,
        prefix_root=root,
        constraint=constraint,
        grammar=None if constraint is None else compiler.compiled(constraint).result(),
        output=OutputOptions(
            logprobs=(has_scores := rng.random() < 0.3),
            prompt_logprobs=(scores_prompt := rng.random() < 0.1),
            top_logprobs=rng.choice([0, 2]) if has_scores or scores_prompt else 0,
        ),
    )
    return Body(job, is_doomed)


def _answered(body: Body, runner: PagedRunner) -> Body:
    engine = Engine(runner, replace(LIMITS, prefix_cache=False), TEXTS.text_of, FakeClock())
    engine.submit(body.job)
    outcomes, scores = Outcomes(), dict[int, list[Logprobs]]()
    prompt: tuple[Logprobs, ...] = ()
    while engine.has_work:
        report = engine.step()
        outcomes.add(report)
        for output in report.outputs:
            scores.setdefault(output.index, []).extend(output.logprobs)
            prompt = prompt or output.prompt_logprobs
    expected = []
    for index in range(body.job.sampling.n):
        found = outcomes.of("", index)
        expected.append((tuple(found.token_ids), found.full_text, tuple(scores[index])))
    return replace(body, expected=tuple(expected), prompt=prompt)
