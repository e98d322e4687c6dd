"""Perplexity of a text, variety of what is generated, and the size of the weights, of whatever a runner computes."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from common.domain import SamplingParams
from worker.engine.answer_quality import distinct
from worker.engine.runner import Draw, Drawn, ModelRunner, Row, RowFailed, Scored
from worker.model.lean.runner import LeanRunner
from worker.model.runner import TorchRunner
from worker.text.stretches import stretches_of

PIECE_TOKENS = 256
MOST_PIECES = 8
PROMPT_TOKENS = 32
ANSWER_TOKENS = 64


class CannotMeasure(Exception):
    """The model does not compute what is asked of it; the message says what."""


@dataclass(frozen=True, slots=True)
class Quality:
    """What was measured. ``distinct[n]`` is the share of different sequences of n tokens among those generated."""

    perplexity: float
    distinct: dict[int, float]
    weight_bytes: int


def blocks_of_answer(block_size: int) -> int:
    """Blocks that one answer needs."""
    return -(-(PROMPT_TOKENS + ANSWER_TOKENS) // block_size)


def pieces_of(token_ids: Sequence[int]) -> list[list[int]]:
    """Stretches of a text, spread evenly over it.

    Raises:
        CannotMeasure: it is too short to say anything.
    """
    found = stretches_of(token_ids, PIECE_TOKENS, MOST_PIECES)
    if not found:
        raise CannotMeasure(
            f"the text has {len(token_ids)} tokens, at least {PIECE_TOKENS} are needed"
        )
    return found


def measure(runner: ModelRunner, pieces: Sequence[Sequence[int]]) -> Quality:
    """Run the pieces and some answers to their beginnings through ``runner``, which nobody else uses.

    Raises:
        CannotMeasure: a row failed.
    """
    answers = _answers(runner, [piece[:PROMPT_TOKENS] for piece in pieces])
    return Quality(
        perplexity=perplexity(runner, pieces),
        distinct={n: distinct(answers, n) for n in (1, 2, 3)},
        weight_bytes=weight_bytes(runner),
    )


def perplexity(runner: ModelRunner, pieces: Sequence[Sequence[int]]) -> float:
    """Over all tokens but each piece's first."""
    losses: list[float] = []
    for piece in pieces:
        blocks = range(-(-len(piece) // runner.block_size))
        row = Row(piece, 0, blocks, None, targets=piece[1:])
        (result,) = runner.run([row])
        if not isinstance(result, Scored):
            raise CannotMeasure(f"the model gives no log probabilities: {result}")
        losses += [-one.logprob for one in result.scores]
    return math.exp(sum(losses) / len(losses))


def weight_bytes(runner: ModelRunner) -> int:
    """Memory of the weights as they are kept."""
    if isinstance(runner, LeanRunner):
        return sum(array.nbytes for array in {id(a): a for a in _arrays(runner.weights)}.values())
    assert isinstance(runner, TorchRunner)
    found = {t.data_ptr(): t.nbytes for t in _tensors(runner.model)}
    return sum(found.values())


def _answers(runner: ModelRunner, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Tokens drawn from the whole distribution, each answer by its own seed, side by side; no end ends one."""
    each = blocks_of_answer(runner.block_size)
    known = [list(prompt) for prompt in prompts]
    start = 0
    for _ in range(ANSWER_TOKENS):
        rows = [
            Row(
                tokens[start:],
                start,
                range(i * each, (i + 1) * each),
                Draw(SamplingParams(i), 0, len(tokens)),
            )
            for i, tokens in enumerate(known)
        ]
        start = len(known[0])
        for tokens, result in zip(known, runner.run(rows), strict=True):
            if not isinstance(result, Drawn):
                reason = result.message if isinstance(result, RowFailed) else "nothing"
                raise CannotMeasure(f"the model draws no token: {reason}")
            tokens.append(result.token_id)
    return [tokens[len(prompt) :] for tokens, prompt in zip(known, prompts, strict=True)]


def _tensors(model: Any) -> Iterator[torch.Tensor]:
    for parameter in (*model.parameters(), *model.buffers()):
        yield parameter
        state = getattr(parameter, "quant_state", None)  # scales of bitsandbytes' 4 bits
        while state is not None:
            yield state.absmax
            state = state.state2


def _arrays(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(value, np.ndarray):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _arrays(getattr(value, field.name))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _arrays(item)
