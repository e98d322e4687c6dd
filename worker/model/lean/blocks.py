"""Weights in blocks of 32: as a GGUF file has them, or made from floats in the same form.

A converted checkpoint keeps the file's own blocks beside its tensors, so that they run as they are:

    Q4_0   half scale, 16 bytes: scale * (nibble - 8)
    Q4_1   half scale, half smallest, 16 bytes: scale * nibble + smallest
    Q8_0   half scale, 32 bytes: scale * byte

The lower nibbles of a block are its first 16 weights.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

from worker.kernels.arrays import Blocks

FILE = "model.blocks"

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output": "lm_head",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
BLOCK = 32
"""Weights of one scale."""
_SMALLEST = np.finfo(np.float16).tiny

Bytes = npt.NDArray[np.uint8]


def _q4_0(raw: Bytes) -> Blocks:
    """What lies below zero is eight steps: a power of two, so the product is exact."""
    scales = _halves(raw, 0)
    return Blocks(_nibbles(raw[..., 2:]), scales, (scales * np.float16(-8)).astype(np.float16))


def _q4_1(raw: Bytes) -> Blocks:
    return Blocks(_nibbles(raw[..., 4:]), _halves(raw, 0), _halves(raw, 2))


def _q8_0(raw: Bytes) -> Blocks:
    steps = np.ascontiguousarray(raw[..., 2:]).view(np.int8)
    return Blocks(steps.reshape(len(raw), -1), _halves(raw, 0), None)


_KINDS: dict[str, tuple[int, Callable[[Bytes], Blocks]]] = {
    "Q4_0": (18, _q4_0),
    "Q4_1": (20, _q4_1),
    "Q8_0": (34, _q8_0),
}


def _halves(raw: Bytes, at: int) -> npt.NDArray[np.float16]:
    return np.ascontiguousarray(raw[..., at : at + 2]).view(np.float16)[..., 0]


def _nibbles(raw: Bytes) -> Bytes:
    return np.concatenate((raw & 15, raw >> 4), axis=-1).reshape(len(raw), -1)


def values(blocks: Blocks) -> npt.NDArray[np.float32]:
    """What the blocks stand for."""
    n, k = blocks.steps.shape
    steps = blocks.steps.reshape(n, -1, BLOCK).astype(np.float32)
    out = steps * blocks.scales[..., None].astype(np.float32)
    if blocks.least is not None:
        out += blocks.least[..., None].astype(np.float32)
    return out.reshape(n, k)


def save_blocks(gguf: Any, tensors: Mapping[str, torch.Tensor], folder: Path) -> None:
    """Keep the blocks of an open GGUF file that stand for exactly what ``tensors`` hold under the same name."""
    kept: dict[str, Bytes] = {}
    for tensor in gguf.tensors:
        kind, name = tensor.tensor_type.name, _name(tensor.name)
        if kind not in _KINDS or name not in tensors:
            continue
        raw = np.asarray(tensor.data, np.uint8)
        expected = tensors[name].numpy()
        for rows in _row_orders(raw, expected.shape):
            if np.array_equal(values(_parse(kind, rows)), expected):
                kept[f"{name}:{kind}"] = np.ascontiguousarray(rows)
                break
    save_file(kept, folder / FILE)


def _name(gguf_name: str) -> str:
    parts = gguf_name.removesuffix(".weight").split(".")
    name = _NAMES.get(parts[-1], "")
    if parts[0] == "blk":
        name = f"model.layers.{parts[1]}.{name}"
    return f"{name}.weight"


def _row_orders(raw: Bytes, shape: tuple[int, ...]) -> Iterator[Bytes]:
    """The file's rows as they are, and as they were before a head's halves were interleaved, for every number of heads."""
    if len(shape) != 2 or raw.shape[0] != shape[0]:
        return
    yield raw
    for heads in range(1, shape[0] // 2 + 1):
        if shape[0] % (heads * 2) == 0:
            yield raw.reshape(heads, -1, 2, raw.shape[1]).swapaxes(1, 2).reshape(raw.shape)


def _parse(kind: str, raw: Bytes) -> Blocks:
    size, parse = _KINDS[kind]
    return parse(raw.reshape(len(raw), -1, size))


class BlockFile:
    """The blocks that a conversion kept, by the names of their tensors; none where there was no conversion."""

    def __init__(self, folder: Path) -> None:
        """Opens the file, if there is one."""
        path = folder / FILE
        file: Any = safe_open(path, framework="numpy") if path.is_file() else None
        self._file = file
        self._kinds = {} if file is None else dict(key.rsplit(":", 1) for key in file.keys())  # noqa: SIM118

    def read(self, name: str) -> Blocks | None:
        """A tensor's own blocks."""
        kind = self._kinds.get(name)
        return None if kind is None else _parse(kind, self._file.get_tensor(f"{name}:{kind}"))


def blocks_of_4(weight: torch.Tensor) -> Blocks:
    """Q4_1 of floats: between a block's smallest and largest value lie 15 steps."""
    x = _in_blocks(weight)
    least = x.min(axis=-1).astype(np.float16)
    scales = ((x.max(axis=-1) - least) / 15).astype(np.float16)
    steps = np.rint((x - least[..., None].astype(np.float32)) / _divisor(scales))
    return Blocks(steps.clip(0, 15).astype(np.uint8).reshape(len(x), -1), scales, least)


def blocks_of_8(weight: torch.Tensor) -> Blocks:
    """Q8_0 of floats: a block's largest magnitude is 127 steps."""
    x = _in_blocks(weight)
    scales = (np.abs(x).max(axis=-1) / 127).astype(np.float16)
    steps = np.rint(x / _divisor(scales))
    return Blocks(steps.clip(-127, 127).astype(np.int8).reshape(len(x), -1), scales, None)


def _in_blocks(weight: torch.Tensor) -> npt.NDArray[np.float32]:
    return weight.float().numpy().reshape(len(weight), -1, BLOCK)


def _divisor(scales: npt.NDArray[np.float16]) -> npt.NDArray[np.float32]:
    """A block of equal values has no step."""
    return np.maximum(scales, _SMALLEST)[..., None].astype(np.float32)


def join(parts: list[Blocks]) -> Blocks:
    """Rows of several tensors, one tensor after another.

    All of them have a least value, or none has.
    """
    least = [part.least for part in parts if part.least is not None]
    assert len(least) in {0, len(parts)}
    return Blocks(
        np.concatenate([part.steps for part in parts]),
        np.concatenate([part.scales for part in parts]),
        np.concatenate(least) if least else None,
    )
