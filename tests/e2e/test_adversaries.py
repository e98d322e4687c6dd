"""Adversaries of every kind at once: each is refused or cut off, and streams beside them end as they would have."""

import asyncio
import contextlib
import gzip
import json
from urllib.parse import urlsplit

import grpc
import grpc.aio
import pytest

from headrace.client import AsyncClient
from headrace.v1 import inference_service_pb2 as pb
from tests.support.process_sizes import sizes_of
from tests.support.stack import Stack, running_stack
from tests.support.time_scale import scaled
from tests.support.witnesses import witnessed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(scaled(600))]

ROUNDS = 2
# What allocators keep of messages of four megabytes, from several connections at once.
MAX_GROWTH_MB = 256.0
SERVICE = "/headrace.v1.InferenceService"
GENERATE, BATCH = f"{SERVICE}/Generate", f"{SERVICE}/BatchGenerate"
HEAD = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
INVALID, EXHAUSTED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED


def long_list() -> bytes:
    """Millions of token ids."""
    asked = pb.GenerateRequest(model="sim", idempotency_key="k")
    asked.prompt.token_ids.ids.extend([7] * 4_000_000)
    return asked.SerializeToString()


def many_labels() -> bytes:
    """Hundreds of thousands of members in a map."""
    asked = pb.GenerateRequest(model="sim", idempotency_key="k")
    asked.prompt.text = "x"
    for number in range(200_000):
        asked.labels[str(number)] = ""
    return asked.SerializeToString()


def long_text() -> bytes:
    """Four megabytes of words."""
    asked = pb.GenerateRequest(model="sim")
    asked.prompt.text = "hello " * 690_000
    return asked.SerializeToString()


def over_grpc_kinds() -> dict[str, tuple[str, bytes, grpc.StatusCode]]:
    """Method, message, and what it ends with."""
    return {
        "a list of token ids": (GENERATE, long_list(), INVALID),
        "labels": (GENERATE, many_labels(), INVALID),
        "a text": (GENERATE, long_text(), INVALID),
        "empty requests": (BATCH, b"\x0a\x00" * 2_000_000, INVALID),
        "no message": (GENERATE, b"\x0a\xff" * 1_000_000, INVALID),
        "too long a message": (GENERATE, b"\x0a\x00" * 4_000_000, EXHAUSTED),
    }


def sized(body: bytes, *lines: str) -> bytes:
    """With its length."""
    head = "".join(f"{line}\r\n" for line in lines)
    return f"{HEAD}{head}content-length: {len(body)}\r\n\r\n".encode() + body


def over_http_kinds() -> dict[str, tuple[bytes, int]]:
    """What is sent, and the status of its answer."""
    chunks = f"{HEAD}transfer-encoding: chunked\r\n\r\n".encode()
    names = json.dumps({str(number): number for number in range(200_000)})
    bomb = gzip.compress(b"x" * 50_000_000, 1)
    return {
        "token ids": (sized(b'{"model":"sim","prompt":[' + b"1," * 2_000_000 + b"1]}"), 400),
        "lists": (sized(b'{"prompt":[' + b"[]," * 1_300_000 + b"[]]}"), 400),
        "nesting": (sized(b"[" * 4_000_000), 400),
        "numbers": (sized(b'{"seed":[' + (b"9" * 4000 + b",") * 1000 + b"1]}"), 400),
        "names": (sized(names.encode()), 400),
        "crumbs": (chunks + b"1\r\nx\r\n" * 50_000, 400),
        "a bomb": (sized(bomb, "content-encoding: gzip"), 415),
        "a long head": (b"GET /livez HTTP/1.1\r\nx: " + b"y" * 40_000 + b"\r\n\r\n", 400),
        "no head": (b"\x00\xff" * 500 + b"\r\n\r\n", 400),
    }


async def over_grpc(stack: Stack, method: str, data: bytes, code: grpc.StatusCode) -> None:
    """Send it on a connection of its own, again and again."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(stack.targets[0], options=options) as channel:
        for _ in range(ROUNDS):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(method)(data)
            assert caught.value.code() is code, caught.value


async def over_http(stack: Stack, data: bytes, status: int) -> None:
    """The same; a server that has refused may close before everything was sent, and one that is busy may find it slow."""
    parts = urlsplit(stack.gateways[0].endpoints["http"])
    passing = {b"", b"HTTP/1.1 408", f"HTTP/1.1 {status}".encode()}
    for _ in range(ROUNDS):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        answer = b""
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            answer = await reader.read(12)
        writer.close()
        assert answer in passing, answer


async def half_asked(stack: Stack, done: asyncio.Event) -> None:
    """Hundreds of connections that have begun to ask, and of streams that nobody reads."""
    parts = urlsplit(stack.gateways[0].endpoints["http"])
    unread = json.dumps({"model": "sim", "prompt": "x", "stream": True, "max_tokens": 50})
    writers = []
    for number in range(100):
        _, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1)
        writer.write(HEAD.encode() if number % 4 else sized(unread.encode()))
        writers.append(writer)
    await done.wait()
    for writer in writers:
        writer.close()


async def test_adversaries_of_every_kind_harm_nobody() -> None:
    """All of them at once: refused by their kind, witnesses undisturbed, and no memory kept."""
    with running_stack() as stack:
        (gateway,) = stack.gateways
        async with AsyncClient(stack.targets) as client:
            before, _ = sizes_of(gateway.process.pid)
            async with witnessed(stack, client, count=5, tokens=200):
                done = asyncio.Event()
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(half_asked(stack, done))
                    async with asyncio.TaskGroup() as loud:
                        for asked in over_grpc_kinds().values():
                            loud.create_task(over_grpc(stack, *asked))
                        for sent in over_http_kinds().values():
                            loud.create_task(over_http(stack, *sent))
                    done.set()
            after, _ = sizes_of(gateway.process.pid)
        assert gateway.process.poll() is None
        assert "call failed" not in gateway.log
        assert after - before < MAX_GROWTH_MB, (before, after)
