"""Device figures: the machine itself where no accelerator computes."""

from common.metrics import Metrics
from worker.device_meters import watch_device


def test_without_an_accelerator_the_machine_is_the_device():
    """Used memory is a part of all memory, labelled as the CPU's."""
    metrics = Metrics()
    watch_device(metrics, may_be_accelerator=False)
    lines = dict(line.rsplit(" ", 1) for line in metrics.scrape()[0].decode().splitlines())
    metrics.shutdown(1)
    used = float(lines['headrace_device_memory_used_bytes{device="cpu"}'])
    total = float(lines['headrace_device_memory_bytes{device="cpu"}'])
    assert 0 < used <= total
    assert 0 <= float(lines['headrace_device_utilization_ratio{device="cpu"}']) <= 1
