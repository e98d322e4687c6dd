"""Settings of the scheduler."""

from collections.abc import Iterator
from dataclasses import dataclass

from common.lengths import LENGTHS, milliseconds
from common.service_settings import (
    SCHEDULER_METRICS_PORT,
    ServiceSettings,
    metrics_port_setting,
)
from common.setting_fields import above, at_least, host_and_port, port, setting
from common.streams.addresses import problem_of
from common.tls_settings import ServerTlsSettings
from common.vault_settings import VaultSettings
from scheduler.tenant_weights import problem_with

DEFAULT_GRPC_PORT = 50052


@dataclass(frozen=True, kw_only=True)
class SchedulerSettings(ServiceSettings, ServerTlsSettings, VaultSettings):
    """What can be tuned about a scheduler."""

    redis_url: str = setting(
        "redis://127.0.0.1:6379/0",
        help="Redis that holds the queue: one node, Sentinel or a cluster",
        check=problem_of,
        secret=True,
    )
    grpc_host: str = setting("127.0.0.1", help="address that workers' sessions are served at")
    grpc_port: int = setting(
        DEFAULT_GRPC_PORT, help="port that workers dial; 0 picks a free one", check=port
    )
    metrics_port: int = metrics_port_setting(SCHEDULER_METRICS_PORT)
    advertise_address: str = setting(
        "",
        help="host:port under which workers reach this scheduler; default host and port served",
        check=lambda value: host_and_port(value) if value else None,
    )
    partitions: int = setting(
        1, help="partitions of each model; raises the number, never lowers it", check=at_least(1)
    )
    max_partitions: int = setting(
        1,
        help="partitions that a model may grow to while its leader is short of CPU time; never lowers it",
        check=at_least(1),
    )
    growth_cpu_share: float = setting(
        0.8, help="share of a core beyond which a leader is short of CPU time", check=above(0)
    )
    growth_after_s: float = setting(
        10.0,
        help="seconds for which it has to be short of it before a partition is added",
        check=above(0),
    )
    batch_window_ms: float = setting(
        0.0, help="longest wait to fill a batch of similar lengths, under load", check=at_least(0)
    )
    length_buckets: bool = setting(
        True, help="prefer prompts of similar length for one batch; never more than a preference"
    )
    preemption: bool = setting(
        True, help="what runs makes room for a higher class that would wait long otherwise"
    )
    tenant_weights: tuple[str, ...] = setting(
        (),
        help="shares of tenants as name=weight; 1 for whoever is not named",
        check=problem_with,
    )
    orphan_grace_s: float = setting(
        LENGTHS.orphan_grace_s,
        help="seconds that a request outlives its gateway without any other follower",
        check=at_least(0),
    )
    worker_heartbeat_ms: int = setting(
        milliseconds(LENGTHS.worker_heartbeat_s),
        help="how often workers give a life sign; three missing end a session",
        check=at_least(50),
    )
    reconnect_grace_s: float = setting(
        LENGTHS.worker_reconnect_s,
        help="seconds within which a worker that comes back counts as never lost",
        check=at_least(0),
    )
    resume_wait_s: float = setting(
        120.0,
        help="seconds a request waits for a worker with its numerics or its revision, when those have left, before it fails",
        check=above(0),
    )
    metric_tenants: tuple[str, ...] = setting(
        (), help="tenants that have metrics of their own; all others are counted together"
    )
    max_log_backlog: int = setting(
        4096,
        help="unwritten log records beyond which a gateway's new requests wait",
        check=at_least(1),
    )

    def problems(self) -> Iterator[str]:
        """What is wrong with several settings together."""
        yield from self.tls_problems()
        yield from self.vault_problems()
