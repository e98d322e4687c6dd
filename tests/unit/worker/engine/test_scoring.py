"""Log probabilities, echo and prompts that are only scored, through the engine."""

from dataclasses import replace

import pytest

from common.domain import FinishReason, OutputOptions, SamplingParams, StopConditions
from common.logprobs import Logprobs
from tests.support.engines import Outcome, make_engine, make_job, run_all, run_alone
from worker.engine.job import Job
from worker.engine.report import SequenceOutput
from worker.simulated.vocabulary import tokenizer_json
from worker.text.texts import Texts

PROMPT = "the mill"
EVERYTHING = OutputOptions(logprobs=True, top_logprobs=3, prompt_logprobs=True, echo=True)


def scored(
    job: Job, *mates: Job, **limits: int
) -> tuple[list[Logprobs], list[Logprobs], Outcome, list[SequenceOutput]]:
    """Log probabilities of prompt and output of the first job, what came of it, and its outputs."""
    engine = make_engine(**limits)
    for one in (job, *mates):
        engine.submit(one)
    outputs: list[SequenceOutput] = []
    outcome = Outcome()
    while engine.has_work:
        for output in engine.step().outputs:
            if output.ticket.request_id == job.ticket.request_id:
                outputs.append(output)
                outcome.token_ids += output.token_ids
                outcome.text += output.text
                outcome.finish = output.finish
                outcome.num_prompts_told += output.took_up_prompt
        engine.check_integrity()
    prompt = [one for output in outputs for one in output.prompt_logprobs]
    return prompt, [one for output in outputs for one in output.logprobs], outcome, outputs


def job(prompt: str = PROMPT, name: str = "r", **changes: object) -> Job:
    return replace(make_job(name, prompt), output=EVERYTHING, **changes)  # type: ignore[arg-type]


def test_every_token_has_its_entry():
    """One for each token of the output and of the prompt; only the prompt's first has none to give."""
    prompt, output, outcome, _ = scored(job())
    assert [one.chosen.token_id for one in output if one.chosen] == outcome.token_ids
    assert prompt[0] == Logprobs()
    assert [one.chosen.token_id for one in prompt[1:] if one.chosen] == list(PROMPT.encode())[1:]
    assert all(len(one.top) == 3 for one in (*output, *prompt[1:]))
    assert prompt[1].chosen is not None
    assert prompt[1].chosen.token == b"h"
    assert outcome.num_prompts_told == 1


@pytest.mark.parametrize("budget", [1, 3, 16])
def test_chunks_and_neighbours_change_nothing(budget: int):
    """Scores are those of the whole prompt at once, alone."""
    alone = scored(job())
    mates = [job(f"{PROMPT} {i}", name=f"m{i}") for i in range(3)]
    limits = {"max_seqs": min(budget, 4), "max_batch_tokens": budget, "max_share_tokens": 2}
    assert scored(job(), *mates, **limits)[:2] == alone[:2]


@pytest.mark.parametrize("cut", [1, 5, 11])
def test_a_resumed_answer_goes_on_with_the_same_numbers(cut: int):
    """And does not score its prompt again, which is in the log with its first token."""
    _, output, outcome, _ = scored(job())
    prompt, rest, resumed, _ = scored(job(generated={0: tuple(outcome.token_ids[:cut])}))
    assert prompt == []
    assert rest == output[cut:]
    assert outcome.full_text.endswith(resumed.full_text)


def test_echo_puts_the_prompt_in_front():
    """Text is prompt and answer; a stop string in the prompt ends nothing."""
    plain = run_alone(make_job(prompt=PROMPT))
    stop = StopConditions(max_tokens=12, stop=(PROMPT[-4:],))
    _, _, outcome, _ = scored(job(stop=stop))
    assert outcome.full_text == PROMPT + plain.full_text
    assert outcome.token_ids == plain.token_ids


def test_a_character_across_prompt_and_answer_is_whole():
    """The beginning of one at the prompt's end is given out with its last byte."""
    first = "ü".encode()[:1]
    forced = SamplingParams(seed=0, temperature=0.0, logit_bias={"ü".encode()[1]: 100.0})
    base = job(sampling=forced, stop=StopConditions(max_tokens=1))
    outcome = scored(replace(base, prompt_token_ids=(ord("a"), *first)))[2]
    assert outcome.full_text == "aü"


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("budget", [3, 64])
def test_no_token_is_wanted(n: int, budget: int):
    """The prompt is computed and told, and every choice ends by its length with the prompt as its text."""
    wanted = job(
        sampling=SamplingParams(seed=1, temperature=0.0, n=n), stop=StopConditions(max_tokens=0)
    )
    engine = make_engine(max_seqs=3, max_batch_tokens=budget)
    outcomes = run_all(engine, [wanted])
    for index in range(n):
        outcome = outcomes.of("r", index)
        assert outcome.token_ids == []
        assert outcome.full_text == PROMPT
        assert outcome.finish is not None
        assert outcome.finish.reason is FinishReason.LENGTH
    assert sum(outcomes.of("r", i).num_prompts_told for i in range(n)) == 1
    prompt, output, _, _ = scored(wanted, max_batch_tokens=max(budget, 8))
    assert (len(prompt), output) == (len(PROMPT), [])


def test_a_prompt_that_fills_the_memory_is_scored():
    """Nothing is generated, so nothing more is needed."""
    wanted = job("x" * 32, stop=StopConditions(max_tokens=0))
    prompt, _, outcome, _ = scored(wanted, kv_blocks=8, block_size=4)
    assert outcome.finish is not None
    assert outcome.finish.reason is FinishReason.LENGTH
    assert len(prompt) == 32


def test_tokens_as_bytes():
    """Bytes for what is text, names for what is none."""
    texts = Texts(tokenizer_json())
    assert texts.bytes_of(0xC3) == b"\xc3"
    assert texts.bytes_of(256) == b"<|bos|>"
