"""The drawing kernels: torch's tokens, the same bits on every instruction set, with any number of threads."""

import pytest
import torch

from common.domain import SamplingParams
from worker.engine.runner import Draw
from worker.kernels.library import KernelsMissing, instruction_sets
from worker.sampling.kernel_draw import KernelDraw, KernelTeam
from worker.sampling.torch_draw import draw_by_torch

try:
    ISAS = instruction_sets()
except KernelsMissing as missing:
    pytest.skip(str(missing), allow_module_level=True)

KINDS = [
    {"temperature": 0.0},
    {"temperature": 1e-300},
    {"temperature": 1e9},
    {},
    {"top_p": 0.0},
    {"top_p": 0.9},
    {"top_p": 0.9999, "temperature": 2.0},
    {"top_k": 1},
    {"top_k": 40, "top_p": 0.8},
    {"top_k": 900, "temperature": 1.5},
    {"top_k": 2**40},
    {"min_p": 0.02},
    {"min_p": 0.1, "top_p": 0.99},
    {"typical_p": 0.3},
    {"typical_p": 0.95, "top_p": 0.95},
    {"typical_p": 0.0, "top_k": 60},
]


def batch(vocab: int, spread: float) -> tuple[torch.Tensor, list[Draw]]:
    """Four rows of each kind; some tokens hidden."""
    count = 4 * len(KINDS)
    logits = torch.randn(count, vocab, generator=torch.Generator().manual_seed(vocab)) * spread
    logits[:, 5::7] = float("-inf")
    params = [SamplingParams(seed, **KINDS[seed % len(KINDS)]) for seed in range(count)]  # type: ignore[arg-type]
    return logits, [Draw(one, 2, 11) for one in params]


@pytest.mark.parametrize(("vocab", "spread"), [(5000, 3.0), (4096, 0.1), (65, 2.0), (3, 1.0)])
def test_tokens_are_those_of_torch(vocab: int, spread: float):
    """Row for row; whether a set ends with one token more or less, which roundings decide, is seldom seen in a draw."""
    logits, draws = batch(vocab, spread)
    expected = draw_by_torch(logits.clone(), draws)
    drawn = KernelDraw(KernelTeam(2))(logits, draws)
    assert sum(a != b for a, b in zip(drawn, expected, strict=True)) <= 1


@pytest.mark.parametrize("rounded", [False, True])
def test_every_instruction_set_and_team_draws_the_same(rounded: bool):
    """Exactly, with many equal logits too."""
    logits, draws = batch(3001, 3.0)
    if rounded:
        logits = logits.round()
    found = [
        KernelDraw(KernelTeam(threads, isa))(logits, draws) for isa in ISAS for threads in (1, 3)
    ]
    assert all(one == found[0] for one in found)


def test_a_row_without_tokens_is_told():
    """Where all is hidden there is no token, whatever the parameters; the others have theirs."""
    logits, draws = batch(100, 1.0)
    logits[::2] = float("-inf")
    drawn = KernelDraw(KernelTeam(2))(logits, draws)
    assert all(token == -1 for token in drawn[::2])
    assert all(0 <= token < 100 for token in drawn[1::2])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("vocab", [1, 63, 64, 100, 4096])
def test_broken_rows_are_found_as_torch_finds_them(isa: str, vocab: int):
    """NaN and both infinities at any place; huge numbers and zeros are sound."""
    bad = [float("nan"), float("inf"), float("-inf")]
    rows = [torch.full((vocab,), value) for value in (0.0, 3e38, -3e38, 1.0)]
    for place in {0, vocab // 2, vocab - 1}:
        for value in bad:
            row = torch.randn(vocab, generator=torch.Generator().manual_seed(place))
            row[place] = value
            rows.append(row)
    logits = torch.stack(rows)
    found = KernelDraw(KernelTeam(2, isa)).broken_rows(logits)
    assert found == draw_by_torch.broken_rows(logits) == list(range(4, len(rows)))
