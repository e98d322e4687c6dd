"""Imports bitsandbytes when a quantized model is loaded, and not before: it is slow to import and gives advice."""

import logging
from typing import Any


def bitsandbytes() -> Any:
    """The library, without its warning that optional kernels could be downloaded."""
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    import bitsandbytes as library

    return library
