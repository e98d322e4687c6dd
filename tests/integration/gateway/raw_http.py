"""HTTP as bytes on a socket: what no well-behaved client would send."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.support.time_scale import scaled


@dataclass
class Answer:
    """One whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, which has to be JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The error's label."""
        return self.json["error"]["code"]

    @property
    def fields(self) -> set[str]:
        """The refused fields."""
        return {one["field"] for one in self.json["error"].get("violations", ())}


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A bare connection."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """The next answer, up to the end of its body."""
    async with asyncio.timeout(scaled(60)):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        length = headers.get("content-length")
        body = await reader.readexactly(int(length)) if length else await reader.read()
    return Answer(int(first.split()[1]), headers, body)


async def send(url: str, data: bytes) -> Answer:
    """Bytes, and what comes back."""
    async with connected(url) as (reader, writer):
        writer.write(data)
        return await read_answer(reader)


def request(path: str, body: bytes, *lines: str, method: str = "POST") -> bytes:
    """A request's bytes."""
    head = [
        f"{method} {path} HTTP/1.1",
        "host: test",
        "content-type: application/json",
        f"content-length: {len(body)}",
        *lines,
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


async def post(url: str, path: str, content: Any, *lines: str) -> Answer:
    """JSON to a path; of bytes nobody checks that they are JSON."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return await send(url, request(path, body, *lines))
