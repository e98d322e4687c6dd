"""Device figures: of an accelerator as NVML tells them, of the machine itself where there is none."""

from types import SimpleNamespace

import pytest

from common.metrics import Metrics
from worker import device_meters
from worker.device_meters import Accelerator, watch_device


def scraped(*, may_be_accelerator: bool) -> dict[str, float]:
    metrics = Metrics()
    watch_device(metrics, may_be_accelerator=may_be_accelerator)
    lines = [line.rsplit(" ", 1) for line in metrics.scrape()[0].decode().splitlines()]
    metrics.shutdown(1)
    return {name: float(value) for name, value in lines if name.startswith("headrace_device")}


def test_without_an_accelerator_the_machine_is_the_device():
    """Used memory is a part of all memory, labelled as the CPU's."""
    found = scraped(may_be_accelerator=False)
    used = found['headrace_device_memory_used_bytes{device="cpu"}']
    assert 0 < used <= found['headrace_device_memory_bytes{device="cpu"}']
    assert 0 <= found['headrace_device_utilization_ratio{device="cpu"}'] <= 1
    assert not any("occupancy" in name for name in found)


class NVMLError(Exception):
    """As the library's."""


class FakeNvml(SimpleNamespace):
    """The library at its border: what Headrace calls of it, answered like a device with or without GPM."""

    NVMLError = NVMLError
    NVML_GPM_METRICS_GET_VERSION = 1
    NVML_GPM_METRIC_SM_OCCUPANCY = 3

    def __init__(self, *, has_gpm: bool, is_old: bool = False) -> None:
        super().__init__(has_gpm=has_gpm, is_old=is_old, clock=0)

    def nvmlGpmQueryDeviceSupport(self, handle):  # noqa: N802 - the library's name
        if self.is_old:
            raise NVMLError("function not found")
        return SimpleNamespace(isSupportedDevice=int(self.has_gpm))

    def nvmlGpmSampleAlloc(self):  # noqa: N802 - the library's name
        return SimpleNamespace(taken=None)

    def nvmlGpmSampleGet(self, handle, sample):  # noqa: N802 - the library's name
        self.clock += 1
        sample.taken = self.clock

    def c_nvmlGpmMetricsGet_t(self):  # noqa: N802 - the library's name
        return SimpleNamespace(metrics=[SimpleNamespace(metricId=0, value=0.0)])

    def nvmlGpmMetricsGet(self, wanted):  # noqa: N802 - the library's name
        assert (wanted.version, wanted.numMetrics, wanted.metrics[0].metricId) == (1, 1, 3)
        assert wanted.sample1.taken == wanted.sample2.taken - 1, "from the last look to this one"
        wanted.metrics[0].value = 37.5

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802 - the library's name
        return SimpleNamespace(used=30, total=80)

    def nvmlDeviceGetUtilizationRates(self, handle):  # noqa: N802 - the library's name
        return SimpleNamespace(gpu=90)


def test_an_accelerator_tells_memory_use_and_occupancy(monkeypatch: pytest.MonkeyPatch):
    """Shares from 0 to 1; each look at the occupancy covers the time since the one before."""
    nvml = FakeNvml(has_gpm=True)
    device = Accelerator(nvml, "handle")
    monkeypatch.setattr(device_meters, "_accelerator", lambda: device)
    for _ in range(3):
        assert [*device.occupancy()] == [0.375]
    assert scraped(may_be_accelerator=True) == {
        'headrace_device_memory_used_bytes{device="gpu"}': 30,
        'headrace_device_memory_bytes{device="gpu"}': 80,
        'headrace_device_utilization_ratio{device="gpu"}': 0.9,
        'headrace_device_sm_occupancy_ratio{device="gpu"}': 0.375,
    }


@pytest.mark.parametrize("is_old", [False, True])
def test_a_device_that_does_not_count_tells_no_occupancy(is_old: bool):
    """Before Hopper, or with a library that knows nothing of it."""
    device = Accelerator(FakeNvml(has_gpm=False, is_old=is_old), "handle")
    assert not device.tells_occupancy
    assert device.figures().utilization == 0.9


def test_a_look_that_fails_shows_nothing():
    """No stale value, and the next look covers what this one missed."""
    nvml = FakeNvml(has_gpm=True)
    device = Accelerator(nvml, "handle")

    def refuse(wanted):
        raise NVMLError("too soon")

    nvml.nvmlGpmMetricsGet = refuse
    assert [*device.occupancy()] == []
    del nvml.nvmlGpmMetricsGet
    assert [*device.occupancy()] == [0.375]
