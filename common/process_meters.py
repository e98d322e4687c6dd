"""What the operating system says of this process: CPU time, memory, descriptors, threads."""

import psutil

from common.metrics import Metrics


def watch_process(metrics: Metrics) -> None:
    """Show the figures of the process that this is called in."""
    process = psutil.Process()

    def cpu_s() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    metrics.process_cpu_time.watch(lambda: [(cpu_s(), {})])
    metrics.process_memory.watch(lambda: [(process.memory_info().rss, {})])
    metrics.process_descriptors.watch(lambda: [(process.num_fds(), {})])
    metrics.process_threads.watch(lambda: [(process.num_threads(), {})])
