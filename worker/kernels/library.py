"""Finds and loads the compiled kernels, if they were built."""

import ctypes
import functools
import sys
from pathlib import Path

from worker.kernels.structs import ABI, Linear, Model, Step

# Beside this file in a wheel; an editable installation keeps it in the environment (see setup.py).
_FOLDERS = (Path(__file__).parent, Path(sys.prefix) / "lib/headrace")
_POINTER = ctypes.c_void_p
_INT = ctypes.c_int32
_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "hk_sources": (ctypes.c_char_p, []),
    "hk_isas": (ctypes.c_char_p, []),
    "hk_part_names": (ctypes.c_char_p, []),
    "hk_engine_new": (_POINTER, [ctypes.c_char_p, _INT]),
    "hk_engine_free": (None, [_POINTER]),
    "hk_engine_threads": (_INT, [_POINTER]),
    "hk_run": (_INT, [_POINTER, ctypes.POINTER(Model), ctypes.POINTER(Step)]),
    "hk_sample": (None, [_POINTER, _POINTER, _INT, _INT, _POINTER, _POINTER]),
    "hk_find_broken": (_INT, [_POINTER, _POINTER, _INT, _INT, _POINTER]),
    "hk_score_rows": (None, [_POINTER, _POINTER, _INT, _INT, _POINTER, _POINTER, _INT, _POINTER]),
    "hk_sample_scratch": (ctypes.c_int64, [_INT]),
    "hk_part_times": (None, [_POINTER, _POINTER]),
    "hk_pack_int8": (None, [_POINTER, _INT, _INT, _POINTER]),
    "hk_pack_bfloat16": (None, [_POINTER, _INT, _INT, _POINTER]),
    "hk_pack_blocks8": (None, [*[_POINTER] * 2, _INT, _INT, _POINTER]),
    "hk_pack_codes4": (None, [*[_POINTER] * 2, _INT, _INT, _POINTER]),
    "hk_pack_blocks4": (None, [*[_POINTER] * 3, _INT, _INT, _POINTER]),
    "hk_quantize": (None, [_POINTER, _POINTER, _INT, _INT, *[_POINTER] * 3]),
    "hk_norm_quantize": (
        None,
        [_POINTER, _POINTER, _POINTER, _INT, _INT, _INT, ctypes.c_float, *[_POINTER] * 3],
    ),
    "hk_matmul": (
        None,
        [_POINTER, ctypes.POINTER(Linear), *[_POINTER] * 3, _INT, _POINTER, _INT],
    ),
    "hk_gate_up": (
        None,
        [_POINTER, ctypes.POINTER(Linear), *[_POINTER] * 3, _INT, *[_POINTER] * 3],
    ),
    "hk_head": (None, [_POINTER, ctypes.POINTER(Linear), _POINTER, _INT, _INT, _POINTER]),
    "hk_attention": (
        None,
        [_POINTER, ctypes.POINTER(Model), ctypes.POINTER(Step), _INT, _POINTER, _POINTER],
    ),
}


class KernelsMissing(Exception):
    """There are no kernels to load; the message says why."""


@functools.cache
def load() -> ctypes.CDLL:
    """The library, with its functions declared.

    Raises:
        KernelsMissing: it was not built, or from other sources than these.
    """
    found = [path for folder in _FOLDERS for path in sorted(folder.glob("_native*.so"))]
    if not found:
        raise KernelsMissing("the CPU kernels were not built: no C++ compiler at installation")
    try:
        library = ctypes.CDLL(str(found[0]))
        abi = library.hk_abi()
    except (OSError, AttributeError) as error:
        raise KernelsMissing(f"{found[0].name} cannot be loaded: {error}") from error
    if abi != ABI:
        raise KernelsMissing(f"{found[0].name} was built from other sources: install again")
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


def instruction_sets() -> list[str]:
    """What this processor has kernels for, best first.

    Raises:
        KernelsMissing: as ``load`` does.
    """
    return load().hk_isas().decode().split()
