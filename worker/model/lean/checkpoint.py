"""A checkpoint's tensors by name, read from safetensors when they are asked for."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from worker.kernels.arrays import Blocks
from worker.model.lean.blocks import BlockFile
from worker.model.lean.spec import NotLean


class Checkpoint:
    """Tensors by name, from one or several files; each is read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        """Opens every file of ``folder``.

        Raises:
            NotLean: it holds no safetensors, or they are damaged.
        """
        self._files: dict[str, Any] = {}
        for path in sorted(folder.glob("*.safetensors")):
            try:
                file: Any = safe_open(path, framework="pt")
            except SafetensorError as error:
                raise NotLean(f"{path.name}: {error}") from error
            self._files |= dict.fromkeys(file.keys(), file)
        self._blocks = BlockFile(folder)
        self._read: set[str] = set()
        if not self._files:
            raise NotLean(f"a checkpoint without safetensors is not covered: {folder.name}")

    def unread(self) -> list[str]:
        """Names of tensors that nobody has asked for."""
        return sorted(set(self._files) - self._read)

    def blocks(self, name: str) -> Blocks | None:
        """The blocks that a GGUF file had for a tensor, where the checkpoint was converted from one."""
        found = self._blocks.read(name)
        if found is not None:
            self._read.add(name)
        return found

    @property
    def is_quantized(self) -> bool:
        """Whether bitsandbytes stored tensors in 4 bits."""
        return any(".quant_state." in name for name in self._files)

    def parts(self, name: str) -> dict[str, torch.Tensor]:
        """A tensor as it is stored, under an empty name, and what is stored under longer names that begin with its own."""
        names = [key for key in self._files if key == name or key.startswith(f"{name}.")]
        self._read.update(names)
        return {
            key.removeprefix(name).removeprefix("."): self._files[key].get_tensor(key)
            for key in names
        }

    def read(self, name: str, *shape: int) -> torch.Tensor:
        """A tensor as it is stored.

        Raises:
            NotLean: there is none of this name and shape, so the model is not what its configuration says.
        """
        if name not in self._files:
            raise NotLean(f"the checkpoint has no tensor {name}")
        self._read.add(name)
        tensor: torch.Tensor = self._files[name].get_tensor(name)
        if tuple(tensor.shape) != shape or not tensor.is_floating_point():
            raise NotLean(f"{name} is not covered: {tensor.dtype} of {tuple(tensor.shape)}")
        return tensor
