"""Options of gRPC channels and servers, with reasons. Both sides of a link must agree on keepalive."""

from collections.abc import Sequence

Options = Sequence[tuple[str, int | str]]

# A prompt of the longest context is far below this, as text or as ids; a bigger message is an attack or
# a mistake, and the limit is applied before anything is parsed.
MAX_PUBLIC_MESSAGE_BYTES = 4 * 1024 * 1024
# Below it an answer costs more to compress than to send.
COMPRESSED_FROM_BYTES = 8 * 1024
# Open calls of one connection; further ones wait in the client. Each costs memory before it has said anything.
MAX_PUBLIC_STREAMS = 2048
# Inside, one message carries a whole batch: several public requests in one Assign, or a card chunk.
MAX_INTERNAL_MESSAGE_BYTES = 32 * 1024 * 1024
# Headers of a request over HTTP; gRPC's soft default of 8 KiB is tight with a token, baggage and tracestate.
MAX_METADATA_BYTES = 16 * 1024
# The same over gRPC, which counts 32 bytes more for each. Between its soft and its hard limit gRPC refuses at random, so
# both are this.
_MAX_GRPC_METADATA_BYTES = 20 * 1024

# NAT tables and load balancers forget silent connections after minutes, some after 60 s; a peer that is
# gone is noticed after time + timeout.
PUBLIC_KEEPALIVE_S = 30.0
# The share of that span for the answer to a ping.
_ANSWER_SHARE = 1 / 3
# A worker whose host has gone should not hold its requests longer than a lease does.
INTERNAL_KEEPALIVE_MS = 5_000
INTERNAL_KEEPALIVE_TIMEOUT_MS = 5_000
# Clients that ping more often than this are closed with ENHANCE_YOUR_CALM; ours stay well clear of it.
_MIN_PING_INTERVAL_MS = 4_000
_MIN_INTERNAL_PING_INTERVAL_MS = 2_500


def public_server_options(ping_s: float = PUBLIC_KEEPALIVE_S) -> Options:
    """For the gateway's server; clients that are silent for ``ping_s`` are asked whether they are there."""
    return [
        *_public_keepalive(ping_s),
        *_message_sizes(MAX_PUBLIC_MESSAGE_BYTES),
        *_tolerate_pings(_MIN_PING_INTERVAL_MS),
        ("grpc.max_concurrent_streams", MAX_PUBLIC_STREAMS),
        ("grpc.max_metadata_size", _MAX_GRPC_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", _MAX_GRPC_METADATA_BYTES),
        # Two gateways must not share a port by accident: the kernel would split clients between them.
        ("grpc.so_reuseport", 0),
    ]


def internal_server_options() -> Options:
    """For the scheduler's server, which workers dial."""
    return [
        *_keepalive(INTERNAL_KEEPALIVE_MS, INTERNAL_KEEPALIVE_TIMEOUT_MS),
        *_message_sizes(MAX_INTERNAL_MESSAGE_BYTES),
        *_tolerate_pings(_MIN_INTERNAL_PING_INTERVAL_MS),
        ("grpc.so_reuseport", 0),
    ]


def internal_channel_options() -> Options:
    """For a worker's channel to a scheduler, and a gateway's for administration."""
    return [
        *_keepalive(INTERNAL_KEEPALIVE_MS, INTERNAL_KEEPALIVE_TIMEOUT_MS),
        *_message_sizes(MAX_INTERNAL_MESSAGE_BYTES),
        # Our own session reconnects with its own back-off; gRPC's must not add minutes to it.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # A redirect may lead to the address of a channel just closed; a pooled dead one would be reused.
        ("grpc.use_local_subchannel_pool", 1),
    ]


def _public_keepalive(ping_s: float) -> Options:
    return _keepalive(round(ping_s * 1000), round(ping_s * 1000 * _ANSWER_SHARE))


def _keepalive(time_ms: int, timeout_ms: int) -> Options:
    return [
        ("grpc.keepalive_time_ms", time_ms),
        ("grpc.keepalive_timeout_ms", timeout_ms),
        # What the library really goes by for any ping it has sent; a minute, unless it is said.
        ("grpc.http2.ping_timeout_ms", timeout_ms),
        # A stream may be silent for as long as its request queues.
        ("grpc.http2.max_pings_without_data", 0),
    ]


def _tolerate_pings(interval_ms: int) -> Options:
    return [
        ("grpc.http2.min_ping_interval_without_data_ms", interval_ms),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def _message_sizes(max_bytes: int) -> Options:
    return [
        ("grpc.max_receive_message_length", max_bytes),
        ("grpc.max_send_message_length", max_bytes),
    ]
