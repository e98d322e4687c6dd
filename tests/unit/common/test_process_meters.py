"""The process's own figures, by the conventions' names."""

from common.metrics import Metrics
from common.process_meters import watch_process


def test_a_process_shows_what_it_uses():
    """CPU time, memory, descriptors and threads, in a scrape of whoever watches itself."""
    metrics = Metrics()
    watch_process(metrics)
    lines = dict(
        line.rsplit(" ", 1)
        for line in metrics.scrape()[0].decode().splitlines()
        if line.startswith("process_")
    )
    metrics.shutdown(1)
    assert float(lines["process_cpu_time_seconds_total"]) > 0
    assert float(lines["process_memory_usage_bytes"]) > 1 << 20
    assert float(lines["process_open_file_descriptor_count"]) >= 3
    assert float(lines["process_thread_count"]) >= 1
