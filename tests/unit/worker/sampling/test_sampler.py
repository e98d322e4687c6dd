"""Sampling: the right distribution, the same token in every batch, and failures that stay in their row."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common.domain import SamplingParams
from worker.engine.runner import Draw, Drawn, RowFailed
from worker.sampling.filters import keep_top_k, keep_top_p
from worker.sampling.sampler import sample

VOCAB = 320


def draw(seed=0, position=0, **params):
    return Draw(SamplingParams(seed=seed, **params), 0, position)


def tokens(results):
    assert all(isinstance(result, Drawn) for result in results)
    return [result.token_id for result in results]


PARAMS = st.builds(
    SamplingParams,
    seed=st.integers(0, 2**64 - 1),
    temperature=st.sampled_from([0.0, 1e-300, 1e-9, 0.3, 1.0, 2.0, 1e9]),
    top_p=st.sampled_from([0.0, 1e-9, 0.5, 0.9, 1.0]),
    top_k=st.sampled_from([0, 1, 5, 300, 2**31]),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(PARAMS, min_size=1, max_size=8), st.integers(0, 1000), st.booleans())
def test_a_row_draws_the_same_token_in_every_batch(params, seed, ties):
    """Each row alone gives what it gives among others, with many equal logits too."""
    logits = torch.randn(len(params), VOCAB, generator=torch.Generator().manual_seed(seed)) * 3
    if ties:
        logits = logits.round()
    draws = [Draw(p, 1, 5) for p in params]
    alone = [sample(logits[i : i + 1], [one])[0] for i, one in enumerate(draws)]
    assert sample(logits, draws) == alone
    assert sample(logits.flip(0), draws[::-1]) == alone[::-1]


@settings(deadline=None, max_examples=40)
@given(PARAMS, st.integers(0, 1000))
def test_only_allowed_tokens_are_drawn(params, seed):
    """A token lies among the k largest and in the smallest set of mass top_p; greedy is the largest."""
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3
    (token,) = tokens(sample(logits, [Draw(params, 0, 0)]))
    rank = int((logits[0] > logits[0, token]).sum())
    if params.temperature == 1e9 and params.top_p < 1:
        return  # so hot that float32 holds all tokens for equally likely: ties stay together
    if params.temperature <= 1e-9 or params.top_k == 1 or params.top_p <= 1e-9:
        assert rank == 0
        return
    if params.top_k:
        assert rank < params.top_k
    scaled = logits[0].double() / params.temperature
    if params.top_k:
        limit = scaled.topk(min(params.top_k, VOCAB)).values[-1]
        scaled = scaled.masked_fill(scaled < limit, float("-inf"))
    probs = scaled.softmax(0)
    assert probs[probs > probs[token]].sum() < params.top_p + 1e-5


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({}, [0, 1, 2, 3]),
        ({"temperature": 0.5}, [0, 1, 2, 3]),
        ({"top_k": 2}, [0, 1]),
        ({"top_p": 0.75}, [0, 1]),
        ({"top_k": 3, "top_p": 0.9}, [0, 1, 2]),
    ],
)
def test_frequencies_follow_the_distribution(params, kept):
    """Over 20,000 positions of one seed, tokens come as often as their probabilities say."""
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05])
    expected = probs ** (1 / params.get("temperature", 1.0))
    expected = torch.where(torch.isin(torch.arange(4), torch.tensor(kept)), expected, 0.0)
    expected = expected / expected.sum()
    count = 20_000
    drawn = tokens(
        sample(probs.log().expand(count, 4), [draw(3, i, **params) for i in range(count)])
    )
    found = torch.bincount(torch.tensor(drawn), minlength=4) / count
    assert torch.allclose(found, expected, atol=0.02)
    assert set(drawn) == set(kept)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_broken_row_fails_alone(broken, temperature):
    """One value that is no number fails its row as NUMERIC and leaves all others as they were."""
    logits = torch.randn(5, VOCAB)
    draws = [draw(i, temperature=temperature) for i in range(5)]
    sound = sample(logits, draws)
    logits[2, 17] = broken
    results = sample(logits, draws)
    failed = results.pop(2)
    assert isinstance(failed, RowFailed)
    assert failed.reason == "NUMERIC"
    assert results == sound[:2] + sound[3:]


def test_half_precision_logits_work():
    """bfloat16 logits, which tie often, draw valid tokens."""
    logits = torch.randn(4, VOCAB).bfloat16()
    assert all(
        0 <= t < VOCAB for t in tokens(sample(logits, [draw(i, top_k=3) for i in range(4)]))
    )


def test_equal_values_stay_together():
    """Filters cut by value: tokens as likely as the last one kept are kept too."""
    scaled = torch.tensor([[3.0, 2.0, 2.0, 1.0]])
    assert torch.isfinite(keep_top_k(scaled, torch.tensor([2]))).tolist() == [
        [True, True, True, False]
    ]
    probs = torch.tensor([[0.4, 0.25, 0.25, 0.1]], dtype=torch.float64)
    assert (keep_top_p(probs, torch.tensor([0.6])) > 0).tolist() == [[True, True, True, False]]


def test_a_wide_nucleus_is_found_by_the_full_sort():
    """Where the nucleus exceeds the trial size, the result is that of sorting everything."""
    generator = torch.Generator().manual_seed(1)
    probs = torch.rand(2, 5000, generator=generator).softmax(-1)
    kept = keep_top_p(probs, torch.tensor([0.9, 0.95], dtype=torch.float64))
    for row, mass in enumerate((0.9, 0.95)):
        ordered = probs[row].double().sort(descending=True).values
        size = int((ordered.cumsum(0) < mass).sum()) + 1
        assert abs(int((kept[row] > 0).sum()) - size) <= 1


def test_nothing_to_draw_is_nothing():
    """No rows, no tokens."""
    assert sample(torch.empty(0, VOCAB), []) == []
