"""Outputs that follow a grammar, through the engine: complete, resumed, cut, failed alone."""

import json
import re
from dataclasses import replace

import pytest

from common.domain import (
    ConstraintKind,
    FinishReason,
    OutputConstraint,
    SamplingParams,
    StopConditions,
)
from common.records import Failure
from tests.support.engines import make_engine, make_job, run_all, run_alone
from worker.engine.job import Job
from worker.grammar.compiler import GrammarCompiler
from worker.simulated.card import simulated_card
from worker.simulated.settings import SimulatedSettings
from worker.simulated.vocabulary import EOS_ID

CARD = replace(simulated_card(SimulatedSettings()), eos_token_ids=(EOS_ID,))
COMPILER = GrammarCompiler(CARD)
SCHEMA = OutputConstraint(
    ConstraintKind.JSON_SCHEMA,
    json.dumps(
        {
            "type": "object",
            "properties": {
                "mill": {"type": "string", "maxLength": 12},
                "wheels": {"type": "array", "items": {"type": "integer"}, "maxItems": 4},
            },
            "required": ["mill", "wheels"],
            "additionalProperties": False,
        }
    ),
)


def job(constraint: OutputConstraint = SCHEMA, name: str = "r", **changes: object) -> Job:
    base = make_job(name, max_tokens=200, temperature=1.0)
    grammar = COMPILER.compiled(constraint).result()
    return replace(base, constraint=constraint, grammar=grammar, **changes)  # type: ignore[arg-type]


def choice(*options: str) -> OutputConstraint:
    return OutputConstraint(ConstraintKind.CHOICE, options=options)


@pytest.mark.parametrize("seed", range(6))
def test_an_output_is_complete_and_valid(seed: int):
    """It ends by itself, and reads as what was asked for."""
    outcome = run_alone(job(sampling=SamplingParams(seed, 1.0)))
    found = json.loads(outcome.full_text)
    assert found.keys() == {"mill", "wheels"}
    assert outcome.finish is not None
    assert outcome.finish.reason is FinishReason.STOP


def test_resumed_anywhere_it_goes_on_as_if_never_interrupted():
    """Where it stands in its grammar is replayed from the tokens."""
    whole = run_alone(job())
    for cut in range(1, len(whole.token_ids)):
        resumed = run_alone(job(generated={0: tuple(whole.token_ids[:cut])}))
        assert whole.token_ids[:cut] + resumed.token_ids == whole.token_ids
        assert whole.full_text.endswith(resumed.full_text)


def test_choices_of_one_request_stand_where_they_stand():
    """Each has a state of its own."""
    outcomes = run_all(make_engine(kv_blocks=256), [job(sampling=SamplingParams(3, 1.0, n=3))])
    texts = {outcomes.of("r", index).full_text for index in range(3)}
    assert all(json.loads(text) for text in texts)
    assert len(texts) == 3


@pytest.mark.parametrize(
    "stop",
    [
        StopConditions(max_tokens=40),
        StopConditions(max_tokens=40, ignore_eos=True),
        StopConditions(max_tokens=40, min_tokens=30),
        StopConditions(max_tokens=3),
    ],
)
def test_a_complete_output_ends_at_once(stop: StopConditions):
    """Whatever else is asked of its end, and with its last token at the limit too."""
    outcome = run_alone(job(choice("yes", "not"), stop=stop))
    assert outcome.full_text in {"yes", "not"}
    assert len(outcome.token_ids) == 3
    assert outcome.finish is not None
    assert outcome.finish.reason is FinishReason.STOP
    assert outcome.finish.matched_stop is None


def test_the_limit_cuts():
    """max_tokens holds; what is there is a beginning."""
    outcome = run_alone(job(stop=StopConditions(max_tokens=4)))
    assert outcome.finish is not None
    assert outcome.finish.reason is FinishReason.LENGTH
    assert run_alone(job()).full_text.startswith(outcome.full_text)


def test_a_dead_end_fails_alone():
    """A log that does not fit the grammar: INTERNAL with its reason, and the neighbours go on."""
    lost = job(choice("ab", "ac"), name="lost", generated={0: (ord("x"),)})
    outcomes = run_all(make_engine(), [job(), lost, make_job("free")])
    finish = outcomes.of("lost").finish
    assert finish is not None
    assert finish.failure is not None
    assert finish.failure.code == "INTERNAL"
    assert finish.failure.reason == "CONSTRAINT_DEAD_END"
    assert outcomes.of("r").token_ids == run_alone(job()).token_ids
    assert outcomes.of("free").token_ids == run_alone(make_job("free")).token_ids


def test_a_job_that_cannot_run_has_its_end_told():
    """Nothing of it is computed."""
    failure = Failure("INTERNAL", "no", "BAD_CONSTRAINT")
    outcome = run_alone(replace(make_job(), failure=failure))
    assert outcome.token_ids == []
    assert outcome.finish is not None
    assert outcome.finish.failure == failure
    assert outcome.num_prompts_told == 0


def test_stop_strings_and_penalties_hold_beside_a_grammar():
    """A stop string ends it before its grammar does."""
    numbers = OutputConstraint(ConstraintKind.REGEX, "([0-9]{3},)+")
    sampling = SamplingParams(2, 1.0, frequency_penalty=0.5)
    stop = StopConditions(max_tokens=80, stop=(",",), min_tokens=10)
    outcome = run_alone(job(numbers, sampling=sampling, stop=stop))
    assert re.fullmatch(r"([0-9]{3},)+[0-9]{3}", outcome.full_text)
    assert outcome.finish is not None
    assert outcome.finish.matched_stop is not None
