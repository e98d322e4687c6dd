"""Names for what a model is: ``revision`` for its content, ``fingerprint`` for everything that can change a token."""

import hashlib
import importlib.metadata
import os
from pathlib import Path

import torch

from worker.engine.model_settings import ModelSettings
from worker.model.tokenizer import TokenizerParts

GENERIC_KERNELS = "generic-4"
"""The arithmetic of the generic runner; raise the number when a change can alter a token."""

_SAMPLING = "sampling-3"
"""The arithmetic from logits to tokens; the same rule."""

_WHOLE_FILE_BYTES = 16 << 20
_SAMPLES = 256
_SAMPLE_BYTES = 64 << 10


def revision(folder: Path, tokenizer: TokenizerParts, settings: ModelSettings) -> str:
    """A hash over weights, configuration, tokenizer, template and quantization."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in {".safetensors", ".bin"} or path.name == "config.json":
            digest.update(path.name.encode())
            _add_file(digest, path)
    digest.update(tokenizer.tokenizer_json)
    digest.update(tokenizer.chat_template.encode())
    digest.update(f"{settings.storage} {settings.double_quant}".encode())
    return digest.hexdigest()[:32]


def fingerprint(
    revision: str, dtype: torch.dtype, device: torch.device, kernels: str = GENERIC_KERNELS
) -> str:
    """The revision and all that computes with it."""
    parts = [revision, str(dtype), device.type, kernels, _SAMPLING]
    parts += [
        f"{name}={importlib.metadata.version(name)}"
        for name in ("torch", "transformers", "bitsandbytes")
    ]
    if device.type == "cuda":
        parts.append(torch.cuda.get_device_name(device))
    else:
        parts.append(torch.backends.cpu.get_cpu_capability())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _add_file(digest: "hashlib._Hash", path: Path) -> None:
    """Large files by size and evenly spread samples: training moves all weights of a tensor, never a few bytes."""
    size = path.stat().st_size
    digest.update(str(size).encode())
    with path.open("rb") as file:
        if size <= _WHOLE_FILE_BYTES:
            digest.update(file.read())
            return
        for index in range(_SAMPLES):
            file.seek((size - _SAMPLE_BYTES) * index // (_SAMPLES - 1), os.SEEK_SET)
            digest.update(file.read(_SAMPLE_BYTES))
