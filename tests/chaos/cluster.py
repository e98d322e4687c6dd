"""The stack of a chaos run: every process at an address that survives its restart, behind proxies that can be hurt.

workers ──▶ door of each scheduler ──▶ schedulers ──▶ link of each ──▶ Redis ◀── link of each ◀── gateways
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis

from headrace.client import AsyncClient
from headrace.v1 import admin_service_pb2 as pb
from tests.chaos.http_calls import HttpClient, http_client
from tests.chaos.settings import ChaosSettings
from tests.support.ports import settled_port
from tests.support.processes import ServiceProcess
from tests.support.redis_server import RedisServer, running_redis
from tests.support.stack import Stack
from tests.support.tcp_proxy import TcpProxy, running_proxy

TENANTS = ("mill", "race")
_ADMIN_KEY = "chaos-operator-000000000000000000000000"


@dataclass(eq=False)
class Member:
    """One service process. `busy` is held by the fault that acts on it."""

    name: str
    process: ServiceProcess
    link: TcpProxy | None = None
    """Between it and Redis."""
    door: TcpProxy | None = None
    """In front of it, for those who dial it."""
    model: str = ""
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_running(self) -> bool:
        """Whether its process is there, paused or not."""
        return self.process.process.poll() is None

    async def restart(self) -> None:
        """Start it again and wait until it serves."""
        # Begun in the main thread: only its children die with it, whatever happens to this process.
        self.process.start()
        await asyncio.to_thread(self.process.wait_until_ready)


class Cluster:
    """All members, and the Redis that they share."""

    def __init__(
        self, settings: ChaosSettings, server: RedisServer, exits: contextlib.ExitStack
    ) -> None:
        """Nothing but Redis runs yet; `exits` ends what is added."""
        self._settings = settings
        self._exits = exits
        self._num_workers = 0
        self.redis = server
        self.redis_busy = asyncio.Lock()
        # Any: the stubs type every answer as a union that no caller can use.
        self.client: Any = redis.Redis.from_url(server.url, socket_timeout=30)
        self.schedulers: list[Member] = []
        self.gateways: list[Member] = []
        self.workers: list[Member] = []
        self.left: list[Member] = []
        """Workers that were drained and have gone."""
        self._keys: dict[str, str] = {}

    @property
    def members(self) -> list[Member]:
        """Everybody who is meant to serve."""
        return [*self.schedulers, *self.gateways, *self.workers]

    @property
    def targets(self) -> list[str]:
        """Addresses of the gateways; they survive restarts."""
        return [gateway.process.endpoints["grpc"] for gateway in self.gateways]

    @property
    def operator(self) -> AsyncClient:
        """A client whose calls are an operator's."""
        return AsyncClient(self.targets, api_key=_ADMIN_KEY)

    async def admit_tenants(self) -> None:
        """Each tenant gets its key, and limits that are counted and never reached."""
        limits = pb.TenantLimits(
            requests_per_minute=10**6, tokens_per_minute=10**9, concurrent_requests=10**4
        )
        async with self.operator as client:
            for tenant in TENANTS:
                await client.admin.set_tenant(tenant, limits)
                self._keys[tenant] = (await client.admin.create_key(tenant)).secret

    async def name_models(self) -> None:
        """Each model, which must be served, gets its other name."""
        async with self.operator as client:
            for model in self._settings.workers:
                target = pb.AliasTarget(model=model, weight=1)
                await client.admin.set_alias(
                    pb.ModelAlias(alias=self._settings.alias(model), current=[target])
                )

    def tenant(self, name: str, targets: Sequence[str] | None = None) -> AsyncClient:
        """A client of a tenant, of all gateways or of those at `targets`."""
        return AsyncClient(targets or self.targets, api_key=self._keys[name])

    def http(self, name: str) -> list[HttpClient]:
        """Clients of a tenant over HTTP, one for each gateway."""
        return [
            http_client(gateway.process.endpoints["http"], self._keys[name])
            for gateway in self.gateways
        ]

    @property
    def stack(self) -> Stack:
        """The same processes, as other tests see them."""
        return Stack(
            self.redis,
            schedulers=[member.process for member in self.schedulers],
            gateways=[member.process for member in self.gateways],
            workers=[member.process for member in self.workers],
        )

    def leaders(self) -> dict[str, Member]:
        """Who holds the lease of each model's partition now; raises where Redis is away."""
        found: dict[str, Member] = {}
        for key in self.client.keys("hr:*:lead"):
            value = self.client.get(key)
            address = value.decode().partition("|")[2] if value else ""
            for member in self.schedulers:
                if member.door is not None and address == f"127.0.0.1:{member.door.port}":
                    found[key.decode().split("{")[1].split("}")[0]] = member
        return found

    async def restart_crashed(self, tell: Callable[[str], None]) -> None:
        """Say of every process that ends by itself that it did, and start it again; until cancelled."""
        while True:
            await asyncio.sleep(0.5)
            for member in self.members:
                if member.busy.locked() or member.is_running:
                    continue
                tell(f"{member.name} ended by itself with status {member.process.process.poll()}")
                async with member.busy:
                    await member.restart()

    def add_scheduler(self) -> None:
        """One more scheduler, which others reach through its door only."""
        port = settled_port()
        door = self._exits.enter_context(running_proxy(port))
        link = self._exits.enter_context(running_proxy(self.redis.port))
        name = f"scheduler-{len(self.schedulers)}"
        process = ServiceProcess(
            "scheduler",
            flags=[
                *("--grpc-port", str(port), "--metrics-port", "0", "--service-instance", name),
                *("--advertise-address", f"127.0.0.1:{door.port}", "--stop-grace-s", "10"),
                *("--partitions", str(self._settings.num_partitions)),
            ],
            environment={"HEADRACE_REDIS_URL": _url(link)},
        )
        self.schedulers.append(Member(name, self._exits.enter_context(process), link, door))

    def add_gateway(self) -> None:
        """One more gateway, which reaches Redis through its link only."""
        link = self._exits.enter_context(running_proxy(self.redis.port))
        name = f"gateway-{len(self.gateways)}"
        process = ServiceProcess(
            "gateway",
            flags=[
                *("--grpc-port", str(settled_port()), "--http-port", str(settled_port())),
                *("--metrics-port", "0"),
                *("--service-instance", name, "--stop-grace-s", "6", "--require-keys"),
            ],
            environment={"HEADRACE_REDIS_URL": _url(link), "HEADRACE_ADMIN_KEY": _ADMIN_KEY},
        )
        self.gateways.append(Member(name, self._exits.enter_context(process), link))

    def new_worker(self, model: str) -> Member:
        """A worker of `model` with an id of its own, not started."""
        name = f"worker-{self._num_workers}"
        self._num_workers += 1
        process = ServiceProcess(
            "worker",
            flags=[
                *("--metrics-port", "0", "--worker-id", name, "--stop-grace-s", "10"),
                *("--drain-grace-s", "3", *self._settings.worker_flags(model)),
            ],
            environment={"HEADRACE_SCHEDULERS": ",".join(self._doors())},
            ready_within_s=240,
        )
        self._exits.callback(process.close)
        return Member(name, process, model=model)

    def _doors(self) -> Sequence[str]:
        return [f"127.0.0.1:{m.door.port}" for m in self.schedulers if m.door is not None]


def _url(link: TcpProxy) -> str:
    return f"redis://127.0.0.1:{link.port}/0"


@contextlib.contextmanager
def running_cluster(settings: ChaosSettings) -> Iterator[Cluster]:
    """A cluster that serves; everything ends with the block."""
    with contextlib.ExitStack() as exits, running_redis() as server:
        cluster = Cluster(settings, server, exits)
        exits.callback(cluster.client.close)
        for _ in range(settings.num_schedulers):
            cluster.add_scheduler()
        for model, count in settings.workers.items():
            for _ in range(count):
                worker = cluster.new_worker(model)
                worker.process.start()
                cluster.workers.append(worker)
        for _ in range(settings.num_gateways):
            cluster.add_gateway()
        for worker in cluster.workers:
            worker.process.wait_until_ready()
        yield cluster
