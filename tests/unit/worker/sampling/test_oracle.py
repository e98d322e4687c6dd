"""Sampling against transformers' own logits processors: the same tokens remain, with the same probabilities."""

import pytest
import torch
import transformers

from common.domain import SamplingParams
from worker.engine.runner import Draw
from worker.engine.seen_tokens import SeenTokens
from worker.sampling import filters
from worker.sampling.adjust import adjust
from worker.sampling.blocks import cut

VOCAB, ROWS = 1024, 6
PROMPT, OUTPUT = [3, 3, 5, 900, 17], [5, 6, 6, 6, 1000]


def logits() -> torch.Tensor:
    return torch.randn(ROWS, VOCAB, generator=torch.Generator().manual_seed(5)) * 3


def expected(*processors: transformers.LogitsProcessor) -> torch.Tensor:
    ids = torch.tensor([PROMPT + OUTPUT]).expand(ROWS, -1)
    scores = logits()
    for processor in processors:
        scores = processor(ids, scores)
    return scores


def weights(temperature: float = 1.0) -> torch.Tensor:
    blocks = cut(logits())
    peaks = blocks.amax(dim=(-1, -2))
    return filters.weights(blocks, peaks, torch.full((ROWS,), temperature, dtype=torch.float64))


def assert_same(found: torch.Tensor, scores: torch.Tensor) -> None:
    """The same support, and the same distribution on it."""
    shares = found.flatten(1) / found.flatten(1).sum(-1, keepdim=True)
    probs = scores.softmax(-1)
    assert torch.equal(shares > 0, probs > 0)
    assert torch.allclose(shares, probs, atol=1e-6, rtol=1e-4)


def spread(numbers: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Kept blocks put back to where they stood."""
    whole = torch.zeros(ROWS, VOCAB // kept.shape[-1], kept.shape[-1])
    for row in range(ROWS):
        for place, number in enumerate(numbers[row].tolist()):
            if number >= 0:
                whole[row, number] = kept[row, place]
    return whole


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.3, 10.0])
def test_repetition_penalty(penalty: float):
    """Tokens of prompt and output, once each, however often they occur."""
    seen = SeenTokens(PROMPT)
    for token_id in OUTPUT:
        seen.add(token_id)
    found = logits()
    draw = Draw(SamplingParams(0, repetition_penalty=penalty), 0, 10, seen=seen)
    adjust(found, [draw] * ROWS)
    assert torch.allclose(found, expected(transformers.RepetitionPenaltyLogitsProcessor(penalty)))


def test_presence_and_frequency_follow_their_definition():
    """Subtracted from tokens of the output alone: once, and once for each occurrence (transformers has neither)."""
    seen = SeenTokens(PROMPT)
    for token_id in OUTPUT:
        seen.add(token_id)
    found, plain = logits(), logits()
    params = SamplingParams(0, presence_penalty=0.5, frequency_penalty=-0.25)
    adjust(found, [Draw(params, 0, 10, seen=seen)] * ROWS)
    change = torch.zeros(VOCAB)
    for token_id in set(OUTPUT):
        change[token_id] = 0.5 - 0.25 * OUTPUT.count(token_id)
    assert torch.allclose(found, plain - change, atol=1e-6)


def test_bias():
    """As a sequence bias of single tokens."""
    bias = {1: 5.0, 1000: -100.0, 7: 0.25}
    found = logits()
    adjust(found, [Draw(SamplingParams(0, logit_bias=bias), 0, 10)] * ROWS)
    oracle = transformers.SequenceBiasLogitsProcessor({(k,): v for k, v in bias.items()})
    assert torch.allclose(found, expected(oracle))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999])
def test_top_p(temperature: float, top_p: float):
    """The nucleus, behind temperature."""
    found = weights(temperature)
    edges = filters.nucleus_edges(found, torch.full((ROWS,), top_p, dtype=torch.float64))
    scores = expected(
        transformers.TemperatureLogitsWarper(temperature), transformers.TopPLogitsWarper(top_p)
    )
    assert_same(spread(*filters.above(found, edges)), scores)


@pytest.mark.parametrize("top_k", [1, 4, 200, 2000])
def test_top_k(top_k: int):
    """Whichever of the two ways finds them."""
    blocks, wanted = cut(logits()), torch.full((ROWS,), top_k)
    scores = expected(transformers.TopKLogitsWarper(top_k))
    kept = filters.keep_top_k(blocks.clone(), wanted)
    assert torch.equal(kept.flatten(1), scores)
    summits = blocks.amax(dim=-1)
    if top_k <= summits.shape[-1]:
        numbers = filters.candidates(summits, wanted)
        few = filters.taken(blocks, torch.arange(ROWS), numbers, float("-inf"))
        few = filters.keep_top_k(few, wanted)
        assert torch.equal(few.flatten(1).isfinite().sum(-1), scores.isfinite().sum(-1))


@pytest.mark.parametrize("min_p", [0.001, 0.1, 1.0])
def test_min_p(min_p: float):
    """A share of the likeliest token's probability."""
    edges = torch.full((ROWS, 1), min_p)
    assert_same(
        spread(*filters.above(weights(), edges)), expected(transformers.MinPLogitsWarper(min_p))
    )


@pytest.mark.parametrize("typical_p", [0.1, 0.5, 0.95])
def test_typical(typical_p: float):
    """The tokens nearest to the entropy."""
    found = filters.keep_typical(weights(), torch.full((ROWS,), typical_p, dtype=torch.float64))
    assert_same(found, expected(transformers.TypicalLogitsWarper(typical_p)))
