"""How many blocks of keys and values fit beside the model."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from worker.engine.model_settings import ModelSettings
from worker.model.errors import ModelDoesNotFit

MIB = 1 << 20

_CPU_SHARE = 0.25
"""A CPU worker shares its machine; it takes this much of what is free unless told otherwise."""

_CUDA_SHARE = 0.9
"""A GPU is a worker's own, but for fragmentation and what libraries allocate late."""


@dataclass(frozen=True, slots=True)
class PoolSize:
    """The pool, and why it has this size."""

    num_blocks: int
    reason: str


def available_bytes(device: torch.device) -> int:
    """Memory that could still be allocated on ``device``, control groups considered."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min(psutil.virtual_memory().available, _control_group_headroom())


def check_weights_fit(weight_bytes: int, *devices: torch.device) -> None:
    """Refuse before loading what cannot be loaded; ``devices`` share the weights.

    Raises:
        ModelDoesNotFit: the weights alone exceed what is available.
    """
    available = sum(available_bytes(device) for device in devices)
    if weight_bytes > available:
        raise ModelDoesNotFit(
            f"the weights take {weight_bytes // MIB} MiB, {available // MIB} MiB are available"
        )


def pool_size(
    settings: ModelSettings,
    *,
    block_bytes: int,
    context_tokens: int,
    activation_bytes: int,
    shares: Mapping[torch.device, float],
) -> PoolSize:
    """Settings win; else a share of the available memory, and never more than all sequences at full length need.

    ``shares`` says how much of a block lies on which device, 1 in all: the fullest device decides.

    Raises:
        ModelDoesNotFit: what was asked for is not there, or one request of full length would not fit.
    """
    spoken_for = activation_bytes + settings.promised_bytes
    free = int(min((available_bytes(d) - spoken_for) / part for d, part in shares.items()))
    if settings.kv_blocks is not None:
        size = PoolSize(settings.kv_blocks, "kv_blocks")
    elif settings.kv_memory_mb is not None:
        size = PoolSize(settings.kv_memory_mb * MIB // block_bytes, "kv_memory_mb")
    else:
        one_request = -(-context_tokens // settings.block_size)
        is_cuda = all(device.type == "cuda" for device in shares)
        share = _CUDA_SHARE if is_cuda else _CPU_SHARE
        size = PoolSize(
            min(int(free * share) // block_bytes, one_request * settings.max_seqs),
            f"{share:.0%} of {max(free, 0) // MIB} MiB free",
        )
        if size.num_blocks < one_request:
            raise ModelDoesNotFit(
                f"a request of {context_tokens} tokens needs {one_request * block_bytes // MIB} MiB of KV memory;"
                f" the pool may have {size.num_blocks * block_bytes // MIB} MiB ({size.reason}):"
                " lower context_tokens or set kv_memory_mb"
            )
    if size.num_blocks < 1 or size.num_blocks * block_bytes > free:
        raise ModelDoesNotFit(
            f"{size.num_blocks} KV blocks ({size.reason}) take {size.num_blocks * block_bytes // MIB} MiB,"
            f" {max(free, 0) // MIB} MiB are available"
        )
    return size


class PeakMemory(contextlib.AbstractContextManager["PeakMemory"]):
    """Measures by how much memory rises inside the block above what it was before: ``bytes`` afterwards."""

    def __init__(self, device: torch.device) -> None:
        """``device`` is where the work is done."""
        self._device = device
        self._before = 0
        self.bytes = 0

    def __enter__(self) -> "PeakMemory":
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before = torch.cuda.memory_allocated(self._device)
        else:
            # The kernel keeps one high-water mark; this sets it back, where it may be written.
            with contextlib.suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")
            self._before = psutil.Process().memory_info().rss
        return self

    def __exit__(self, *_: object) -> None:
        if self._device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(self._device)
        else:
            peak = _high_water_bytes()
        self.bytes = max(0, peak - self._before)


def _high_water_bytes() -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return psutil.Process().memory_info().rss


def _control_group_headroom() -> int:
    """What the process's control group still allows; a very large number without a limit."""
    for limit, usage in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        with contextlib.suppress(OSError, ValueError):
            return max(0, int(Path(limit).read_text()) - int(Path(usage).read_text()))
    return 1 << 62
