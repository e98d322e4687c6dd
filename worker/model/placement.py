"""Where a model's modules go: all on one device, or spread over accelerators by transformers' ``device_map``.

A layer's keys and values lie where the layer is (``worker.kv.cache``). What transformers would keep in host memory or in
files beside an accelerator is refused: it would be copied in every step.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from worker.model.errors import DeviceMissing, ModelDoesNotFit, ModelRefused

STRATEGIES = ("auto", "balanced", "balanced_low_0", "sequential")
"""Ways in which transformers spreads a model by itself."""

DeviceMap = str | dict[str, torch.device]


def choose_device(name: str) -> torch.device:
    """The device that ``name`` means; ``auto`` takes CUDA where there is one.

    Raises:
        DeviceMissing: there is none of this name.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        # torch asserts where it was built without the device, and appends pages of advice elsewhere.
        reason = str(error).strip().partition("\n")[0]
        raise DeviceMissing(f"--device: there is no {name!r} here: {reason}") from error
    return device


def device_map(text: str | None, device: torch.device) -> DeviceMap:
    """What ``text`` says: a strategy, a JSON object of devices by module, or a file with one; everything on ``device`` if None.

    Raises:
        ModelRefused: it says none of these, or parts an accelerator's model with host memory.
        DeviceMissing: a device of it is not here.
    """
    if text is None:
        return {"": device}
    if text in STRATEGIES:
        return text
    try:
        found = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text())
    except (OSError, ValueError) as error:
        raise ModelRefused(
            f"--device-map: neither {', '.join(STRATEGIES)} nor JSON nor a file of it: {error}"
        ) from error
    if not isinstance(found, dict) or not found:
        raise ModelRefused('--device-map: must be an object as {"model.layers.0": "cuda:0", …}')
    if "disk" in found.values():
        raise ModelRefused(f"--device-map: {_REFUSED}")
    made = {name: choose_device(str(one)) for name, one in found.items()}
    _check_no_offload(made)
    return made


def check_placed(model: Any) -> None:
    """Refuse a model of which a strategy left something outside its accelerators.

    Raises:
        ModelDoesNotFit: they are too small for it.
    """
    placed = getattr(model, "hf_device_map", None) or {}
    try:
        _check_no_offload(placed)
    except ModelRefused as error:
        raise ModelDoesNotFit(f"the accelerators are too small for the model; {error}") from error


_REFUSED = "what lies in host memory or in files beside an accelerator is copied in every step; spread it over accelerators"


def _check_no_offload(placed: Mapping[str, object]) -> None:
    kinds = {str(one).partition(":")[0] for one in placed.values()}
    if len(kinds) > 1:
        raise ModelRefused(f"--device-map: {_REFUSED}")
