"""The connection on which commands follow one another: whose answer is whose, and what breaks it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import redis
import redis.exceptions
import uvloop

from common.streams.direct_line import DirectLine
from common.streams.node import Node
from tests.support.certificates import Certificates
from tests.support.polling import eventually
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.integration

_READ = ("XREAD", "BLOCK", 60_000, b"STREAMS")


async def test_each_gets_its_own_answer(redis_server: RedisServer):
    """Whatever is written at once, and whoever leaves before the answer comes, nobody gets another's."""
    node = Node(redis_server.url)
    asked = [
        asyncio.create_task(node.send([("ECHO", f"{n}"), ("ECHO", b"x" * n)])) for n in range(300)
    ]
    await asyncio.sleep(0)
    for task in asked[::3]:
        task.cancel()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    for n, answer in enumerate(answers):
        if n % 3:
            assert answer == [b"%d" % n, b"x" * n]
        else:
            assert isinstance(answer, asyncio.CancelledError)
    assert await node.send([("ECHO", "afterwards")]) == [b"afterwards"]
    assert node.num_errors == 0
    await node.close()


async def test_an_error_is_of_its_call_alone(redis_server: RedisServer):
    """What Redis refuses is raised as what it is, and the line goes on."""
    node = Node(redis_server.url)
    good = asyncio.create_task(node.send([("ECHO", "good")]))
    bad = asyncio.create_task(node.send([("ECHO", "x"), ("EVALSHA", "0" * 40, 0)]))
    assert await good == [b"good"]
    with pytest.raises(redis.exceptions.NoScriptError):
        await bad
    assert await node.send([("ECHO", "still")]) == [b"still"]
    await node.close()


async def test_a_reader_that_leaves_takes_its_answer_along(redis_server: RedisServer):
    """A blocking read that was cancelled must not answer the next one."""
    node = Node(redis_server.url)
    reading = asyncio.create_task(node.read_streams(*_READ, "a", "0-0"))
    client = redis.Redis.from_url(redis_server.url)
    await asyncio.to_thread(eventually, lambda: client.info("clients")["blocked_clients"])
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    client.xadd("a", {"of": "a"})
    client.xadd("b", {"of": "b"}, id="1-1")
    assert await node.read_streams(*_READ, "b", "0-0") == [(b"b", [(b"1-1", {b"of": b"b"})])]
    client.close()
    await node.close()


async def test_silence_breaks_the_line(redis_server: RedisServer):
    """An answer that does not come within the bound is an error for all that wait; a new line serves when Redis does."""
    node = Node(redis_server.url)
    line = await DirectLine.open(node._calls.client, 0.2)
    assert await line.run([("ECHO", "a")]) == [b"a"]
    redis_server.pause()
    waiting = [line.run([("ECHO", "b")]), line.run([("ECHO", "c")])]
    for answer in waiting:
        with pytest.raises(redis.exceptions.TimeoutError):
            await asyncio.wait_for(answer, 60)
    assert not line.is_open
    with pytest.raises(redis.exceptions.TimeoutError):
        line.run([("ECHO", "d")])
    redis_server.resume()
    assert await node.send([("ECHO", "e")]) == [b"e"]
    await node.close()


async def test_what_is_no_answer_breaks_the_line():
    """Bytes that are not Redis' protocol, and answers to nothing, end the connection with an error that is repeated."""

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(b"+OK\r\n" if b"CLIENT" in data else b"?what\r\n")
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    node = Node(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0")
    with pytest.raises(redis.exceptions.ConnectionError):
        await asyncio.wait_for(node.send([("ECHO", "a")]), 60)
    await node.close()
    server.close()


@asynccontextmanager
async def _behind_tls(port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
    """A port that speaks TLS and hands on to a Redis that does not."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, back), copy(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_it_goes_through_tls(redis_server: RedisServer, tmp_path: Path, run):
    """The connection that is taken over may be one with TLS, under either event loop."""
    authority = Certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue("server"))

    async def talk() -> None:
        async with _behind_tls(redis_server.port, context) as port:
            node = Node(f"rediss://localhost:{port}/3?ssl_ca_certs={authority.ca}")
            await node.send([("SET", "of database 3", b"y" * 100_000)])
            assert await node.send([("GET", "of database 3")]) == [b"y" * 100_000]
            assert await node.call(lambda client: client.get("of database 3"))
            await node.close()

    run(talk())
