"""Turns a GGUF file into an ordinary checkpoint folder, once, in the model cache.

The folder appears by a rename, complete or not at all. Several workers that start together wait for the first of
them; a crash leaves at most a folder with a temporary name, which the next conversion removes.
"""

import contextlib
import hashlib
import io
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from filelock import FileLock
from gguf import GGUFReader
from safetensors.torch import save_file

from worker.model.gguf_tokenizer import build_tokenizer
from worker.model.lean.blocks import save_blocks
from worker.model.weights import check_whole

_FORMAT = 2
"""Raise when a conversion would give another result than before: older folders are then not found any more."""

_LOCK_TIMEOUT_S = 900.0
"""Longer than the conversion of a model that fits this kind of machine takes; then something is wrong."""


def converted(gguf: Path, cache: Path, progress: Callable[[str], None]) -> Path:
    """The checkpoint folder made from ``gguf``, converting it if that has not happened yet.

    Raises:
        TokenizerRefused: its tokenizer is of an unknown kind.
        ModelRefused: tensors of the model are not in it.
        TimeoutError: another conversion holds the lock for too long.
    """
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    target = cache / f"{gguf.stem.lower()}-{digest[:16]}-v{_FORMAT}"
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f"{target.name}.lock", timeout=_LOCK_TIMEOUT_S):
        if not target.is_dir():
            progress(f"converting {gguf.name}, once")
            _sweep(cache, target.name)
            scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=cache))
            _convert(gguf, scratch)
            _open_to_readers(scratch)
            scratch.rename(target)
    return target


def _sweep(cache: Path, name: str) -> None:
    for leftover in cache.glob(f".{name}-*"):
        shutil.rmtree(leftover)


def _open_to_readers(folder: Path) -> None:
    """Temporary folders are private; the cache may be shared."""
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)


def _convert(gguf: Path, folder: Path) -> None:
    reader = GGUFReader(gguf)
    metadata = {
        key: field.contents()
        for key, field in reader.fields.items()
        if key.startswith(("general.", "tokenizer."))
    }
    build_tokenizer(metadata).save_pretrained(folder)
    models: Any = transformers.AutoModelForCausalLM  # its types know nothing of what it found
    # transformers draws a progress bar here that no setting turns off; errors are exceptions all the same.
    with contextlib.redirect_stderr(io.StringIO()):
        model, found = models.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32, output_loading_info=True
        )
    check_whole(gguf.name, found)
    # save_pretrained refuses what it believes to be quantized; the tensors are plain by now.
    config = model.config
    del config.quantization_config
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    tensors = {name: value.contiguous() for name, value in model.state_dict().items()}
    if config.tie_word_embeddings:
        for name in model._tied_weights_keys:
            tensors.pop(name, None)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    save_blocks(reader, tensors, folder)
