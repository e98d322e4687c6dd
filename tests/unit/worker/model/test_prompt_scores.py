"""Prompts scored by the runners, against the model's own logits; whatever the chunks are."""

from dataclasses import replace

import pytest
import torch

from common.domain import Quantization, SamplingParams
from tests.support.tiny_models import VOCAB_SIZE, make_tiny_model
from worker.engine.model_settings import ModelSettings, RunnerKind
from worker.engine.runner import Draw, Drawn, Row, Scored, TokenScores
from worker.model.load import load_model
from worker.model.scoring import MOST_SCORED

pytestmark = pytest.mark.timeout(600)

TOKENS = torch.randint(VOCAB_SIZE, (150,), generator=torch.Generator().manual_seed(1)).tolist()
GREEDY = Draw(SamplingParams(seed=0, temperature=0.0), 0, len(TOKENS), num_top=3)


@pytest.fixture(scope="module", params=["generic", "lean"])
def runner(request, tmp_path_factory):
    kind = RunnerKind(request.param)
    settings = ModelSettings(
        model=str(make_tiny_model("llama", tmp_path_factory.mktemp("model"))),
        quantization=Quantization.NONE if kind is RunnerKind.GENERIC else Quantization.INT8,
        kv_blocks=64,
        max_seqs=8,
        max_batch_tokens=256,
        runner=kind,
        threads=1,
    )
    return load_model(settings, lambda _: None).runner


def scores_of(runner, cuts, *mates) -> tuple[list[TokenScores], Drawn]:
    """The prompt in pieces; the last draws."""
    found: list[TokenScores] = []
    drawn = None
    blocks = list(range(10))
    for first, last in zip([0, *cuts], [*cuts, len(TOKENS)], strict=True):
        is_last = last == len(TOKENS)
        row = Row(
            TOKENS[first:last],
            first,
            blocks,
            GREEDY if is_last else None,
            targets=TOKENS[first + 1 : last + 1],
            num_top=2,
        )
        result = runner.run([*mates, row])[len(mates)]
        if isinstance(result, Scored):
            found += result.scores
            result = result.drawn
        if isinstance(result, Drawn):
            drawn = result
    assert drawn is not None
    return found, drawn


def test_scores_do_not_depend_on_chunks_and_mates(runner):
    """Nor does the token drawn behind them."""
    whole = scores_of(runner, [])
    assert len(whole[0]) == len(TOKENS) - 1
    assert scores_of(runner, [1, 2, MOST_SCORED + 5, 149]) == whole
    mate = Row(TOKENS[:20], 0, [20, 21], Draw(SamplingParams(seed=3), 0, 20))
    alone = runner.run([mate])
    assert scores_of(runner, [70], mate) == whole
    scored = Row(TOKENS[:30], 0, list(range(10)), None, targets=TOKENS[1:31])
    assert runner.run([scored, mate])[1:] == alone
    many = [replace(scored, block_ids=[2 * n, 2 * n + 1]) for n in range(5)]
    assert len(many) * len(scored.targets) > MOST_SCORED
    assert runner.run([*many, mate]) == [*runner.run([scored]) * len(many), *alone]


def test_scores_are_the_models(runner):
    """A softmax over the logits behind each token; the chosen one's alternatives too."""
    found, drawn = scores_of(runner, [])
    if hasattr(runner, "decoder"):
        rows = [Row([token], i, range(10), None) for i, token in enumerate(TOKENS)]
        logits = torch.from_numpy(runner.decoder.logits(rows, range(len(rows))))
    else:
        logits = runner._decoder.reference(TOKENS).float()
    expected = logits.double().log_softmax(-1)
    for i, one in enumerate(found):
        assert one.logprob == pytest.approx(float(expected[i, TOKENS[i + 1]]), abs=1e-4)
        assert [value for _, value in one.top] == pytest.approx(
            expected[i].topk(2).values.tolist(), abs=1e-4
        )
    assert drawn.scores is not None
    assert drawn.scores.top[0][0] == drawn.token_id
    assert drawn.scores.logprob == drawn.scores.top[0][1]
