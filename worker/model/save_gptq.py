"""Writes a checkpoint in GPTQ: 4 bits a weight, each rounded so that the layer does the same to a text as before.

transformers' own way of it, with the packages that it also reads such checkpoints with. A worker does not bring them.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from transformers.quantizers.auto import AutoHfQuantizer

from worker.engine.model_settings import ModelSettings
from worker.model.errors import ModelRefused
from worker.model.quantize import linears, weight_and_bias
from worker.model.save_quantized import read_source, write_checkpoint
from worker.model.stored import GPTQ, check_packages
from worker.model.tokenizer import read_tokenizer
from worker.text.stretches import stretches_of

PIECE_TOKENS = 512
MOST_PIECES = 64
"""Of the text: each linear layer sees all of them, which takes minutes on a CPU."""

_BITS = 4
_GROUPS = (128, 64, 32)
_PACKED = 32
"""Weights that lie together, along either side of a layer."""


def save_gptq(
    settings: ModelSettings, text: Path, out: Path, progress: Callable[[str], None]
) -> None:
    """Quantize ``settings.model`` by what its layers see of ``text`` and write it to ``out``, a folder that is not there yet.

    Raises:
        ModelLoadError: the model cannot be read, or not be stored so, or the text is too short.
        OSError: ``text`` cannot be read, or ``out`` is there, or cannot be written.
    """
    try:
        check_packages(GPTQ)
    except ModelRefused as error:
        raise ModelRefused(f"--quantization {GPTQ}: {error}") from error
    words = text.read_text(encoding="utf-8", errors="replace")
    folder, model = read_source(settings, out, progress)
    tokenizer = Tokenizer.from_str(read_tokenizer(folder).tokenizer_json.decode())
    pieces = calibration_of(tokenizer.encode(words, add_special_tokens=False).ids, text.name)
    group_size = _group_size(model)
    progress(f"quantizing to {GPTQ}: groups of {group_size}, {len(pieces)} pieces of {text.name}")
    dtype = model.dtype
    model.float()  # sums over a text are taken of its outputs
    model.hf_quantizer = _quantize(model, folder.name, pieces, group_size)
    for parameter in model.parameters():  # what is packed lies in buffers
        parameter.data = parameter.data.to(dtype)
    model.config.dtype = dtype
    progress(f"writing {out}")
    write_checkpoint(model, folder, out)


def calibration_of(token_ids: list[int], name: str) -> list[list[int]]:
    """What the layers are shown of a text.

    Raises:
        ModelRefused: it is shorter than one piece.
    """
    pieces = stretches_of(token_ids, PIECE_TOKENS, MOST_PIECES)
    if not pieces:
        raise ModelRefused(
            f"--calibration: {name} has {len(token_ids)} tokens, at least {PIECE_TOKENS} are needed"
        )
    return pieces


def _group_size(model: Any) -> int:
    """The largest that divides every layer's inputs.

    Raises:
        ModelRefused: a layer's shape cannot be packed.
    """
    shapes = {name: weight_and_bias(layer)[0].shape for _, name, layer in linears(model)}
    for name, (outputs, inputs) in shapes.items():
        if outputs % _PACKED or inputs % _PACKED:
            raise ModelRefused(
                f"{name}: {outputs} outputs and {inputs} inputs are not whole packs of {_PACKED}"
            )
    return next(
        size for size in _GROUPS if all(inputs % size == 0 for _, inputs in shapes.values())
    )


def _quantize(model: Any, name: str, pieces: list[list[int]], group_size: int) -> Any:
    """Replace the linear layers of ``model`` by packed ones; what saves it."""
    logging.getLogger("optimum.gptq.quantizer").setLevel(logging.WARNING)
    shown = [
        {"input_ids": torch.tensor([piece]), "attention_mask": torch.ones(1, len(piece)).long()}
        for piece in pieces
    ]
    config: Any = transformers.GPTQConfig
    # Layers that need no compiler are there for every device.
    how = config(bits=_BITS, group_size=group_size, dataset=shown, sym=True, backend="torch")
    try:
        quantizer: Any = AutoHfQuantizer.from_config(how, pre_quantized=False)
        quantizer.validate_environment()
        quantizer.optimum_quantizer.quantize_model(model, None)
    except (ImportError, RuntimeError, ValueError) as error:
        raise ModelRefused(f"{name}: {error}") from error
    told = quantizer.optimum_quantizer.to_dict()
    del told["dataset"]
    model.config.quantization_config = config.from_dict(told)
    return quantizer
