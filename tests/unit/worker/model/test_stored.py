"""Checkpoints that are quantized already: written by us and read again, or written by others."""

import dataclasses
import json
import re

import pytest
import torch
import transformers

from common.domain import Quantization
from tests.support.drive_runner import Stream, drive
from tests.support.tiny_models import make_tiny_model, tiny_config, tiny_tokenizer
from worker.__main__ import main
from worker.engine.model_settings import ModelSettings, RunnerKind
from worker.model.errors import ModelRefused
from worker.model.load import load_model
from worker.quantize_command import quantize

pytestmark = pytest.mark.timeout(120)

FORMATS = [
    (Quantization.INT8, ()),
    (Quantization.NF4, ()),
    (Quantization.NF4, ("--double-quant",)),
    (Quantization.FP4, ()),
]


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def source(request, tmp_path_factory):
    """A model whose rows are whole blocks of 64, as those of real models are."""
    return make_aligned(request.param, tmp_path_factory.mktemp(request.param) / "tiny")


def make_aligned(family, folder):
    config = tiny_config(family)
    if family == "llama":
        config.intermediate_size = 192
    with torch.random.fork_rng():
        torch.manual_seed(0)
        dtype = torch.bfloat16 if family == "llama" else torch.float32
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(6.0)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def load(folder, **changes):
    base = ModelSettings(model=str(folder), kv_blocks=64, runner=RunnerKind.GENERIC)
    return load_model(dataclasses.replace(base, **changes), lambda _: None)


def greedy(loaded):
    streams = [Stream([5, 6, 7, n], 12) for n in range(10, 14)]
    drive(loaded.runner, streams)
    return [stream.tokens for stream in streams]


@pytest.mark.parametrize(("how", "flags"), FORMATS)
def test_a_saved_checkpoint_is_what_quantizing_at_load_gives(source, tmp_path, how, flags):
    """Nothing has to be said when it is loaded, and the same tokens come out."""
    out = tmp_path / "stored"
    assert quantize([str(source), str(out), "--quantization", how.value, *flags]) == 0
    described = json.loads((out / "config.json").read_text())["quantization_config"]
    assert described["quant_method"] == "bitsandbytes"
    stored, at_load = load(out), load(source, quantization=how, double_quant=bool(flags))
    assert stored.card.quantization == at_load.card.quantization == how.value
    assert stored.card.eos_token_ids == at_load.card.eos_token_ids
    assert stored.card.tokenizer_json == at_load.card.tokenizer_json
    assert greedy(stored) == greedy(at_load)


def test_a_contradiction_is_refused_by_name(tmp_path):
    """What is stored in one format is not served as another, by whichever runner; its own name may be said."""
    source = make_aligned("llama", tmp_path / "tiny")
    out = tmp_path / "stored"
    assert quantize([str(source), str(out)]) == 0
    for other in set(Quantization) - {Quantization.INT8}:
        with pytest.raises(ModelRefused, match=f"--quantization {other}: .* as int8 already"):
            load(out, quantization=other, runner=RunnerKind.AUTO)
    with pytest.raises(ModelRefused, match=r"--double-quant: .* as int8 without it"):
        load(out, double_quant=True)
    with pytest.raises(ModelRefused, match="a quantized checkpoint is not covered"):
        load(out, runner=RunnerKind.LEAN)
    assert load(out, quantization=Quantization.INT8, runner=RunnerKind.AUTO).card.quantization == (
        "int8"
    )


def test_what_cannot_be_written_is_said_and_leaves_nothing(tmp_path, capsys):
    """A folder that is there, a checkpoint that is quantized, a layer of odd shape: one sentence, and no folder."""
    source = make_tiny_model("llama", tmp_path / "tiny")  # its MLP has rows of 160
    out = tmp_path / "stored"
    refused = [
        ([str(source), str(source)], 1, "is there already"),
        ([str(tmp_path / "none"), str(out)], 1, "neither a folder nor on the hub"),
        ([str(source), str(out), "--quantization", "nf4"], 1, "down_proj: .* 160 inputs"),
        ([str(source), str(out), "--double-quant"], 2, "int8 has one scale"),
    ]
    for argv, code, reason in refused:
        assert quantize(argv) == code
        assert re.search(reason, capsys.readouterr().err.splitlines()[-1])
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]
    assert quantize([str(source), str(out)]) == 0
    assert quantize([str(out), str(tmp_path / "again")]) == 1
    assert "stored as int8 already" in capsys.readouterr().err


def test_the_worker_has_the_command(tmp_path, monkeypatch, capsys):
    """Its first word alone tells it from serving, which would want schedulers."""
    out = tmp_path / "there"
    out.mkdir()
    monkeypatch.setattr("sys.argv", ["headrace-worker", "quantize", "IN", str(out)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"headrace-worker quantize: {out} is there already\n"
