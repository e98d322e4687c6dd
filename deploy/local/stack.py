"""Which processes make up the stack, and the command line of each.

Pure: settings and addresses in, specs out. Service modules are named here and never imported.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.local.child import ChildSpec
from deploy.local.data_folder import DataFolder
from deploy.local.readiness import ReadyFile, ReadyLine
from deploy.local.redis_command import READY_LINE, redis_command
from deploy.local.settings import LocalSettings

# What a service may take beyond its own grace: stopping threads, closing sockets, a busy machine.
_STOP_MARGIN_S = 5.0
_SERVICE_PORTS = {"grpc": "--grpc-port", "metrics": "--metrics-port"}
_GATEWAY_PORTS = {**_SERVICE_PORTS, "http": "--http-port"}


@dataclass(frozen=True)
class Stack:
    """The specs of one stack."""

    settings: LocalSettings
    folder: DataFolder
    cores: int

    def redis(self, binary: Path, port: int) -> ChildSpec:
        """The embedded Redis; a restart comes back on the same port with the same data."""
        return ChildSpec(
            name="redis",
            command=tuple(redis_command(binary, port, self.folder.redis)),
            readiness=ReadyLine(READY_LINE, {"redis": f"redis://127.0.0.1:{port}/0"}),
        )

    def scheduler(self, redis_url: str) -> ChildSpec:
        """The scheduler, on a port that only its workers need to know."""
        return self._service(
            "scheduler",
            self.settings.scheduler_module,
            flags=("--grpc-port", "0"),
            environment={"HEADRACE_REDIS_URL": redis_url},
            port_flags=_SERVICE_PORTS,
        )

    def gateway(self, redis_url: str) -> ChildSpec:
        """The gateway, on the ports that clients were told."""
        http_port = self.settings.http_port
        http_flags = () if http_port is None else ("--http-port", str(http_port))
        return self._service(
            "gateway",
            self.settings.gateway_module,
            flags=(*("--grpc-port", str(self.settings.port)), *http_flags),
            environment={"HEADRACE_REDIS_URL": redis_url},
            port_flags=_GATEWAY_PORTS,
        )

    def worker(self, number: int, scheduler_address: str) -> ChildSpec:
        """One of the workers; it may finish by itself once an operator has drained it."""
        # Workers that all took all cores would only get in each other's way.
        share = max(1, self.cores // self.settings.workers) if self.settings.workers > 1 else None
        chosen = {
            "--model": self.settings.model,
            "--quantization": self.settings.quantization,
            "--engine": self.settings.engine,
            "--threads": self.settings.threads or share,
        }
        name = f"worker-{number}"
        given = [part for flag, value in chosen.items() if value for part in (flag, str(value))]
        return self._service(
            name,
            self.settings.worker_module,
            flags=("--worker-id", name, *given),
            environment={"HEADRACE_SCHEDULERS": scheduler_address},
            port_flags={"metrics": "--metrics-port"},
            may_finish=True,
            ready_within_s=self.settings.start_timeout_s,
        )

    def _service(
        self,
        name: str,
        module: str,
        *,
        flags: tuple[str, ...],
        environment: Mapping[str, str],
        port_flags: Mapping[str, str],
        may_finish: bool = False,
        ready_within_s: float = 60.0,
    ) -> ChildSpec:
        ready_file = self.folder.run / f"{name}.json"
        grace_s = self.settings.stop_grace_s
        common_flags = ("--metrics-port", "0", "--ready-file", str(ready_file))
        return ChildSpec(
            name=name,
            command=(
                *(sys.executable, "-m", module),
                *common_flags,
                *("--stop-grace-s", f"{grace_s:g}"),
                *flags,
            ),
            readiness=ReadyFile(ready_file),
            environment={**environment, "TMPDIR": str(self.folder.temporary)},
            port_flags=port_flags,
            may_finish=may_finish,
            ready_within_s=ready_within_s,
            stop_within_s=grace_s + _STOP_MARGIN_S,
        )
