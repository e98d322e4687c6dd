"""What is told of a sequence after a step: its new tokens with text and scores, its end, the prompt once, and its chunks."""

from collections.abc import Iterable
from dataclasses import dataclass

from common.logprobs import Logprobs
from worker.engine.group import SequenceGroup
from worker.engine.plan import Share
from worker.engine.report import PromptChunk, SequenceOutput
from worker.engine.runner import Drawn
from worker.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Told:
    """What is told of tokens that were drawn."""

    token_ids: tuple[int, ...] = ()
    text: str = ""
    text_chars: tuple[int, ...] = ()
    logprobs: tuple[Logprobs, ...] = ()


def told_of(sequence: Sequence, drawn: Iterable[Drawn]) -> Told:
    """Add tokens that were drawn one behind the other, until the sequence ends; what is to be told of them."""
    token_ids: list[int] = []
    texts: list[str] = []
    logprobs: list[Logprobs] = []
    for one in drawn:
        if token_ids:
            sequence.computed(1)  # it was guessed, and computed with the others
        texts.append(sequence.append(one.token_id))
        token_ids.append(one.token_id)
        if one.scores is not None and sequence.tally is not None:
            sequence.tally.add(one.token_id, one.scores.logprob)
        if one.scores is not None and sequence.job.output.logprobs:
            logprobs.append(sequence.logprobs_of(one.token_id, one.scores))
        if sequence.finish is not None:
            break
    return Told(tuple(token_ids), "".join(texts), tuple(map(len, texts)), tuple(logprobs))


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
        text_chars=told.text_chars,
        finish=sequence.finish,
        took_up_prompt=tells_prompt,
        logprobs=told.logprobs,
        prompt_logprobs=group.prompt_logprobs if tells_prompt else (),
        cached_tokens=group.cached_tokens or 0 if tells_prompt else 0,
    )


def chunks_of(shares: Iterable[Share]) -> tuple[PromptChunk, ...]:
    """The shares, not yet settled, behind which more known tokens are pending: parts of long prompts."""
    return tuple(
        PromptChunk(share.sequence.job.ticket, share.sequence.index, share.num_tokens)
        for share in shares
        if share.num_tokens < share.sequence.num_pending
    )
