"""Writes a quantized checkpoint that transformers loads, with the very numbers that quantizing at load gives.

transformers would round int8 weights by way of float16. Here each layer is quantized as the worker does it and put
into bitsandbytes' own layer, which ``save_pretrained`` writes.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers.quantizers.auto import AutoHfQuantizer

from common.domain import Quantization
from worker.engine.model_settings import ModelSettings
from worker.model.checkpoint import find_checkpoint
from worker.model.errors import ModelRefused
from worker.model.experts import has_experts
from worker.model.four_bit_linear import check_alignment, four_bit_layer
from worker.model.int8_linear import quantize_rows
from worker.model.memory import check_weights_fit
from worker.model.quantize import linears, weight_and_bias
from worker.model.quiet_bitsandbytes import bitsandbytes
from worker.model.stored import stored_quantization
from worker.model.support import check_model
from worker.model.weights import read_config, read_model, weight_bytes

_CPU = torch.device("cpu")
_BESIDE_WEIGHTS = ("*.json", "*.jinja", "*.model", "*.txt")
_WRITTEN_ANEW = {"config.json", "model.safetensors.index.json"}


def save_quantized(settings: ModelSettings, out: Path, progress: Callable[[str], None]) -> None:
    """Quantize the linear layers of ``settings.model`` and write all of it to ``out``, a folder that is not there yet.

    Raises:
        ModelLoadError: the model cannot be read, or not be stored so.
        OSError: ``out`` is there, or cannot be written.
    """
    folder, model = read_source(settings, out, progress)
    progress(f"quantizing to {settings.storage}")
    _quantize(model, settings.storage, settings.double_quant)
    progress(f"writing {out}")
    write_checkpoint(model, folder, out)


def read_source(
    settings: ModelSettings, out: Path, progress: Callable[[str], None]
) -> tuple[Path, Any]:
    """The checkpoint's folder and its model, in plain numbers on the CPU; ``out`` is not there yet.

    Raises:
        ModelLoadError: it cannot be read, or is nothing that is written quantized.
        FileExistsError: ``out`` is there.
    """
    if out.exists():
        raise FileExistsError(f"{out} is there already")
    quiet: Any = transformers.utils.logging  # untyped
    quiet.disable_progress_bar()
    folder = find_checkpoint(settings, progress)
    config = read_config(folder)
    if (stored := stored_quantization(config)) is not None:
        raise ModelRefused(f"{folder.name}: the checkpoint is stored as {stored.name} already")
    check_weights_fit(weight_bytes(folder), _CPU)
    progress(f"loading {folder.name}")
    model = read_model(folder, config, "auto", {"": _CPU})
    check_model(model)
    if has_experts(model):
        raise ModelRefused(
            f"{folder.name}: quantized checkpoints have no form for mixtures of experts here; quantize at load"
        )
    return folder, model


def _quantize(model: Any, how: Quantization, double_quant: bool) -> None:
    plain = [
        name for name, module in model.named_modules() if module is model.get_output_embeddings()
    ]
    for parent, name, layer in linears(model):
        weight, bias = weight_and_bias(layer)
        made = (
            _int8_layer(weight)
            if how is Quantization.INT8
            else _four_bit_layer(name, weight, how, double_quant=double_quant)
        )
        made.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        setattr(parent, name, made)
    config: Any = transformers.BitsAndBytesConfig
    described = (
        config(load_in_8bit=True, llm_int8_skip_modules=plain)
        if how is Quantization.INT8
        else config(
            load_in_4bit=True,
            llm_int8_skip_modules=plain,
            bnb_4bit_quant_type=how.value,
            bnb_4bit_use_double_quant=double_quant,
            bnb_4bit_compute_dtype=model.dtype,
        )
    )
    model.hf_quantizer = AutoHfQuantizer.from_config(described)
    model.config.quantization_config = described


def _int8_layer(weight: torch.Tensor) -> Any:
    nn8 = bitsandbytes().nn
    steps, largest = quantize_rows(weight)
    made = nn8.Linear8bitLt(
        weight.shape[1], weight.shape[0], bias=False, has_fp16_weights=False, device="meta"
    )
    made.weight = nn8.Int8Params(
        steps, requires_grad=False, has_fp16_weights=False, CB=steps, SCB=largest
    )
    return made


def _four_bit_layer(
    name: str, weight: torch.Tensor, how: Quantization, *, double_quant: bool
) -> Any:
    check_alignment(name, *weight.shape)
    return four_bit_layer(weight, how, double_quant=double_quant, compute_dtype=weight.dtype)


def write_checkpoint(model: Any, folder: Path, out: Path) -> None:
    """All or nothing: what is interrupted leaves no folder that looks like a checkpoint."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as base:
        half = Path(base) / out.name
        model.save_pretrained(half)
        for weights in half.glob("*.safetensors"):  # written for their owner alone
            weights.chmod((half / "config.json").stat().st_mode)
        for kind in _BESIDE_WEIGHTS:
            for path in folder.glob(kind):
                if path.name not in _WRITTEN_ANEW:
                    shutil.copyfile(path, half / path.name)
        os.rename(half, out)
