"""From a checkpoint folder to a decoder on its device, its linear layers as the settings or the checkpoint say, and no tensor missing."""

import copy
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open

from common.domain import Quantization
from worker.engine.model_settings import ModelSettings
from worker.model.decoder import Decoder
from worker.model.errors import ModelRefused
from worker.model.memory import MIB, check_weights_fit
from worker.model.placement import DeviceMap, check_placed
from worker.model.quantize import PlainLayers, adopt_linears, replace_linears
from worker.model.quiet_bitsandbytes import bitsandbytes
from worker.model.stored import FP8, check_packages, stored_quantization
from worker.model.support import check_config, check_model


def read_config(folder: Path) -> Any:
    """The configuration of a model that may run here.

    Raises:
        ModelRefused: it cannot be read, or is of another kind.
    """
    try:
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (ValueError, OSError, KeyError) as error:
        raise ModelRefused(f"{folder}: {error}") from error
    check_config(config)
    return config


def load_decoder(
    settings: ModelSettings,
    config: Any,
    folder: Path,
    dtype: torch.dtype,
    places: DeviceMap,
    progress: Callable[[str], None],
) -> Decoder:
    """The model of ``folder``, ready to compute.

    Raises:
        ModelRefused: its weights cannot be read, or are not what runs here.
        ModelDoesNotFit: memory is too small for them.
    """
    how, stored = settings.storage, stored_quantization(config)
    is_plain = stored is None or stored.name == FP8
    size = weight_bytes(folder) if stored is None or not is_plain else plain_bytes(folder, dtype)
    if not isinstance(places, str):  # else it is transformers that looks what fits where
        check_weights_fit(size, *set(places.values()))
    progress(f"loading {folder.name}, {size // MIB} MiB")
    # Quantized, weights come as they are stored, so that rounding happens once.
    model = read_model(folder, config, dtype if how is Quantization.NONE else "auto", places)
    check_model(model)
    check_placed(model)
    plain = PlainLayers(dtype, is_exact=not settings.compile)
    if is_plain:
        if how is not Quantization.NONE:
            progress(f"quantizing to {how}")
        replace_linears(model, how, double_quant=settings.double_quant, plain=plain)
    elif how is not Quantization.NONE:
        adopt_linears(model, plain=plain)
    return Decoder(model)


def read_model(folder: Path, config: Any, dtype: torch.dtype | str, places: DeviceMap) -> Any:
    """The model as transformers has it, where ``places`` says.

    Raises:
        ModelRefused: its weights cannot be read, or not without a package that is not here.
    """
    config = copy.deepcopy(config)
    stored = stored_quantization(config)
    if stored is not None and stored.name == FP8:
        config.quantization_config["dequantize"] = True
    elif stored is not None and stored.quantization is not Quantization.NONE:
        bitsandbytes()  # before transformers imports it loudly
    models: Any = transformers.AutoModelForCausalLM  # its types know nothing of what it found
    try:
        if stored is not None:
            check_packages(stored.name)
        # The place is said at once: what is quantized may not be moved afterwards.
        model, found = models.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation="eager",
            use_safetensors=True,
            device_map=places,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,  # they are told like what is missing
            output_loading_info=True,
        )
    except (ValueError, OSError, KeyError, SafetensorError) as error:
        raise ModelRefused(f"{folder.name}: {error}") from error
    except (ImportError, RuntimeError, ModelRefused) as error:
        if stored is None:
            raise
        # What a method needs, a package or a GPU, transformers says in these.
        raise ModelRefused(f"{folder.name}: stored as {stored.name}: {error}") from error
    check_whole(folder.name, found)
    return model


def check_whole(name: str, found: Mapping[str, Any]) -> None:
    """Look at what transformers says of loading: where a tensor is missing, it puts random numbers and goes on.

    Raises:
        ModelRefused: some are not there, or of another shape.
    """
    lacking = [f"has no {key}" for key in sorted(found["missing_keys"])]
    lacking += [
        f"has {key} of {list(stored)}, not {list(wanted)}"
        for key, stored, wanted in sorted(found["mismatched_keys"])
    ]
    if lacking:
        more = f", nor {len(lacking) - 1} more as the model needs them" if lacking[1:] else ""
        raise ModelRefused(f"{name}: the checkpoint {lacking[0]}{more}")


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


def plain_bytes(folder: Path, dtype: torch.dtype) -> int:
    """Size of the weights in ``folder`` once each is a number of ``dtype``; scales are counted too, a small excess."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            total += sum(math.prod(file.get_slice(key).get_shape()) for key in file.keys())  # noqa: SIM118 - no mapping
    return total * dtype.itemsize


def _pickled(folder: Path) -> str:
    """A file of weights in torch's own format, if there is one."""
    names = (
        path.name for kind in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in folder.glob(kind)
    )
    return min(names, default="")
