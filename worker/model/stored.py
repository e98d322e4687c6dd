"""Checkpoints that are quantized already: what they hold, and that nobody asks them for something else.

Of what others write, FP8 is turned into plain numbers when it is read, by transformers itself, on every device alike.
GPTQ and AWQ bring layers of their own, from packages that only they need. What keeps its weights packed in ordinary
linear layers until the first step is refused: no comparison here would notice that they had been misread.
"""

import dataclasses
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.domain import Quantization
from worker.engine.model_settings import ModelSettings
from worker.model.errors import ModelRefused

FP8 = "fp8"
GPTQ = "gptq"
_PACKAGES = {FP8: (), GPTQ: ("optimum", "gptqmodel"), "awq": ("gptqmodel",)}
"""What others write, and the packages by which transformers reads it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """How a checkpoint's linear layers are stored; ``quantization`` is NONE where Headrace has no name for it."""

    name: str
    quantization: Quantization
    double_quant: bool


def stored_quantization(config: Any) -> Stored | None:
    """What ``config`` says of its weights; None where they are plain numbers.

    Raises:
        ModelRefused: they are quantized by a method that is not covered.
    """
    found = getattr(config, "quantization_config", None)
    if found is None:
        return None
    fields: Mapping[str, Any] = found if isinstance(found, Mapping) else found.to_dict()
    if fields.get("load_in_8bit"):
        return Stored(Quantization.INT8.value, Quantization.INT8, double_quant=False)
    if fields.get("load_in_4bit"):
        how = Quantization(fields.get("bnb_4bit_quant_type", Quantization.FP4))
        return Stored(how.value, how, bool(fields.get("bnb_4bit_use_double_quant")))
    method = str(fields.get("quant_method"))
    if method not in _PACKAGES:
        raise ModelRefused(f"checkpoints quantized by {method} are not supported")
    return Stored(method, Quantization.NONE, double_quant=False)


def check_packages(method: str) -> None:
    """Look for what a method needs.

    Raises:
        ModelRefused: packages are not here; all of them are named.
    """
    missing = [
        name for name in _PACKAGES.get(method, ()) if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise ModelRefused(
            f"needs {' and '.join(missing)}, which are not here: deploy/gptq_packages.sh fetches what it takes"
        )


def settle(settings: ModelSettings, config: Any) -> ModelSettings:
    """``settings`` with the quantization that the checkpoint has, if it has one.

    Raises:
        ModelRefused: another one is asked for, or one that is not covered is there.
    """
    stored = stored_quantization(config)
    if stored is None:
        return settings
    if settings.quantization is not None and settings.quantization.value != stored.name:
        raise ModelRefused(
            f"--quantization {settings.quantization}: the checkpoint is stored as {stored.name} already"
        )
    if settings.double_quant and not stored.double_quant:
        raise ModelRefused(
            f"--double-quant: the checkpoint is stored as {stored.name} without it already"
        )
    return dataclasses.replace(
        settings, quantization=stored.quantization, double_quant=stored.double_quant
    )
