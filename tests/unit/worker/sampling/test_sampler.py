"""Sampling: the right distribution, the same token in every batch, and failures that stay in their row."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common.domain import SamplingParams
from tests.support.time_scale import scaled
from worker.engine.runner import Draw, Drawn, RowFailed
from worker.engine.seen_tokens import SeenTokens
from worker.kernels.library import KernelsMissing, instruction_sets
from worker.sampling import sampler, torch_draw
from worker.sampling.blocks import cut
from worker.sampling.filters import above, keep_top_k, nucleus_edges
from worker.sampling.kernel_draw import KernelDraw, KernelTeam

VOCAB = 4096

try:
    ISAS = instruction_sets()
except KernelsMissing:
    ISAS = []


@pytest.fixture(scope="module", params=["torch", *ISAS])
def sample(request):
    """Samples a copy, for a sampler may work in place: with plain torch, or the kernels of an instruction set."""
    way = torch_draw.draw_by_torch
    if request.param != "torch":
        way = KernelDraw(KernelTeam(3, request.param))
    return lambda logits, draws: sampler.sample(logits.clone(), draws, way)


def draw(seed=0, position=0, **params):
    return Draw(SamplingParams(seed=seed, **params), 0, position)


def penalized(params, position=5):
    """A draw of a row that has seen a few tokens, some of them more than once, and must not draw two."""
    seen = SeenTokens(range(0, 40, 3))
    for token_id in (1, 2, 2, 3, 3, 3):
        seen.add(token_id)
    return Draw(params, 1, position, seen=seen, forbidden=(7, 8))


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
MORE_PARAMS = st.builds(
    SamplingParams,
    seed=st.integers(0, 2**64 - 1),
    temperature=st.sampled_from([0.0, 1e-9, 0.7, 1.0]),
    top_p=st.sampled_from([0.5, 0.9, 1.0]),
    top_k=st.sampled_from([0, 3, 300]),
    min_p=st.sampled_from([0.0, 0.02, 1.0]),
    typical_p=st.sampled_from([0.3, 0.95, 1.0]),
    repetition_penalty=st.sampled_from([0.5, 1.0, 1.3]),
    presence_penalty=st.sampled_from([-1.0, 0.0, 2.0]),
    frequency_penalty=st.sampled_from([-0.5, 0.0, 0.7]),
    logit_bias=st.sampled_from([{}, {5: 8.0, 2: -100.0}, {4095: 100.0}]),
)


@pytest.mark.timeout(scaled(600))
@settings(deadline=None, max_examples=15)
@given(st.lists(PARAMS | MORE_PARAMS, min_size=1, max_size=8), st.integers(0, 1000), st.booleans())
def test_a_row_draws_the_same_token_in_every_batch(sample, params, seed, ties):
    """Each row alone gives what it gives among others, with many equal logits too."""
    logits = torch.randn(len(params), VOCAB, generator=torch.Generator().manual_seed(seed)) * 3
    if ties:
        logits = logits.round()
    draws = [penalized(p) for p in params]
    alone = [sample(logits[i : i + 1], [one])[0] for i, one in enumerate(draws)]
    assert sample(logits, draws) == alone
    assert sample(logits.flip(0), draws[::-1]) == alone[::-1]


@pytest.mark.parametrize("vocab", [4096, 1003, 49])
def test_batches_of_every_size_agree(sample, vocab):
    """The same 32 rows in batches of 1, 2, 8 and 32, also where the vocabulary does not come out even."""
    kinds = [
        {"temperature": 0.0},
        {},
        {"top_p": 0.9},
        {"top_k": 20, "min_p": 0.01},
        {"typical_p": 0.8},
        {"top_k": 7, "top_p": 0.5, "typical_p": 0.9},
        {"min_p": 0.1, "repetition_penalty": 1.2},
        {"top_k": 1000, "frequency_penalty": 0.5},
    ]
    logits = torch.randn(32, vocab, generator=torch.Generator().manual_seed(4)) * 2
    draws = [penalized(SamplingParams(seed=i, **kinds[i % len(kinds)]), i) for i in range(32)]
    whole = sample(logits, draws)
    for size in (1, 2, 8):
        pieces = [range(i, i + size) for i in range(0, 32, size)]
        split = [
            one for p in pieces for one in sample(logits[p.start : p.stop], [draws[i] for i in p])
        ]
        assert split == whole, size


@settings(deadline=None, max_examples=15)
@given(PARAMS, st.integers(0, 1000))
def test_only_allowed_tokens_are_drawn(sample, params, seed):
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
def test_frequencies_follow_the_distribution(sample, params, kept):
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
def test_a_broken_row_fails_alone(sample, broken, temperature):
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


def test_half_precision_logits_work(sample):
    """bfloat16 logits, which tie often, draw valid tokens."""
    logits = torch.randn(4, VOCAB).bfloat16()
    assert all(
        0 <= t < VOCAB for t in tokens(sample(logits, [draw(i, top_k=3) for i in range(4)]))
    )


def test_equal_values_stay_together():
    """Filters cut by value: tokens as likely as the last one kept are kept too."""
    logits = cut(torch.tensor([[3.0, 2.0, 2.0, 1.0]]))
    kept = torch.isfinite(keep_top_k(logits, torch.tensor([2]))).flatten()
    assert kept.nonzero().flatten().tolist() == [0, 1, 2]
    weights = cut(torch.tensor([[0.4, 0.25, 0.25, 0.1]])).nan_to_num(0.0, neginf=0.0)
    _, kept = above(weights, nucleus_edges(weights, torch.tensor([0.6])))
    assert kept.flatten().nonzero().flatten().tolist() == [0, 1, 2]


@pytest.mark.parametrize("spread", [0.01, 1.0, 3.0])
def test_a_nucleus_of_any_width_is_that_of_sorting_everything(spread):
    """Whether it ends within the first trial, the second or nowhere before the end."""
    generator = torch.Generator().manual_seed(1)
    weights = (torch.randn(4, 64 * 1000, generator=generator) * spread).exp()
    shares = torch.tensor([0.1, 0.5, 0.9, 0.999], dtype=torch.float64)
    edges = nucleus_edges(cut(weights), shares).squeeze(-1)
    for row, share in enumerate(shares):
        ordered = weights[row].double().sort(descending=True).values
        size = int((ordered.cumsum(0) < share * ordered.sum()).sum()) + 1
        found = int((weights[row] >= edges[row]).sum())
        assert abs(found - size) <= 1 + size // 1000, (found, size)


def test_forbidden_tokens_and_bias_hold_for_greedy_too(sample):
    """The largest is passed over where it must not be drawn, and the bias decides what is largest."""
    logits = torch.arange(VOCAB, dtype=torch.float32).expand(3, VOCAB)
    params = SamplingParams(seed=0, temperature=0.0)
    biased = SamplingParams(seed=0, temperature=0.0, logit_bias={9: 100.0, VOCAB - 1: -100.0})
    top = VOCAB - 1
    draws = [Draw(params, 0, 0), Draw(params, 0, 0, forbidden=(top, top - 1)), Draw(biased, 0, 0)]
    assert tokens(sample(logits, draws)) == [top, top - 2, top - 1]


def test_nothing_to_draw_is_nothing(sample):
    """No rows, no tokens."""
    assert sample(torch.empty(0, VOCAB), []) == []
