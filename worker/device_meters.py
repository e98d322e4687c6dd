"""Memory and use of the device that a worker computes on: an accelerator by NVML, else the machine itself."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import psutil

from common.logs import get_log
from common.metrics import Metrics
from common.tallies import Labels

_log = get_log(__name__)
_OF_MACHINE, _OF_ACCELERATOR = {"device": "cpu"}, {"device": "gpu"}


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """A device now; ``utilization`` is a share."""

    memory_used: int
    memory_total: int
    utilization: float


def watch_device(metrics: Metrics, *, may_be_accelerator: bool) -> None:
    """Show the device's figures from now on, labelled with what it is."""
    accelerator = _accelerator() if may_be_accelerator else None
    if accelerator is None:
        _show(metrics, _machine, _OF_MACHINE)
        return
    _show(metrics, accelerator.figures, _OF_ACCELERATOR)
    if accelerator.tells_occupancy:
        metrics.device_occupancy.watch(
            lambda: [(share, _OF_ACCELERATOR) for share in accelerator.occupancy()]
        )


def _show(metrics: Metrics, look: Callable[[], DeviceFigures], labels: Labels) -> None:
    metrics.device_memory_used.watch(lambda: [(look().memory_used, labels)])
    metrics.device_memory_total.watch(lambda: [(look().memory_total, labels)])
    metrics.device_utilization.watch(lambda: [(look().utilization, labels)])


def _machine() -> DeviceFigures:
    memory = psutil.virtual_memory()
    return DeviceFigures(
        memory.total - memory.available, memory.total, psutil.cpu_percent(interval=None) / 100
    )


def _accelerator() -> "Accelerator | None":
    """The accelerator that torch would take; None where there is none, or nothing that can tell."""
    import torch

    if not torch.cuda.is_available():
        return None
    uuid = f"GPU-{torch.cuda.get_device_properties(torch.device('cuda')).uuid}"
    import pynvml

    try:
        pynvml.nvmlInit()
        return Accelerator(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid.encode()))
    except pynvml.NVMLError as error:
        _log.warning("no device figures", error=str(error))
        return None


class Accelerator:
    """One device, through NVML."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        """``nvml`` is the library, initialized. Occupancy needs its GPM, which devices have from Hopper on."""
        self._nvml = nvml
        self._handle = handle
        self._samples: list[Any] = []
        try:
            if nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                self._samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
                nvml.nvmlGpmSampleGet(handle, self._samples[0])
        except nvml.NVMLError as error:
            self._samples = []
            _log.info("no occupancy of the device", error=str(error))

    @property
    def tells_occupancy(self) -> bool:
        """Whether it counts how busy its multiprocessors are."""
        return bool(self._samples)

    def figures(self) -> DeviceFigures:
        """Now."""
        memory = self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
        rates = self._nvml.nvmlDeviceGetUtilizationRates(self._handle)
        return DeviceFigures(int(memory.used), int(memory.total), rates.gpu / 100)

    def occupancy(self) -> Iterable[float]:
        """Mean since the last look; nothing where the two are too close for the device to tell."""
        nvml, (before, now) = self._nvml, self._samples
        wanted = nvml.c_nvmlGpmMetricsGet_t()
        wanted.version, wanted.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 1
        wanted.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_OCCUPANCY
        try:
            nvml.nvmlGpmSampleGet(self._handle, now)
            wanted.sample1, wanted.sample2 = before, now
            nvml.nvmlGpmMetricsGet(wanted)
        except nvml.NVMLError:
            return []
        finally:
            self._samples = [now, before]
        return [wanted.metrics[0].value / 100]
