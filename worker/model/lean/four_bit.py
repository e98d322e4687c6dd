"""bitsandbytes' 4-bit weights as codes for the kernels: made of floats as it makes them, or as a checkpoint stores them.

A block is 64 neighbours in memory or a multiple of that, so groups of 64 inputs always lie in one block. Its largest
magnitude, in a checkpoint perhaps stored in 8 bits itself, becomes the scale of its groups.
"""

import json
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import pad

from common.domain import Quantization
from worker.kernels.codes import GROUP, Codes
from worker.kernels.structs import WeightFormat
from worker.model.lean.spec import NotLean
from worker.model.quiet_bitsandbytes import bitsandbytes

FORMATS = {Quantization.NF4: WeightFormat.NF4, Quantization.FP4: WeightFormat.FP4}

_NF4 = [
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
]
_FP4 = [0.0, 0.0625, 8.0, 12.0, 4.0, 6.0, 2.0, 3.0]
VALUES = {
    WeightFormat.NF4: np.array(_NF4, np.float32),
    WeightFormat.FP4: np.array([*_FP4, *(-x for x in _FP4)], np.float32) / np.float32(12),
}
"""What each code is worth in bitsandbytes, of a block's largest magnitude."""

_ROWS = 32  # what the generic runner fills up to, which the mean of the scales sees
_NESTED_BLOCK = 256
_GROUPS_AT_ONCE = 2048  # with what is computed of them they stay in a core's cache

_Floats = npt.NDArray[np.float32]


def quantize(weight: torch.Tensor, how: Quantization, *, double_quant: bool = False) -> Codes:
    """``weight`` [outputs, inputs] as bitsandbytes quantizes it, in blocks of 64; ``double_quant`` rounds scales to 8 bits."""
    n, k = weight.shape
    filled = pad(weight.float(), (0, -k % GROUP, 0, -n % _ROWS)).numpy()
    groups = filled.reshape(-1, GROUP)
    largest: _Floats = np.abs(groups).max(axis=1)
    codes = np.empty(groups.shape, np.uint8)
    for first in range(0, len(groups), _GROUPS_AT_ONCE):
        part = slice(first, first + _GROUPS_AT_ONCE)
        codes[part] = _nearest(groups[part], largest[part], VALUES[FORMATS[how]])
    if double_quant:
        largest = _in_8_bits(torch.from_numpy(largest)).numpy()
    return _codes(how, codes.reshape(filled.shape)[:n, :k], largest.reshape(len(filled), -1)[:n])


def _nearest(groups: _Floats, largest: _Floats, values: _Floats) -> npt.NDArray[np.uint8]:
    order = np.argsort(values, kind="stable").astype(np.uint8)
    inverse = np.float32(1) / np.maximum(largest, np.float32(1e-38))
    parts = groups * inverse[:, None]
    above = np.zeros(groups.shape, np.uint8)
    # Of what a division would round above 1 no bound takes notice.
    for bound in (values[order[:-1]] + values[order[1:]]) / np.float32(2):
        above += parts > bound
    return order[above]


def _in_8_bits(largest: torch.Tensor) -> torch.Tensor:
    functional = bitsandbytes().functional
    offset = largest.mean()
    steps, state = functional.quantize_blockwise(largest - offset, blocksize=_NESTED_BLOCK)
    found: torch.Tensor = functional.dequantize_blockwise(steps, state) + offset
    return found


def from_stored(
    name: str, parts: Mapping[str, torch.Tensor], shape: tuple[int, int], how: Quantization
) -> Codes:
    """What bitsandbytes stored of the tensor ``name``: ``parts`` by the ends of their names, its bytes under ``""``.

    Raises:
        NotLean: these are not such weights, or blocks and groups do not fit together.
    """
    try:
        about = json.loads(parts[f"quant_state.bitsandbytes__{how}"].numpy().tobytes())
        pairs = parts[""].contiguous().view(torch.uint8).numpy().reshape(-1)
        block, stored = about["blocksize"], tuple(about["shape"])
        values, largest = parts["quant_map"].numpy(), _largest(parts, about)
    except (KeyError, ValueError) as error:
        raise NotLean(f"{name} is not stored as {how}: {error}") from error
    if stored != shape or block % GROUP or shape[1] % GROUP:
        raise NotLean(f"{name}: {how} of {stored} in blocks of {block} is not covered")
    if not np.array_equal(values, VALUES[FORMATS[how]]):
        raise NotLean(f"{name} has values that are not those of {how}")
    codes = np.stack((pairs >> 4, pairs & 15), axis=-1).reshape(shape)
    scales = largest.repeat(block // GROUP)[: codes.size // GROUP]
    return _codes(how, codes, scales.reshape(shape[0], -1))


def _largest(parts: Mapping[str, torch.Tensor], about: Mapping[str, object]) -> _Floats:
    largest = parts["absmax"].numpy()
    if "nested_absmax" not in parts:
        return largest.astype(np.float32)
    nested = parts["nested_absmax"].numpy().repeat(int(str(about["nested_blocksize"])))
    steps = parts["nested_quant_map"].numpy()[largest]
    found: _Floats = steps * nested[: len(steps)] + np.float32(str(about["nested_offset"]))
    return found


def _codes(how: Quantization, codes: npt.NDArray[np.uint8], largest: _Floats) -> Codes:
    scales = largest.astype(np.float16)
    return Codes(FORMATS[how], codes, scales)
