"""Checkpoints that are quantized already: written by us and read again, or written by others."""

import dataclasses
import importlib.util
import json
import re
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from common.domain import Quantization
from tests.support.drive_runner import Stream, drive
from tests.support.tiny_models import make_tiny_model, tiny_config, tiny_tokenizer
from worker.__main__ import main
from worker.engine.model_settings import ModelSettings, RunnerKind
from worker.model import memory
from worker.model.errors import ModelDoesNotFit, ModelRefused
from worker.model.load import load_model
from worker.model.save_gptq import calibration_of
from worker.quantize_command import quantize

pytestmark = pytest.mark.timeout(600)

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
    assert {path.stat().st_mode for path in out.iterdir()} == {
        (source / "config.json").stat().st_mode
    }
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
    with pytest.raises(ModelRefused, match="a checkpoint stored as int8 is not covered"):
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


def save_elsewhere(source, out, **described):
    """As anyone does it with transformers alone."""
    config = transformers.BitsAndBytesConfig(**described)
    model = transformers.AutoModelForCausalLM.from_pretrained(source, quantization_config=config)
    model.save_pretrained(out)
    tiny_tokenizer().save_pretrained(out)
    return out


def test_checkpoints_that_others_wrote_with_bitsandbytes(tmp_path):
    """Layers that were left plain stay so; what would be computed wrong is refused by name."""
    source = make_tiny_model(
        "qwen2", tmp_path / "tiny"
    )  # a head of its own, an MLP with rows of 160
    some = save_elsewhere(
        source, tmp_path / "some", load_in_8bit=True, llm_int8_skip_modules=["lm_head", "k_proj"]
    )
    loaded = load(some, dtype="float32")
    assert loaded.card.quantization == "int8"
    layers = loaded.runner._decoder.model.model.layers
    assert {type(layer.self_attn.k_proj).__name__ for layer in layers} == {"TiledLinear"}
    assert {type(layer.self_attn.q_proj).__name__ for layer in layers} == {"Int8Linear"}
    assert all(len(tokens) == 12 for tokens in greedy(loaded))
    head = save_elsewhere(
        source, tmp_path / "head", load_in_8bit=True, llm_int8_skip_modules=["k_proj"]
    )
    with pytest.raises(ModelRefused, match="a head that is quantized"):
        load(head)
    odd = save_elsewhere(source, tmp_path / "odd", load_in_4bit=True, bnb_4bit_quant_type="nf4")
    with pytest.raises(ModelRefused, match=r"down_proj: .* 160 inputs"):
        load(odd)


def make_fp8(folder):
    """A tiny model in blocks of 32 by 32, and a twin that has the same numbers as plain ones."""
    twin = make_tiny_model("llama", folder / "twin")
    made = shutil.copytree(twin, folder / "fp8")
    packed, plain = {}, {}
    for name, weight in load_file(twin / "model.safetensors").items():
        packed[name] = plain[name] = weight
        if name.endswith("_proj.weight"):
            rows, columns = weight.shape
            blocks = weight.view(rows // 32, 32, columns // 32, 32)
            scale = blocks.abs().amax(dim=(1, 3)) / 448
            wide = scale[:, None, :, None]
            small = (blocks / wide).to(torch.float8_e4m3fn)
            packed[name], packed[f"{name}_scale_inv"] = small.view_as(weight), scale
            plain[name] = (small.float() * wide).view_as(weight)
    save_file(packed, made / "model.safetensors", metadata={"format": "pt"})
    save_file(plain, twin / "model.safetensors", metadata={"format": "pt"})
    describe(made, quant_method="fp8", weight_block_size=[32, 32], activation_scheme="dynamic")
    return made, twin


def describe(folder, **quantization):
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(config))


def test_fp8_computes_with_the_numbers_that_it_stores(tmp_path, monkeypatch):
    """The same tokens as from a plain checkpoint of these numbers; it is called what it is, and nothing else."""
    made, twin = make_fp8(tmp_path)
    loaded = load(made, runner=RunnerKind.AUTO)
    assert loaded.card.quantization == "fp8"
    assert greedy(loaded) == greedy(load(twin, quantization=Quantization.NONE))
    for other in Quantization:
        with pytest.raises(ModelRefused, match=f"--quantization {other}: .* as fp8 already"):
            load(made, quantization=other)
    assert quantize([str(made), str(tmp_path / "out")]) == 1
    # Its numbers fill more memory than its file does.
    size = (made / "model.safetensors").stat().st_size
    monkeypatch.setattr(memory, "available_bytes", lambda _: size)
    with pytest.raises(ModelDoesNotFit, match="weights"):
        load(made)


@pytest.mark.parametrize(
    ("method", "here", "missing"),
    [
        ("gptq", (), "optimum and gptqmodel,"),
        ("gptq", ("optimum",), "needs gptqmodel,"),
        ("awq", ("optimum",), "needs gptqmodel,"),
    ],
)
def test_a_missing_package_is_named(tmp_path, monkeypatch, capsys, method, here, missing):
    """In one sentence: by who would serve such a checkpoint, and by who would write one."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "worker.model.stored.importlib.util.find_spec",
        lambda name, *rest: (
            (object() if name in here else None)
            if name in ("optimum", "gptqmodel")
            else find(name, *rest)
        ),
    )
    folder = make_tiny_model("llama", tmp_path / "tiny")
    text = tmp_path / "text"
    text.write_text("water " * 600)
    if method == "gptq":
        asked = [str(folder), str(tmp_path / "out"), "--quantization", "gptq"]
        assert quantize([*asked, "--calibration", str(text)]) == 1
        assert missing in capsys.readouterr().err
    describe(folder, quant_method=method, bits=4, group_size=32)
    with pytest.raises(ModelRefused, match=rf"tiny: stored as {method}: .*{missing}") as refused:
        load(folder)
    assert "\n" not in str(refused.value)


def test_a_text_is_for_the_method_that_looks_at_one(capsys):
    """Wanted by GPTQ, refused by the others, and long enough."""
    asked = ["IN", "OUT", "--quantization"]
    assert quantize([*asked, "gptq"]) == 2
    assert "--calibration: gptq" in capsys.readouterr().err
    assert quantize([*asked, "nf4", "--calibration", "FILE"]) == 2
    assert "--calibration: nf4 looks at nothing but the weights" in capsys.readouterr().err
    assert quantize([*asked, "gptq", "--calibration", "FILE", "--double-quant"]) == 2
    with pytest.raises(ModelRefused, match="text has 511 tokens, at least 512"):
        calibration_of([7] * 511, "text")
    assert calibration_of([7] * 512, "text") == [[7] * 512]


def test_a_method_that_nobody_here_knows_is_refused(tmp_path):
    """transformers would read packed weights as if they were plain ones."""
    folder = make_tiny_model("llama", tmp_path / "tiny")
    for method in ("compressed-tensors", "of tomorrow"):
        describe(folder, quant_method=method)
        with pytest.raises(ModelRefused, match=f"quantized by {method} are not supported"):
            load(folder)


def test_the_worker_has_the_command(tmp_path, monkeypatch, capsys):
    """Its first word alone tells it from serving, which would want schedulers."""
    out = tmp_path / "there"
    out.mkdir()
    monkeypatch.setattr("sys.argv", ["headrace-worker", "quantize", "IN", str(out)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"headrace-worker quantize: {out} is there already\n"
