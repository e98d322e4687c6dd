"""The whole stack as real processes of one test, each of which can be killed, paused and started again."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from urllib.request import urlopen

from tests.support.processes import ServiceProcess
from tests.support.redis_server import RedisServer, running_redis
from tests.support.tcp_proxy import TcpProxy, running_proxy

SIMULATED = ("--engine", "simulated", "--served-model-name", "sim")


@dataclass
class Stack:
    """What runs; index 0 of each list is not special."""

    redis: RedisServer
    schedulers: list[ServiceProcess] = field(default_factory=list)
    gateways: list[ServiceProcess] = field(default_factory=list)
    workers: list[ServiceProcess] = field(default_factory=list)
    link: TcpProxy | None = None
    """Between the services and Redis, if that was asked for."""

    @property
    def targets(self) -> list[str]:
        """Addresses of the gateways, for clients."""
        return [gateway.endpoints["grpc"] for gateway in self.gateways]

    def leading_scheduler(self) -> ServiceProcess:
        """The scheduler that its lease names for the only model's first partition."""
        (key,) = self.redis_client().keys("hr:*:lead")
        address = self.redis_client().get(key).decode().partition("|")[2]
        return next(s for s in self.schedulers if s.endpoints["grpc"] == address)

    def redis_client(self):
        """A plain client, as an operator's redis-cli would be."""
        return self.client_of(self.redis)

    def client_of(self, server: RedisServer):
        """The same, of another server."""
        import redis

        return redis.Redis.from_url(server.url, socket_timeout=30)

    def runner_of(self, request_id: str, model: str = "sim") -> ServiceProcess:
        """The worker that runs a request, as its record says."""
        record = f"hr:{{{model}/0}}:req:{request_id}"
        name = self.redis_client().hget(record, "worker").decode()
        return self.workers[int(name.removeprefix("worker-"))]

    def metric(self, process: ServiceProcess, name: str) -> float:
        """Sum over the series of a metric as scraped now."""
        return sum(value for line, value in scrape(process) if line.split("{")[0] == name)

    def pending_entries(self) -> int:
        """Entries that are in an inbox: waiting, running, or left behind."""
        client = self.redis_client()
        return sum(client.xlen(key) for key in client.keys("hr:*:inbox:*"))

    def keys_without_ttl(self) -> set[str]:
        """Keys that stay for ever; the few allowed ones are named in common/keys.py."""
        client = self.redis_client()
        return {key.decode() for key in client.keys("*") if client.ttl(key) < 0}


def scrape(process: ServiceProcess) -> list[tuple[str, float]]:
    """The series of a service's /metrics: (name with labels, value)."""
    address = process.endpoints["metrics"]
    url = address if "://" in address else f"http://{address}"
    url = url if url.endswith("/metrics") else f"{url}/metrics"
    with urlopen(url, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    series = [line.rpartition(" ") for line in lines if line and not line.startswith("#")]
    return [(name, float(value)) for name, _, value in series]


@contextlib.contextmanager
def running_stack(
    *,
    schedulers: int = 1,
    gateways: int = 1,
    workers: int = 1,
    worker_flags: Sequence[str] = SIMULATED,
    more_workers: Sequence[Sequence[str]] = (),
    scheduler_flags: Sequence[str] = (),
    gateway_flags: Sequence[str] = (),
    environment: dict[str, str] | None = None,
    ready_within_s: float = 180,
    with_link: bool = False,
    redis_options: Sequence[str] = (),
    redis_url: str = "",
) -> Iterator[Stack]:
    """A stack that serves; everything ends with the block. `more_workers`: flags of each further worker.

    `redis_url` is the services' way to it, where `redis_options` give it another than the usual one.
    """
    ports = ("--grpc-port", "0", "--metrics-port", "0")
    # Redis goes last: services that stop while it is away wait for it as long as they may.
    with running_redis(options=redis_options) as redis, contextlib.ExitStack() as exits:
        stack = Stack(redis)
        url = redis_url or redis.url
        if with_link:
            stack.link = exits.enter_context(running_proxy(redis.port))
            url = f"redis://127.0.0.1:{stack.link.port}/0"
        given = {"HEADRACE_REDIS_URL": url} | (environment or {})
        for _ in range(schedulers):
            process = ServiceProcess(
                "scheduler", flags=[*ports, *scheduler_flags], environment=given
            )
            stack.schedulers.append(exits.enter_context(process))
        seeds = ",".join(scheduler.endpoints["grpc"] for scheduler in stack.schedulers)
        for number, flags in enumerate([*[worker_flags] * workers, *more_workers]):
            process = ServiceProcess(
                "worker",
                flags=["--metrics-port", "0", "--worker-id", f"worker-{number}", *flags],
                environment={"HEADRACE_SCHEDULERS": seeds} | (environment or {}),
                ready_within_s=ready_within_s,
            )
            stack.workers.append(exits.enter_context(process))
        for _ in range(gateways):
            process = ServiceProcess("gateway", flags=[*ports, *gateway_flags], environment=given)
            stack.gateways.append(exits.enter_context(process))
        yield stack
