"""From a checkpoint folder to a decoder on its device, its linear layers as the settings or the checkpoint say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

from common.domain import Quantization
from worker.engine.model_settings import ModelSettings
from worker.model.decoder import Decoder
from worker.model.errors import ModelRefused
from worker.model.memory import check_weights_fit
from worker.model.quantize import adopt_linears, replace_linears
from worker.model.stored import stored_quantization
from worker.model.support import check_model


def load_decoder(
    settings: ModelSettings,
    config: Any,
    folder: Path,
    dtype: torch.dtype,
    device: torch.device,
    progress: Callable[[str], None],
) -> Decoder:
    """The model of ``folder``, ready to compute.

    Raises:
        ModelRefused: its weights cannot be read, or are not what runs here.
        ModelDoesNotFit: memory is too small for them.
    """
    check_weights_fit(weight_bytes(folder), device)
    progress(f"loading {folder.name}")
    exact = settings.storage is Quantization.NONE
    # Quantized, weights come as they are stored, so that rounding happens once.
    model = read_model(folder, dtype if exact else "auto", device)
    check_model(model)
    if stored_quantization(config) is not None:
        adopt_linears(model, dtype=dtype)
        return Decoder(model)
    if not exact:
        progress(f"quantizing to {settings.storage}")
    replace_linears(model, settings.storage, double_quant=settings.double_quant, dtype=dtype)
    return Decoder(model)


def read_model(folder: Path, dtype: torch.dtype | str, device: torch.device) -> Any:
    """The model as transformers has it, on ``device``.

    Raises:
        ModelRefused: its weights cannot be read.
    """
    try:
        # The place is said at once: what is quantized may not be moved afterwards.
        return transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            attn_implementation="eager",
            use_safetensors=True,
            device_map={"": device},
        )
    except (ValueError, OSError, KeyError) as error:
        raise ModelRefused(f"{folder.name}: {error}") from error


def weight_bytes(folder: Path) -> int:
    """Size of the weights in ``folder``.

    Raises:
        ModelRefused: there are none but pickles.
    """
    weights = [*folder.glob("*.safetensors")]
    if not weights and (pickled := _pickled(folder)):
        raise ModelRefused(
            f"{folder.name}: {pickled} is a pickle, which runs whatever code it holds when it is read;"
            " save the model as safetensors"
        )
    return sum(path.stat().st_size for path in weights)


def _pickled(folder: Path) -> str:
    """A file of weights in torch's own format, if there is one."""
    names = (
        path.name for kind in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in folder.glob(kind)
    )
    return min(names, default="")
