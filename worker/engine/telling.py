"""What is told of a sequence after a step: its new token with text and scores, its end, and the prompt once."""

from dataclasses import dataclass

from common.logprobs import Logprobs
from worker.engine.group import SequenceGroup
from worker.engine.report import SequenceOutput
from worker.engine.runner import Drawn
from worker.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Told:
    """What is told of a token that was drawn."""

    token_ids: tuple[int, ...] = ()
    text: str = ""
    logprobs: tuple[Logprobs, ...] = ()


def told_of(sequence: Sequence, drawn: Drawn) -> Told:
    """Add a drawn token to its sequence; what is to be told of it."""
    text = sequence.append(drawn.token_id)
    if drawn.scores is not None and sequence.tally is not None:
        sequence.tally.add(drawn.token_id, drawn.scores.logprob)
    if drawn.scores is None or not sequence.job.output.logprobs:
        return Told((drawn.token_id,), text)
    return Told((drawn.token_id,), text, (sequence.logprobs_of(drawn.token_id, drawn.scores),))


def output_of(group: SequenceGroup, sequence: Sequence, told: Told | None) -> SequenceOutput:
    """The output of a sequence; the first one of a group tells that the prompt was taken up."""
    tells_prompt = group.has_begun and not group.is_prompt_told
    group.is_prompt_told = group.is_prompt_told or tells_prompt
    told = told or Told()
    return SequenceOutput(
        ticket=group.job.ticket,
        index=sequence.index,
        token_ids=told.token_ids,
        text=told.text,
        text_chars=tuple(len(told.text) for _ in told.token_ids),
        finish=sequence.finish,
        took_up_prompt=tells_prompt,
        logprobs=told.logprobs,
        prompt_logprobs=group.prompt_logprobs if tells_prompt else (),
        cached_tokens=group.cached_tokens or 0 if tells_prompt else 0,
    )
