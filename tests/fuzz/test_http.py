"""Bytes of every kind over HTTP: an answer of the client's making, never a 500."""

import contextlib
import json
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.request_forms import CHAT, COMPLETION, NATIVE, TOKENIZE, Form
from tests.fuzz.tally import TRIED
from tests.support.stack import Stack
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(scaled(1800))]

_PATHS: dict[str, Form] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETION,
    "/api/generate": NATIVE,
    "/tokenize": TOKENIZE,
}
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["sim", "user", 0, 1, -1, 2**32, 2**64, "\ud800"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@st.composite
def bodies(draw: st.DrawFn, form: Form) -> dict[str, Any]:
    """Any values for fields that there are, and some that there are not."""
    known = [*form.fields, *form.neutral, "stream", "stream_options"]
    names = draw(st.lists(st.sampled_from(known), max_size=6))
    body = {name: draw(_JSON) for name in names}
    body |= draw(st.dictionaries(st.text(max_size=6), _JSON, max_size=1))
    if draw(st.booleans()):
        body["model"] = "sim"
    if draw(st.booleans()):
        body["prompt"] = draw(st.text(max_size=30) | st.lists(st.integers(0, 500), max_size=9))
    if draw(st.booleans()):
        content = draw(st.text(max_size=30))
        body["messages"] = [{"role": "user", "content": content}]
    if draw(st.booleans()):
        body["max_tokens"] = draw(st.integers(0, 30))
    return body


def exchange(stack: Stack, data: bytes, *, ends: bool = False) -> bytes:
    """What comes back until the server closes, or a whole answer is there."""
    TRIED["http"] += 1
    parts = urlsplit(stack.gateways[0].endpoints["http"])
    with socket.create_connection((parts.hostname, parts.port), timeout=scaled(20)) as sock:
        sock.sendall(data)
        if ends:  # of what may be no whole request; who has asked for something stays to hear it
            sock.shutdown(socket.SHUT_WR)
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := sock.recv(65536):
                found += chunk
    return found


def assert_no_fault(answer: bytes) -> None:
    """Not ours: no 500, in the status or in a stream, and nothing of the inside."""
    assert not answer.startswith(b"HTTP/1.1 500"), answer
    assert b'"grpc_code": "INTERNAL"' not in answer, answer
    assert b"Traceback" not in answer


def post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
    return head.encode() + f"content-length: {len(body)}\r\n\r\n".encode() + body


@given(data=st.binary(max_size=400))
def test_any_bytes(stack: Stack, data: bytes) -> None:
    """As a head, and as a body."""
    assert_no_fault(exchange(stack, data, ends=True))
    for path in (*_PATHS, "/api/batch_generate"):
        assert_no_fault(exchange(stack, post(path, data)))


@given(data=st.data())
def test_any_fields(stack: Stack, data: st.DataObject) -> None:
    """Every path, with anything in its fields."""
    for path, form in _PATHS.items():
        body = json.dumps(data.draw(bodies(form))).encode()
        answer = exchange(stack, post(path, body))
        assert answer.startswith(b"HTTP/1.1 "), body
        assert_no_fault(answer)


@given(head=st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=200))
def test_any_head(stack: Stack, head: str) -> None:
    """Targets, methods and header lines that nobody should send."""
    text = head.encode("latin-1")
    assert_no_fault(exchange(stack, b"GET " + text + b" HTTP/1.1\r\nhost: x\r\n\r\n", ends=True))
    assert_no_fault(
        exchange(stack, b"GET /v1/models HTTP/1.1\r\n" + text + b"\r\n\r\n", ends=True)
    )
    assert_no_fault(exchange(stack, text + b" /v1/models HTTP/1.1\r\nhost: x\r\n\r\n", ends=True))
