"""From a checkpoint folder to a lean runner, or a reason why not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from common.domain import Quantization
from worker.engine.model_settings import KvDtype, ModelSettings
from worker.kernels.library import KernelsMissing, instruction_sets
from worker.kernels.structs import KvFormat
from worker.kv.cache import LayerShape
from worker.model.lean.checkpoint import Checkpoint
from worker.model.lean.decoder import LeanDecoder, block_bytes, scratch_bytes
from worker.model.lean.runner import LeanRunner
from worker.model.lean.self_check import check_kernels
from worker.model.lean.spec import LeanSpec, NotLean, read_spec
from worker.model.lean.weights import load_weights
from worker.model.memory import MIB, check_weights_fit, pool_size

_VERSION = 4
"""Of the arithmetic; raise it when a change can alter a token."""


def load_lean(
    settings: ModelSettings,
    config: Any,
    folder: Path,
    device: torch.device,
    context_tokens: int,
    progress: Callable[[str], None],
) -> LeanRunner:
    """Read and pack the weights and take the pool's memory.

    Raises:
        NotLean: the model, its format or this machine is not covered, or the kernels do not compute what they should.
        ModelDoesNotFit: as the generic runner says it.
    """
    isa = _instruction_set(settings, device)
    kv = KvFormat.BFLOAT16 if settings.kv_dtype is KvDtype.MODEL else KvFormat.INT8
    check_kernels(isa, settings.storage, kv)
    spec = read_spec(config, settings.block_size)
    checkpoint = Checkpoint(folder)
    check_weights_fit(sum(p.stat().st_size for p in folder.glob("*.safetensors")), device)
    progress(f"loading {folder.name} for the lean decoder ({isa})")
    weights = load_weights(checkpoint, spec, settings.storage, double_quant=settings.double_quant)
    bytes_of_block = block_bytes(spec, settings.block_size, kv)
    size = pool_size(
        settings,
        block_bytes=bytes_of_block,
        context_tokens=context_tokens,
        activation_bytes=scratch_bytes(spec, settings.max_batch_tokens, settings.max_seqs),
        shares={device: 1.0},
    )
    pool_mib = size.num_blocks * bytes_of_block // MIB
    progress(f"KV pool of {size.num_blocks} blocks, {pool_mib} MiB ({size.reason})")
    try:
        decoder = LeanDecoder(
            spec,
            weights,
            isa=isa,
            threads=settings.threads or torch.get_num_threads(),
            num_blocks=size.num_blocks,
            block_size=settings.block_size,
            kv=kv,
        )
    except KernelsMissing as error:
        raise NotLean(str(error)) from error
    # torch only samples here. Its own threads would stay awake for a while after each step, on the kernels' cores.
    torch.set_num_threads(1)
    return LeanRunner(decoder)


def layer_shapes(spec: LeanSpec) -> list[LayerShape]:
    """The attention layers, as the generic runner would find them."""
    return [
        LayerShape(spec.kv_heads, spec.head_dim, spec.head_dim, window or None)
        for window in spec.windows
    ]


def kernels_name(runner: LeanRunner) -> str:
    """Names all that computes: bits may differ between instruction sets."""
    return f"lean-{_VERSION}-{runner.decoder.isa}-kv-{runner.decoder.kv.name}"


def _instruction_set(settings: ModelSettings, device: torch.device) -> str:
    if settings.storage is Quantization.NONE:
        raise NotLean(f"quantization {settings.storage} is not covered")
    if settings.dtype not in {None, "auto", "bfloat16"}:
        raise NotLean(f"dtype {settings.dtype} is not covered")
    if device.type != "cpu":
        raise NotLean(f"device {device.type} is not covered")
    try:
        known = instruction_sets()
    except KernelsMissing as error:
        raise NotLean(str(error)) from error
    return known[0]
