"""Which model to load and how much room it gets."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from common.domain import Quantization

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
"""Name of the model that needs no download beyond a package: see ``worker.model``."""


class RunnerKind(StrEnum):
    """What runs a model: ``auto`` takes the lean decoder where it covers the model."""

    AUTO = "auto"
    LEAN = "lean"
    GENERIC = "generic"


class KvDtype(StrEnum):
    """How keys and values are stored: ``model`` is what the model computes in, ``auto`` that, but int8 on the lean decoder."""

    AUTO = "auto"
    INT8 = "int8"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Everything that loading a model depends on.

    ``model`` is a directory, a hub id or ``DEFAULT_MODEL``. None leaves a choice to the loader: ``served_model_name`` from
    ``model``, ``quantization`` from a checkpoint that is quantized (else int8), ``dtype`` from the checkpoint, ``kv_blocks`` from ``kv_memory_mb``, that from measured memory,
    ``context_tokens`` from the checkpoint, ``threads`` from the machine, ``model_cache`` (where converted checkpoints are
    kept) from the home folder. ``device`` is a torch device, or ``auto``: CUDA where there is one, else the CPU.
    ``promised_bytes`` of memory are somebody else's, though they look free.
    ``device_map`` spreads the model over accelerators (``worker.model.placement``); ``compile`` has torch compile it:
    both are the generic runner's. ``max_seqs`` and ``max_batch_tokens`` bound the largest step, which warm-up and memory measurement have to try.
    """

    model: str = DEFAULT_MODEL
    served_model_name: str | None = None
    quantization: Quantization | None = None
    double_quant: bool = False
    dtype: str | None = None
    kv_dtype: KvDtype = KvDtype.AUTO
    block_size: int = 16
    kv_blocks: int | None = None
    kv_memory_mb: int | None = None
    context_tokens: int | None = None
    max_seqs: int = 64
    max_batch_tokens: int = 512
    threads: int | None = None
    device: str = "auto"
    device_map: str | None = None
    compile: bool = False
    model_cache: str | None = None
    runner: RunnerKind = RunnerKind.AUTO
    promised_bytes: int = 0

    @property
    def cache_folder(self) -> Path:
        """Where what is made of a model once is kept."""
        return Path(self.model_cache) if self.model_cache else Path.home() / ".cache/headrace"

    @property
    def wants_generic(self) -> bool:
        """Whether something is asked for that only the generic runner does."""
        return self.compile or self.device_map is not None

    @property
    def storage(self) -> Quantization:
        """How linear layers are stored, for all that is known of the checkpoint."""
        return self.quantization or Quantization.INT8
