"""Log probabilities: torch's own, the same in every batch, and of the model itself."""

import pytest
import torch

from common.domain import SamplingParams
from worker.engine.runner import Draw, Drawn
from worker.engine.seen_tokens import SeenTokens
from worker.kernels.library import KernelsMissing, instruction_sets
from worker.sampling.kernel_draw import KernelDraw, KernelTeam
from worker.sampling.sampler import sample
from worker.sampling.scores import scores as scores_by_torch

try:
    ISAS = instruction_sets()
except KernelsMissing:
    ISAS = []


@pytest.fixture(scope="module", params=["torch", *ISAS])
def scores(request):
    """Plain torch's, or those of the kernels of an instruction set."""
    if request.param == "torch":
        return scores_by_torch
    return KernelDraw(KernelTeam(3, request.param)).scores


def rows(count: int, vocab: int = 1000) -> torch.Tensor:
    return torch.randn(count, vocab, generator=torch.Generator().manual_seed(2)) * 5


@pytest.mark.parametrize("vocab", [21, 64, 1000, 4096])
def test_they_are_those_of_a_softmax(scores, vocab: int):
    """Chosen and likeliest, in order; even where the vocabulary does not come out even."""
    logits = rows(5, vocab)
    expected = logits.double().log_softmax(-1)
    found = scores(logits, [3, 9, 0, 1, vocab - 1], [0, 1, 5, 20, 20])
    for row, (token_id, count) in enumerate(
        zip([3, 9, 0, 1, vocab - 1], [0, 1, 5, 20, 20], strict=True)
    ):
        assert found[row].logprob == pytest.approx(float(expected[row, token_id]), abs=1e-5)
        best = expected[row].topk(count)
        assert [token for token, _ in found[row].top] == best.indices.tolist()
        assert [value for _, value in found[row].top] == pytest.approx(
            best.values.tolist(), abs=1e-5
        )


def test_a_row_has_the_same_scores_in_every_batch(scores):
    """Bit for bit, with equally likely tokens in the order of their ids."""
    logits = rows(8).round()
    together = scores(logits, range(8), [7] * 8)
    assert together == [scores(logits[i : i + 1], [i], [7])[0] for i in range(8)]
    for one in together:
        assert [*one.top] == sorted(one.top, key=lambda pair: (-pair[1], pair[0]))


def test_no_more_tokens_are_told_than_there_are(scores):
    """A vocabulary of three has no five likeliest; where all are equal their ids decide."""
    (found,) = scores(torch.zeros(1, 3), [1], [5])
    assert [token for token, _ in found.top] == [0, 1, 2]
    assert found.top[1][1] == found.logprob == pytest.approx(-1.0986123, abs=1e-6)


def test_what_is_no_number_harms_no_other_row(scores):
    """The row with it has scores that say nothing, those beside it have their own."""
    logits = rows(3)
    logits[1, 5:900] = float("nan")
    first, _, last = scores(logits, [1, 2, 3], [4, 4, 4])
    assert [first, last] == [scores(logits[i : i + 1], [i + 1], [4])[0] for i in (0, 2)]


@pytest.mark.skipif(not ISAS, reason="no kernels")
def test_every_instruction_set_and_team_scores_the_same():
    """Bit for bit."""
    logits = rows(7, 3001).round(decimals=1)
    wanted = [0, 3, 20, 1, 0, 5, 20]
    found = [
        KernelDraw(KernelTeam(threads, isa)).scores(logits, range(7), wanted)
        for isa in ISAS
        for threads in (1, 3)
    ]
    assert all(one == found[0] for one in found)


def test_they_are_the_models_own():
    """Temperature, bias, penalties and filters change what is drawn, and not what the model thought of it."""
    logits = rows(2)
    seen = SeenTokens([1, 2, 3])
    params = SamplingParams(
        4, temperature=0.3, top_k=3, logit_bias={5: 90.0}, repetition_penalty=2
    )
    draw = Draw(params, 0, 3, seen=seen, num_top=2)
    (first, second) = sample(logits.clone(), [draw, Draw(params, 0, 3)])
    assert isinstance(first, Drawn)
    assert isinstance(second, Drawn)
    assert first.token_id == 5
    assert first.scores == scores_by_torch(logits[:1], [5], [2])[0]
    assert second.scores is None


@pytest.mark.parametrize("bias", [{}, {7: 1.0}])
def test_kernels_that_draw_leave_what_is_scored(bias: dict[int, float]):
    """All rows want scores: with nothing to adjust the rows themselves are scored behind the draw, else copies."""
    try:
        draw_tokens = KernelDraw(KernelTeam(1))
    except KernelsMissing as missing:
        pytest.skip(str(missing))
    logits = rows(9)
    draws = [
        Draw(SamplingParams(seed, top_p=0.9, logit_bias=bias), 0, 3, num_top=0)
        for seed in range(9)
    ]
    given = logits.clone()
    found = sample(given, draws, draw_tokens)
    assert given.equal(logits) == (not bias)
    for row, one in enumerate(found):
        assert isinstance(one, Drawn)
        assert one.scores == draw_tokens.scores(logits[row : row + 1], [one.token_id], [0])[0]
