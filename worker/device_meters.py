"""Memory and use of the device that a worker computes on: an accelerator by NVML, else the machine itself."""

from collections.abc import Callable
from dataclasses import dataclass

import psutil

from common.logs import get_log
from common.metrics import Metrics

_log = get_log(__name__)


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """A device now; ``utilization`` is a share."""

    memory_used: int
    memory_total: int
    utilization: float


def watch_device(metrics: Metrics, *, may_be_accelerator: bool) -> None:
    """Show the device's figures from now on, labelled with what it is."""
    read = _accelerator() if may_be_accelerator else None
    labels = {"device": "cpu" if read is None else "gpu"}
    look = read or _machine
    metrics.device_memory_used.watch(lambda: [(look().memory_used, labels)])
    metrics.device_memory_total.watch(lambda: [(look().memory_total, labels)])
    metrics.device_utilization.watch(lambda: [(look().utilization, labels)])


def _machine() -> DeviceFigures:
    memory = psutil.virtual_memory()
    return DeviceFigures(
        memory.total - memory.available, memory.total, psutil.cpu_percent(interval=None) / 100
    )


def _accelerator() -> Callable[[], DeviceFigures] | None:
    """How to read the accelerator that torch would take; None where there is none, or nothing that can tell."""
    import torch

    if not torch.cuda.is_available():
        return None
    uuid = f"GPU-{torch.cuda.get_device_properties(torch.device('cuda')).uuid}"
    import pynvml

    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
    except pynvml.NVMLError as error:
        _log.warning("no device figures", error=str(error))
        return None

    def read() -> DeviceFigures:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
        return DeviceFigures(int(memory.used), int(memory.total), rates.gpu / 100)

    return read
