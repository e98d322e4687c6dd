"""What the processes of a stack spend: CPU while something runs, memory at its highest."""

from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.support.stack import Stack

_CLIENT = "client"


class Costs:
    """The processes of one stack and, as ``client``, this one."""

    def __init__(self, stack: Stack | None) -> None:
        """Without a stack, as with a target elsewhere, only this process is seen."""
        self._processes = {_CLIENT: [psutil.Process()]}
        if stack is not None:
            services = {
                "gateway": stack.gateways,
                "scheduler": stack.schedulers,
                "worker": stack.workers,
            }
            for name, processes in services.items():
                self._processes[name] = [psutil.Process(process.pid) for process in processes]
            self._processes["redis"] = [psutil.Process(stack.redis.pid)]

    def cpu_s(self) -> dict[str, float]:
        """CPU time spent so far, by service; differences are what a run cost."""
        return {
            name: sum(sum(process.cpu_times()[:2]) for process in processes)
            for name, processes in self._processes.items()
        }

    def peak_mb(self) -> dict[str, float]:
        """The most memory that each service has held resident since it started."""
        return {
            name: sum(_peak_kb(process) for process in processes) / 1024
            for name, processes in self._processes.items()
            if name != _CLIENT
        }


def per_token_us(
    before: Mapping[str, float], after: Mapping[str, float], tokens: int
) -> dict[str, float]:
    """CPU per output token between two readings, by service, and their sum."""
    spent = {name: (after[name] - before[name]) / tokens * 1e6 for name in after}
    return {**spent, "all": sum(spent.values())}


def _peak_kb(process: psutil.Process) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
