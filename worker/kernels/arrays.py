"""Memory that kernels read: aligned arrays, weights in the kernels' order."""

import mmap
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from worker.kernels.library import load
from worker.kernels.structs import WeightFormat

_LINE_BYTES = 64
_SMALL_BYTES = 1 << 16
_REGION_BYTES = 64 << 20
_LARGE_PAGE_BYTES = 2 << 20

Array = npt.NDArray[np.generic]


class _Regions:
    """Memory in large pages, handed out piece by piece: a processor fetches ahead only inside a page.

    A region's memory is only taken where something is written, and stays as long as one of its pieces is used.
    """

    def __init__(self) -> None:
        self._region: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._used = 0

    def take(self, size: int) -> npt.NDArray[np.uint8]:
        """``size`` zeroed bytes that begin at a cache line."""
        if self._used + size > len(self._region):
            self._region = _large_pages(max(size, _REGION_BYTES))
            self._used = 0
        piece = self._region[self._used : self._used + size]
        self._used += round_up(size)
        return piece


def _large_pages(size: int) -> npt.NDArray[np.uint8]:
    # What is shared, as is the default, gets small pages.
    length = round_up(size, _LARGE_PAGE_BYTES) + _LARGE_PAGE_BYTES
    pages = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(pages, np.uint8)
    return whole[-whole.ctypes.data % _LARGE_PAGE_BYTES :]


_regions = _Regions()


def zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """Zeroed memory that begins at a cache line; of all but small arrays in large pages."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size >= _SMALL_BYTES:
        return _regions.take(size).view(dtype).reshape(shape)
    pages = np.zeros(size + _LINE_BYTES, np.uint8)
    first = -pages.ctypes.data % _LINE_BYTES
    return pages[first : first + size].view(dtype).reshape(shape)


def round_up(value: int, step: int = 64) -> int:
    """The next multiple of ``step``."""
    return -(-value // step) * step


def padded(values: npt.NDArray[np.float32], length: int) -> npt.NDArray[np.generic]:
    """``values`` with zeros behind them."""
    out = zeros((length,), np.float32)
    out[: len(values)] = values
    return out


@dataclass(frozen=True, slots=True)
class Packed:
    """Weights in the order of the products, [n, k] with padding."""

    format: WeightFormat
    data: Array
    n: int
    k: int


@dataclass(frozen=True, slots=True)
class Blocks:
    """Weights [n, k] in blocks of 32 inputs: steps, what a step of each block is worth, and where its steps begin.

    A weight is ``steps * scales + least``; ``least`` is None where blocks have a sign instead. Scales and ``least`` are
    float16 [n, k / 32].
    """

    steps: Array
    scales: Array
    least: Array | None

    def rows(self, index: npt.NDArray[np.intp]) -> "Blocks":
        """Some rows, in another order; -1 stands for a row of zeros."""
        picked = (self.steps, self.scales, self.least)
        return Blocks(*(None if a is None else take_rows(a, index) for a in picked))  # type: ignore[arg-type]


def take_rows(array: Array, index: npt.NDArray[np.intp]) -> Array:
    """Some rows, in another order; -1 stands for a row of zeros."""
    out = array[index]
    out[index < 0] = 0
    return out


def pack_int8(rows: npt.NDArray[np.int8]) -> Packed:
    """Int8 weights [outputs, inputs], whose rows are scaled by the caller."""
    rows = np.ascontiguousarray(rows)
    n, k = rows.shape
    out = zeros((round_up(n) * round_up(k),), np.uint8)
    load().hk_pack_int8(rows.ctypes.data, n, k, out.ctypes.data)
    return Packed(WeightFormat.INT8_ROWS, out, round_up(n), round_up(k))


def pack_bfloat16(rows: npt.NDArray[np.float32]) -> Packed:
    """Embeddings or head [vocabulary, hidden] as bfloat16."""
    rows = np.ascontiguousarray(rows)
    n, k = rows.shape
    out = zeros((round_up(n) * round_up(k),), np.uint16)
    load().hk_pack_bfloat16(rows.ctypes.data, n, k, out.ctypes.data)
    return Packed(WeightFormat.BFLOAT16, out, round_up(n), round_up(k))


def pack_blocks(blocks: Blocks) -> Packed:
    """Blocks of 4 bits where they have a least value, else of 8."""
    steps, scales = np.ascontiguousarray(blocks.steps), np.ascontiguousarray(blocks.scales)
    n, k = steps.shape
    size = round_up(n) * round_up(k) // 32
    if blocks.least is None:
        out = zeros((size * (32 + 2),), np.uint8)
        load().hk_pack_blocks8(steps.ctypes.data, scales.ctypes.data, n, k, out.ctypes.data)
        return Packed(WeightFormat.BLOCKS8, out, round_up(n), round_up(k))
    least = np.ascontiguousarray(blocks.least)
    out = zeros((size * (16 + 4),), np.uint8)
    load().hk_pack_blocks4(
        steps.ctypes.data, scales.ctypes.data, least.ctypes.data, n, k, out.ctypes.data
    )
    return Packed(WeightFormat.BLOCKS4, out, round_up(n), round_up(k))
