"""Checkpoints in GPTQ and AWQ, made here or by the worker: the tokens are those of their numbers."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from common.domain import Quantization
from tests.support.drive_runner import Stream, drive
from tests.support.time_scale import scaled
from tests.support.tiny_models import make_tiny_model
from worker.engine.model_settings import ModelSettings, RunnerKind
from worker.model.load import load_model

pytestmark = [pytest.mark.system, pytest.mark.timeout(scaled(600))]

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / ".venv/gptq"
GROUP = 32
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)

Packed = dict[str, torch.Tensor]


def _words(nibbles: torch.Tensor) -> torch.Tensor:
    """Eight numbers of 4 bits [..., 8] in one of 32, the first lowest."""
    words = sum(nibbles[..., i].long() << 4 * i for i in range(8))
    assert isinstance(words, torch.Tensor)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).int()


def _down(x: torch.Tensor) -> torch.Tensor:
    """Eight rows become one."""
    return _words(x.view(x.shape[0] // 8, 8, x.shape[1]).transpose(1, 2))


def _across(x: torch.Tensor) -> torch.Tensor:
    """Eight columns become one."""
    return _words(x.reshape(x.shape[0], x.shape[1] // 8, 8))


def gptq(steps: torch.Tensor, scales: torch.Tensor) -> Packed:
    """Steps [inputs, outputs] from 0 to 15 around 8, which is stored as 7; scales [groups, outputs]."""
    return {
        "qweight": _down(steps),
        "qzeros": _across(torch.full_like(scales, 7)),
        "scales": scales,
        "g_idx": (torch.arange(len(steps)) // GROUP).int(),
    }


def awq(steps: torch.Tensor, scales: torch.Tensor) -> Packed:
    """The same along the other side, eight columns in an order of their own."""

    def mixed(x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], -1, 8)[..., AWQ_ORDER].reshape(x.shape)

    return {
        "qweight": _across(mixed(steps)),
        "qzeros": _across(mixed(torch.full_like(scales, 8))),
        "scales": scales,
    }


METHODS = {
    "gptq": (gptq, {"backend": "torch", "desc_act": False, "sym": True}),
    "awq": (awq, {"backend": "torch_awq", "zero_point": True, "version": "gemm"}),
}


def make_checkpoint(
    folder: Path, method: str, pack: Callable[..., Packed], fields: dict[str, object]
) -> tuple[Path, Path]:
    """A tiny model in 4 bits, and a twin that has the same numbers as plain ones."""
    twin = make_tiny_model("llama", folder / "twin")
    made = shutil.copytree(twin, folder / method)
    packed: Packed = {}
    plain: Packed = {}
    for name, weight in load_file(twin / "model.safetensors").items():
        if not name.endswith("_proj.weight"):
            packed[name] = plain[name] = weight
            continue
        groups = weight.view(len(weight), -1, GROUP)
        scales = (groups.abs().amax(dim=-1) / 7).half()
        steps = torch.round(groups / scales.float().unsqueeze(-1)).clamp(-8, 7)
        plain[name] = (steps * scales.float().unsqueeze(-1)).view_as(weight)
        columns = (steps + 8).view_as(weight).t().contiguous()
        for part, tensor in pack(columns, scales.t().contiguous()).items():
            packed[name.replace("weight", part)] = tensor
    save_file(packed, made / "model.safetensors", metadata={"format": "pt"})
    save_file(plain, twin / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((made / "config.json").read_text())
    how = {"quant_method": method, "bits": 4, "group_size": GROUP, **fields}
    (made / "config.json").write_text(json.dumps(config | {"quantization_config": how}))
    return made, twin


def greedy(folder: Path, **changes: object) -> list[list[int]]:
    """What the generic runner draws behind some prompts."""
    settings = ModelSettings(
        model=str(folder),
        kv_blocks=64,
        runner=RunnerKind.GENERIC,
        dtype="float32",
        **changes,  # type: ignore[arg-type]
    )
    loaded = load_model(settings, lambda _: None)
    streams = [Stream([5, 6, 7, n], 12) for n in range(10, 14)]
    drive(loaded.runner, streams)
    return [stream.tokens for stream in streams]


def run_beside_packages(code: str, *arguments: Path) -> str:
    """What such code prints; the packages are seen by the process that runs it alone."""
    assert (PACKAGES / "complete").exists(), "make test-system fetches them"
    run = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": f"{PACKAGES}{os.pathsep}{ROOT}",
            "TORCHDYNAMO_DISABLE": "1",
            "GPTQMODEL_DISABLE_PACK_EXT": "1",  # as the worker's command does
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout


def greedy_beside_packages(folder: Path, before: str = "", *arguments: Path) -> list[list[int]]:
    """As `greedy`, of a checkpoint that needs them, behind what has to be done before."""
    code = (
        f"import json, sys; from pathlib import Path; from tests.system.test_gptq_awq import greedy\n{before}\n"
        "print('TOKENS', json.dumps(greedy(Path(sys.argv[1]))))"
    )
    lines = run_beside_packages(code, folder, *arguments).splitlines()
    (line,) = [line for line in lines if line.startswith("TOKENS ")]
    found: list[list[int]] = json.loads(line.removeprefix("TOKENS "))
    return found


@pytest.mark.parametrize("method", METHODS)
def test_tokens_are_those_of_the_numbers(method: str, tmp_path: Path) -> None:
    """As from a plain checkpoint of these numbers."""
    made, twin = make_checkpoint(tmp_path, method, *METHODS[method])
    assert greedy_beside_packages(made) == greedy(twin, quantization=Quantization.NONE)


def unpacked(path: Path) -> Packed:
    """The numbers that a checkpoint in GPTQ's second form holds, by the names of plain layers."""
    found = load_file(path)
    plain = {name: tensor for name, tensor in found.items() if name.endswith("weight")}
    for name in [name for name in found if name.endswith("qweight")]:
        base = name.removesuffix("qweight")
        shifts = torch.arange(0, 32, 4)
        words = found[name].long() & 0xFFFFFFFF
        steps = (words[:, None, :] >> shifts[None, :, None] & 15).reshape(-1, words.shape[1])
        zeros = ((found[base + "qzeros"].long()[:, :, None] >> shifts) & 15).flatten(1)
        groups = found[base + "g_idx"].long()
        scales = found[base + "scales"].float()
        del plain[name]
        plain[base + "weight"] = ((steps - zeros[groups]) * scales[groups]).t().contiguous()
    return plain


