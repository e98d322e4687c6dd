"""Memory that kernels read: aligned arrays, weights in the kernels' order."""

import mmap

import numpy as np
import numpy.typing as npt

from worker.kernels.library import load

_LARGE_BYTES = 1 << 20

Array = npt.NDArray[np.generic]


def zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """Zeroed memory that begins at a page; large arrays ask for large pages."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    pages = mmap.mmap(-1, max(size, 1))
    if size >= _LARGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype, int(np.prod(shape))).reshape(shape)


def round_up(value: int, step: int = 64) -> int:
    """The next multiple of ``step``."""
    return -(-value // step) * step


def padded(values: npt.NDArray[np.float32], length: int) -> npt.NDArray[np.generic]:
    """``values`` with zeros behind them."""
    out = zeros((length,), np.float32)
    out[: len(values)] = values
    return out


def pack_int8(rows: npt.NDArray[np.int8]) -> Array:
    """Int8 weights [outputs, inputs] in the order of the products."""
    n, k = rows.shape
    rows = np.ascontiguousarray(rows)
    out = zeros((round_up(n), round_up(k)), np.uint8)
    load().hk_pack_int8(rows.ctypes.data, n, k, out.ctypes.data)
    return out


def pack_head(rows: npt.NDArray[np.float32]) -> Array:
    """Embeddings or head [vocabulary, hidden] as bfloat16, in the order of the products."""
    n, k = rows.shape
    rows = np.ascontiguousarray(rows)
    out = zeros((round_up(n), round_up(k)), np.uint16)
    load().hk_pack_head(rows.ctypes.data, n, k, out.ctypes.data)
    return out
