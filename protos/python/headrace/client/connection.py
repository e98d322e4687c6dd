"""Where calls go: targets, channel options, deadlines. Shared by both clients."""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.client.trace import TraceContext

Metadata = Sequence[tuple[str, str | bytes]]

# Answering from memory is quick, or something is wrong.
LOOK_UP_TIMEOUT_S = 15.0
# Every record is looked at, and what is open has to end first.
FORGET_TIMEOUT_S = 120.0

# One channel's state is its own: a client that failed to connect does not slow down the next one.
_CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.use_local_subchannel_pool", 1),
    # A gateway that restarts is found again fast; the default first pause is a second.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5000),
    ("grpc.http2.max_pings_without_data", 0),
    # Statuses with many refused fields need more than the default of 8 KiB.
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.absolute_max_metadata_size", 16 * 1024),
    # Answers of a batch with log probabilities pass the default of 4 MiB.
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
)


def channel_options(num_targets: int) -> tuple[tuple[str, int], ...]:
    """Options of a channel to one of so many targets: when it is asked whether it is there, and for how long.

    With another one to go to, a gateway that is paused, or whose host or network has gone, is noticed within 10 s,
    however long a request queues in silence: a request outlives its gateway by 14 s at least (docs/operations.md), in
    which it is followed through another one. Where there is no other, a path that comes back is better than a broken
    one: 40 s. Pings are sent while calls are open and nothing arrives. Gateways allow one every 4 s; gRPC doubles the
    interval for a proxy that is stricter and says so.
    """
    time_ms, timeout_ms = (5_000, 5_000) if num_targets > 1 else (30_000, 10_000)
    return (
        *_CHANNEL_OPTIONS,
        ("grpc.keepalive_time_ms", time_ms),
        ("grpc.keepalive_timeout_ms", timeout_ms),
        # What the library really goes by for any ping it has sent; a minute, unless it is said.
        ("grpc.http2.ping_timeout_ms", timeout_ms),
    )


# What gRPC takes as one target of several addresses.
_LISTS = ("ipv4:", "ipv6:")


@dataclass(frozen=True, slots=True)
class Targets:
    """The addresses of a client: one, or several gateways of the same system."""

    addresses: tuple[str, ...]

    @classmethod
    def of(cls, target: str | Sequence[str]) -> "Targets":
        """From what callers give."""
        addresses = (target,) if isinstance(target, str) else tuple(target)
        if isinstance(target, str) and "," in target and not target.startswith(_LISTS):
            raise ValueError(f"several targets are a list, not one text: {target!r}")
        if not addresses or not all(addresses):
            raise ValueError("a client needs at least one target")
        return cls(addresses)

    def after(self, index: int) -> int:
        """The next one to try."""
        return (index + 1) % len(self.addresses)


def with_key(metadata: Metadata, api_key: str | None) -> Metadata:
    """The client's metadata with its API key."""
    return metadata if api_key is None else [*metadata, ("authorization", f"Bearer {api_key}")]


def call_metadata(base: Metadata, trace: TraceContext) -> tuple[tuple[str, str | bytes], ...]:
    """The client's metadata with the call's trace context, unless that is in it already."""
    given = {key.lower() for key, _ in base}
    # A key may stand once only; what the caller set by hand stays.
    if "traceparent" in given:
        return tuple(base)
    return (*base, *trace.headers())


def call_timeout_s(timeout_s: float | None) -> float | None:
    """How long a generating call waits for a request with that limit.

    A moment longer than the server, whose answer says in which stage the time ran out and what was used.
    """
    return None if timeout_s is None else timeout_s + min(2.0, 0.25 + 0.1 * timeout_s)