def outputs(model: torch.nn.Module, token_ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(token_ids).logits
    return found


def test_a_text_is_what_the_worker_quantizes_by(tmp_path: Path) -> None:
    """`quantize` writes what it serves, tokens of its numbers, nearer to the model than rounding alone on such texts."""
    _, twin = make_checkpoint(tmp_path, "gptq", *METHODS["gptq"])
    source = make_tiny_model("llama", tmp_path / "source")
    text = tmp_path / "text"
    text.write_text("The miller opened the sluice; the wheel turned all night. " * 120)
    out = tmp_path / "out"
    quantized = (
        "from worker.quantize_command import quantize\n"
        "out, source, text = sys.argv[1:]\n"
        "assert quantize([source, out, '--quantization', 'gptq', '--calibration', text]) == 0"
    )
    tokens = greedy_beside_packages(out, quantized, source, text)
    described = json.loads((out / "config.json").read_text())["quantization_config"]
    assert (described["checkpoint_format"], described["group_size"]) == ("gptq_v2", GROUP)
    same = shutil.copytree(source, tmp_path / "same")
    save_file(unpacked(out / "model.safetensors"), same / "model.safetensors", {"format": "pt"})
    assert tokens == greedy(same, quantization=Quantization.NONE)
    read = transformers.AutoModelForCausalLM.from_pretrained
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    token_ids = tokenizer(text.read_text()[:300], return_tensors="pt").input_ids
    wanted = outputs(read(source), token_ids)
    by_text, by_rounding = (
        float((outputs(read(folder), token_ids) - wanted).square().mean())
        for folder in (same, twin)
    )
    assert by_text < by_rounding
