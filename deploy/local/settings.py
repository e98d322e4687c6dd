"""Settings of `headrace-local`; whatever else the services know reaches them by the environment."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from common.setting_fields import above, at_least, port, setting
from deploy.local.run_command import problem_of_command

# The gateway's default, which must be known before it starts.
HTTP_PORT = 8080
_STAND_IN = "module that is started in the service's place (for tests)"


@dataclass(frozen=True, kw_only=True)
class LocalSettings:
    """The whole stack on one machine."""

    workers: int = setting(1, help="worker processes", check=at_least(1))
    model: str | None = setting(None, help="model of every worker; default the worker's own")
    quantization: str | None = setting(
        None, help="int8, q4, nf4, fp4 or none; default the worker's own"
    )
    engine: str | None = setting(None, help="model or simulated; default the worker's own")
    threads: int | None = setting(
        None,
        help="threads of each worker; default an equal share of the cores where there are several workers, else the worker's own",
        check=at_least(1),
    )
    http_port: int | None = setting(
        None,
        help=f"HTTP port of the gateway; 0 picks a free one; default {HTTP_PORT}, or 0 where --port is 0",
        check=port,
    )
    port: int = setting(50051, help="gRPC port of the gateway; 0 picks a free one", check=port)
    ready_file: Path | None = setting(
        None, help="file that gets all endpoints as JSON once everything serves"
    )
    data_dir: Path | None = setting(
        None, help="keeps Redis' data and the logs; without it both go at the end"
    )
    run: str | None = setting(
        None,
        help="command to run once everything serves; the stack ends when it does, with its exit status. No shell reads it: for pipes and variables, sh -c '…'",
    )
    verbose: bool = setting(False, help="show the logs of all processes")
    stop_grace_s: float = setting(
        5.0, help="seconds each process gets to finish what it does at the end", check=above(0)
    )
    start_timeout_s: float = setting(
        900.0,
        help="seconds a worker may take to fetch, convert and load its model",
        check=above(0),
    )
    gateway_module: str = setting("gateway", help=_STAND_IN)
    scheduler_module: str = setting("scheduler", help=_STAND_IN)
    worker_module: str = setting("worker", help=_STAND_IN)

    def problems(self) -> Iterator[str]:
        """A file where a folder should be is better said before anything starts."""
        if self.data_dir is not None and self.data_dir.exists() and not self.data_dir.is_dir():
            yield f"--data-dir: {self.data_dir} is not a folder"
        if self.ready_file is not None and not self.ready_file.parent.is_dir():
            yield f"--ready-file: {self.ready_file.parent} is not a folder"
        if self.run is not None and (problem := problem_of_command(self.run)) is not None:
            yield f"--run: {problem}"

    @property
    def chosen_http_port(self) -> int:
        """As the gateway chooses it."""
        if self.http_port is not None:
            return self.http_port
        return HTTP_PORT if self.port else 0
