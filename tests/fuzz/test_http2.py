"""Frames of every kind on gRPC's port, which no client's library would send: the connection ends, and nobody else's does."""

import contextlib
import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.v1 import inference_service_pb2 as pb
from headrace.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.fuzz.tally import TRIED
from tests.support.process_sizes import sizes_of
from tests.support.stack import Stack
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(scaled(1800))]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, END_HEADERS = 1, 4
RESETS = 20_000
_MAX_GROWTH_MB = 128.0


def frame(kind: int, flags: int, stream: int, payload: bytes, length: int | None = None) -> bytes:
    """As RFC 9113 lays it out; `length` may lie."""
    told = len(payload) if length is None else length
    return told.to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def header_block(*more: tuple[bytes, bytes], method: bytes = b"GenerateStream") -> bytes:
    """The head of a call, every field as a literal that is not indexed."""
    fields = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/headrace.v1.InferenceService/" + method),
        (b":authority", b"x"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        *more,
    ]
    return b"".join(
        b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields
    )


FIRST = PREFACE + frame(SETTINGS, 0, 0, b"")
MESSAGE = pb.GenerateRequest(model="sim").SerializeToString()
ASKED = b"\x00" + len(MESSAGE).to_bytes(4) + MESSAGE
GOOD = [
    frame(HEADERS, END_HEADERS, 1, header_block()),
    frame(DATA, END_STREAM, 1, ASKED),
    frame(PING, 0, 0, b"12345678"),
    frame(GOAWAY, 0, 0, bytes(8) + b"\nbye\n"),
    frame(CONTINUATION, END_HEADERS, 1, header_block()[20:]),
    frame(HEADERS, 0, 3, header_block()[:20]),
    frame(HEADERS, END_HEADERS, 5, header_block((b"grpc-timeout", b"1S"), (b"X", b"\xff\x00"))),
    frame(HEADERS, END_HEADERS, 7, header_block((b"grpc-encoding", b"gzip"))),
    frame(DATA, 0, 7, b"\x01" + (9).to_bytes(4) + b"not gzip!"),
    frame(DATA, 0, 1, b"\x00" + (2**32 - 1).to_bytes(4)),
]


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """One that could stand in a conversation, or any other."""
    if draw(st.booleans()):
        return draw(st.sampled_from(GOOD))
    payload = draw(st.binary(max_size=60))
    return frame(
        draw(st.integers(0, 12)),
        draw(st.integers(0, 255)),
        draw(st.integers(0, 9) | st.integers(0, 2**32 - 1)),
        payload,
        draw(st.none() | st.integers(0, 100) | st.just(2**24 - 1)),
    )


@pytest.fixture(scope="module")
def channel(stack: Stack) -> Iterator[grpc.Channel]:
    """Somebody else's connection."""
    with grpc.insecure_channel(stack.targets[0]) as channel:
        yield channel


def send(stack: Stack, data: bytes) -> None:
    """To the end of the connection, which the server brings about once nothing more comes."""
    TRIED["http2"] += 1
    place = urlsplit(f"//{stack.targets[0]}")
    address = (place.hostname or "", place.port or 0)
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection(address, timeout=scaled(30)) as connection,
    ):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


def is_served(channel: grpc.Channel) -> bool:
    """Whether the other connection gets its answer."""
    answer = InferenceServiceStub(channel).ListModels(pb.ListModelsRequest(), timeout=scaled(20))
    return [model.name for model in answer.models] == ["sim"]


@given(data=st.binary(max_size=300), first=st.sampled_from([b"", PREFACE, FIRST]))
def test_any_bytes(stack: Stack, channel: grpc.Channel, data: bytes, first: bytes) -> None:
    """Instead of HTTP/2, and behind its beginning."""
    send(stack, first + data)
    assert is_served(channel)


def test_nobody_else_writes_to_the_log(stack: Stack, channel: grpc.Channel) -> None:
    """What a peer says at its leaving makes no line, whatever it looks like."""
    said = b'x\n{"event": "forged", "level": "info"}\n'
    send(stack, FIRST + frame(GOAWAY, 0, 0, bytes(4) + (7).to_bytes(4) + said))
    assert is_served(channel)
    (gateway,) = stack.gateways
    events = [json.loads(line)["event"] for line in gateway.log.splitlines()]
    assert "serving" in events
    assert "forged" not in events


@given(sent=st.lists(frames(), min_size=1, max_size=12))
def test_any_frames(stack: Stack, channel: grpc.Channel, sent: list[bytes]) -> None:
    """In any order, with lengths and streams that lie."""
    send(stack, FIRST + b"".join(sent))
    assert is_served(channel)


def test_calls_that_are_reset_as_soon_as_they_are_open(
    stack: Stack, channel: grpc.Channel
) -> None:
    """Tens of thousands of them: the other connection is served, and nothing of them is kept."""
    pid = stack.gateways[0].process.pid
    head = header_block()
    cancel = (8).to_bytes(4)
    flood = b"".join(
        frame(HEADERS, END_HEADERS, stream, head) + frame(RST_STREAM, 0, stream, cancel)
        for stream in range(1, 2 * RESETS, 2)
    )
    before, _ = sizes_of(pid)
    send(stack, FIRST + flood)
    assert is_served(channel)
    after, _ = sizes_of(pid)
    assert after - before < _MAX_GROWTH_MB, (before, after)
