"""The quality command: the right numbers, of the right model, and a reason where there are none."""

import math

import pytest
import torch

from common.domain import Quantization
from tests.support.tiny_models import make_tiny_model
from worker.__main__ import main
from worker.engine.model_settings import ModelSettings, RunnerKind
from worker.model.load import load_model
from worker.quality.check import check_quality
from worker.quality.measure import (
    PIECE_TOKENS,
    CannotMeasure,
    distinct,
    measure,
    pieces_of,
    weight_bytes,
)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_tiny_model("llama", tmp_path_factory.mktemp("model"))


def load(folder, how: Quantization, kind: RunnerKind = RunnerKind.AUTO):
    settings = ModelSettings(
        model=str(folder),
        quantization=how,
        runner=kind,
        kv_blocks=32,
        threads=1,
        dtype="float32" if how is Quantization.NONE else None,
    )
    return load_model(settings, lambda _: None).runner


def test_perplexity_is_the_models_own(folder):
    """As its logits say, over all tokens but the first."""
    runner = load(folder, Quantization.NONE)
    generator = torch.Generator().manual_seed(3)
    pieces = [torch.randint(3, 250, (40,), generator=generator).tolist() for _ in range(2)]
    losses = [
        torch.nn.functional.cross_entropy(
            runner._decoder.reference(piece)[:-1].float(), torch.tensor(piece[1:])
        ).item()
        for piece in pieces
    ]
    found = measure(runner, pieces)
    assert found.perplexity == pytest.approx(math.exp(sum(losses) / 2), rel=1e-4)
    assert 0 < found.distinct[1] <= found.distinct[2] <= found.distinct[3] <= 1


def test_variety_counts_sequences():
    """Different ones among all; across answers, never over their borders."""
    assert distinct([[1, 2, 1, 2], [1, 2]], 1) == 2 / 6
    assert distinct([[1, 2, 1, 2], [1, 2]], 2) == 2 / 4
    assert distinct([[1]], 2) == 0.0


def test_quantized_weights_are_smaller(folder):
    """By about what their bits say; embeddings and head stay as they are."""
    sizes = {
        how: weight_bytes(load(folder, how, RunnerKind.GENERIC))
        for how in (Quantization.NONE, Quantization.INT8, Quantization.NF4)
    }
    assert sizes[Quantization.NF4] < sizes[Quantization.INT8] < sizes[Quantization.NONE]


def test_a_text_is_spread_over_pieces():
    """Of equal length, from all of it; one that is too short says so."""
    pieces = pieces_of(range(PIECE_TOKENS * 5 + 17))
    assert {len(piece) for piece in pieces} == {PIECE_TOKENS}
    assert len(pieces) == 5
    with pytest.raises(CannotMeasure):
        pieces_of(range(PIECE_TOKENS - 1))


def test_the_table(folder, tmp_path, capsys):
    """A row for the source and one for the model as it is set up; a missing text ends with its reason."""
    text = tmp_path / "text.txt"
    text.write_text("The mill turns by the river. " * 40)
    settings = ModelSettings(
        model=str(folder), quantization=Quantization.NF4, threads=1, context_tokens=512
    )
    assert check_quality(settings, str(text)) == 0
    title, head, source, quantized = capsys.readouterr().out.splitlines()
    assert title == f"{folder}, whose source is {folder.name}; text text.txt"
    assert "perplexity" in head
    assert source.startswith("source, float32")
    assert "+0.00%" in source
    assert quantized.startswith("nf4")
    assert check_quality(settings, str(tmp_path / "none.txt")) == 1
    assert "none.txt" in capsys.readouterr().err


def test_a_table_of_formats(folder, tmp_path, capsys, monkeypatch):
    """A row for each that the model can have; the others are named beside the table, and a misspelt one before it."""
    text = tmp_path / "text.txt"
    text.write_text("The mill turns by the river. " * 40)
    command = ["headrace-worker", "--check-quality", str(text), "--model", str(folder)]
    flags = ["--threads", "1", "--context-tokens", "512", "--max-seqs", "8", "--runner", "generic"]

    def run(formats: str) -> int:
        monkeypatch.setattr("sys.argv", [*command, *flags, "--quality-formats", formats])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code

    assert run("int8,q4,float32+kv8") == 0
    found = capsys.readouterr()
    assert [line.split()[0] for line in found.out.splitlines()[3:]] == ["int8", "float32+kv8"]
    assert "q4: left out: the generic runner does not know" in found.err
    assert run("int7") == 2
    assert "'int7' is none of" in capsys.readouterr().err
