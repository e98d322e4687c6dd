"""Settings of the gateway."""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from common.domain import Priority
from common.grpc_options import MAX_PUBLIC_MESSAGE_BYTES, PUBLIC_KEEPALIVE_S
from common.lengths import LENGTHS
from common.service_settings import ServiceSettings
from common.setting_fields import above, at_least, between, port, setting
from common.streams.addresses import problem_of
from common.streams.admission import QueueBounds
from common.tls_settings import ServerTlsSettings
from common.vault_settings import VaultSettings

LONGEST_LIFE_S = LENGTHS.longest_life_s
HTTP_PORT = 8080
_MIN_SECRET_CHARS = 16

# A stop in the order of its steps: shares of the stop grace, and the longest that each is good for. Together they leave
# an eighth of the grace to exporters and to a busy machine, so that a stop ends by itself even without Redis.
_DRAIN = (0.7, float("inf"))
_GOODBYE = (0.04, 1.0)
_LAST_CALLS = (0.04, 0.5)
_LAST_WORDS = (0.09, 3.0)


def long_secret(value: str | None) -> str | None:
    """A check of a setting: nothing that can be guessed."""
    if value is not None and len(value) < _MIN_SECRET_CHARS:
        return f"must have at least {_MIN_SECRET_CHARS} characters"
    return None


@dataclass(frozen=True, kw_only=True)
class GatewaySettings(ServiceSettings, ServerTlsSettings, VaultSettings):
    """Where the gateway serves, what it lets in, and how long it waits for whom."""

    grpc_host: str = setting("127.0.0.1", help="address that the gRPC port is bound to")
    grpc_port: int = setting(50051, help="gRPC port; 0 picks a free one", check=port)
    admin_host: str = setting("127.0.0.1", help="address that the admin port is bound to")
    admin_port: int | None = setting(
        None,
        help="port for operators' calls, channelz and health; 0 picks a free one; without it they are on the gRPC port, without channelz",
        check=port,
    )
    http_host: str = setting("127.0.0.1", help="address that the HTTP port is bound to")
    http_port: int | None = setting(
        None,
        help=f"port of the HTTP API; 0 picks a free one; default {HTTP_PORT}, or 0 where --grpc-port is 0",
        check=port,
    )
    redis_url: str = setting(
        "redis://127.0.0.1:6379/0",
        help="Redis that holds the queue: one node, Sentinel or a cluster",
        check=problem_of,
        secret=True,
    )
    allow_unauthenticated: bool = setting(
        False, help="serve everybody who can reach an address that is not loopback"
    )
    require_keys: bool = setting(
        False, help="every call needs an API key, which says whose it is (headrace keys)"
    )
    admin_key: str | None = setting(
        None,
        help="what operators' calls bear as their key; without it they are open, or closed where keys are required",
        check=long_secret,
        secret=True,
    )
    audit_log: Path | None = setting(
        None,
        help="file that gets a line of JSON for each decision: who, what, how much, never the text",
    )
    audit_content: bool = setting(
        False, help="put prompts and answers into the audit log, for whoever may read that"
    )
    max_message_bytes: int = setting(
        MAX_PUBLIC_MESSAGE_BYTES, help="longest message from or to a client", check=at_least(1024)
    )
    queue_max_requests: tuple[int, ...] = setting(
        (1000,),
        help="most waiting requests of a class: one number, or four from CRITICAL to BATCH",
    )
    queue_max_tokens: tuple[int, ...] = setting(
        (2_000_000,),
        help="most waiting prompt tokens of a class: one number, or four from CRITICAL to BATCH",
    )
    default_timeout_s: float = setting(
        LONGEST_LIFE_S,
        help="longest time of a request that names none",
        check=between(0.001, LONGEST_LIFE_S),
    )
    resume_grace_s: float = setting(
        LENGTHS.resume_grace_s,
        help="how long a resumable request runs on without followers",
        check=at_least(0),
    )
    keepalive_s: float = setting(
        15.0, help="an event at least this often on every stream", check=above(0)
    )
    input_filters: tuple[str, ...] = setting(
        (),
        help="content filters over prompts, NAME or NAME=ARGUMENT: patterns=FILE, or plug-ins",
    )
    trace_content: bool = setting(
        False, help="put prompts and answers into traces, for whoever may read those"
    )
    client_ping_s: float = setting(
        PUBLIC_KEEPALIVE_S,
        help="how long a connection may be silent before its client is asked whether it is there",
        check=at_least(1),
    )
    tokenizer_threads: int = setting(2, help="prompts tokenized at once", check=at_least(1))

    def problems(self) -> Iterator[str]:
        """What is wrong with several settings together."""
        for name in ("queue_max_requests", "queue_max_tokens"):
            values = getattr(self, name)
            if len(values) not in (1, len(Priority)) or min(values) < 1:
                yield f"--{name.replace('_', '-')}: one positive number, or four"
        if self.audit_log is not None and not self.audit_log.parent.is_dir():
            yield f"--audit-log: {self.audit_log.parent} is not a folder"
        yield from self.tls_problems()
        yield from self.vault_problems()
        hosts = [("--grpc-host", self.grpc_host), ("--http-host", self.http_host)]
        if self.admin_port is not None:
            hosts.append(("--admin-host", self.admin_host))
        for flag, host in hosts:
            if is_loopback(host) or self._is_guarded:
                continue
            yield (
                f"{flag}: {host} can be reached from other machines and callers are"
                " not authenticated: --require-keys or --tls-client-ca changes that,"
                " --allow-unauthenticated permits it"
            )

    def bounds(self, priority: Priority) -> QueueBounds:
        """The queue's bounds of a class."""
        place = sorted(Priority, reverse=True).index(priority)
        requests, tokens = self.queue_max_requests, self.queue_max_tokens
        return QueueBounds(requests[place % len(requests)], tokens[place % len(tokens)])

    @property
    def _is_guarded(self) -> bool:
        """Whether callers are known, or are said not to matter."""
        return self.require_keys or self.tls_client_ca is not None or self.allow_unauthenticated

    @property
    def chosen_http_port(self) -> int:
        """A gateway that takes any port for gRPC takes any for HTTP: several of them share a machine."""
        if self.http_port is not None:
            return self.http_port
        return HTTP_PORT if self.grpc_port else 0

    @property
    def drain_s(self) -> float:
        """How long open streams may go on once a stop is asked for."""
        return self._of_stop(_DRAIN)

    @property
    def goodbye_s(self) -> float:
        """How long those that are told to go on elsewhere have to hear it."""
        return self._of_stop(_GOODBYE)

    @property
    def last_calls_s(self) -> float:
        """How long calls that would stay for ever have to end."""
        return self._of_stop(_LAST_CALLS)

    @property
    def last_words_s(self) -> float:
        """How long Redis has to hear who leaves; what it does not hear, leases bring about."""
        return self._of_stop(_LAST_WORDS)

    def _of_stop(self, step: tuple[float, float]) -> float:
        share, most_s = step
        return min(self.stop_grace_s * share, most_s)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``; a name other than localhost may mean anything."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
