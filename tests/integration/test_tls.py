"""TLS and mutual TLS on every port, over real processes; certificates are renewed while they serve."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import grpc
import pytest
from openai import DefaultHttpxClient, OpenAI

from common.streams.node import Node
from headrace.cli.__main__ import main
from headrace.client import Client, HeadraceError
from tests.support.certificates import Certificates
from tests.support.processes import ServiceProcess
from tests.support.redis_server import RedisServer
from tests.support.redis_user import documented_user
from tests.support.stack import SIMULATED
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(scaled(180))]

PORTS = ("--grpc-port", "0", "--metrics-port", "0")


def gateway(redis_server: RedisServer, *flags: str) -> ServiceProcess:
    environment = {"HEADRACE_REDIS_URL": redis_server.url}
    return ServiceProcess("gateway", flags=[*PORTS, *flags], environment=environment)


def add_user(redis_server: RedisServer) -> None:
    """The user of Redis' ACL that docs/operations.md names."""
    import redis

    _, name, *rules = documented_user("secret").split()
    with redis.Redis.from_url(redis_server.url) as client:
        client.execute_command("ACL", "SETUSER", name, *rules)


def credentials(ca: Path, cert: Path | None = None, key: Path | None = None):
    return grpc.ssl_channel_credentials(
        ca.read_bytes(), key and key.read_bytes(), cert and cert.read_bytes()
    )


def answers(process: ServiceProcess, ca: Path) -> tuple[bool, bool]:
    """Whether gRPC and HTTP show a certificate that `ca` signed."""
    with Client(
        process.endpoints["grpc"], credentials=credentials(ca), timeout_s=scaled(20)
    ) as client:
        try:
            client.models()
            over_grpc = True
        except HeadraceError:
            over_grpc = False
    context = ssl.create_default_context(cafile=ca)
    try:
        with urlopen(f"{process.endpoints['http']}/livez", context=context, timeout=10) as found:
            return over_grpc, found.status == 200
    except URLError as error:
        return over_grpc, not isinstance(error.reason, ssl.SSLError)


@contextlib.contextmanager
def mutual_stack(
    redis_server: RedisServer, certificates: Certificates
) -> Iterator[ServiceProcess]:
    """Every port asks for certificates, and Redis for a user of few rights; yields the gateway."""
    add_user(redis_server)
    address = urlsplit(redis_server.url)
    environment = {"HEADRACE_REDIS_URL": f"redis://headrace:secret@127.0.0.1:{address.port}/0"}
    guarded = certificates.server_flags("server", client_ca=certificates.ca)
    with contextlib.ExitStack() as exits:
        scheduler = exits.enter_context(
            ServiceProcess("scheduler", flags=[*PORTS, *guarded], environment=environment)
        )
        exits.enter_context(
            ServiceProcess(
                "worker",
                flags=[
                    *("--metrics-port", "0", "--worker-id", "w1", *SIMULATED),
                    *certificates.client_flags("worker"),
                ],
                environment={"HEADRACE_SCHEDULERS": scheduler.endpoints["grpc"]},
            )
        )
        # Others may reach it: certificates are who they are.
        everywhere = ("--grpc-host", "0.0.0.0", "--http-host", "0.0.0.0")
        yield exits.enter_context(
            ServiceProcess(
                "gateway", flags=[*PORTS, *everywhere, *guarded], environment=environment
            )
        )


def test_mutual_tls_on_every_port(
    redis_server: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An answer over gRPC and HTTP, through a worker's session; nobody without a certificate."""
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue("client")
    with mutual_stack(redis_server, certificates) as process:
        target = "127.0.0.1:" + process.endpoints["grpc"].rpartition(":")[2]
        url = f"https://127.0.0.1:{urlsplit(process.endpoints['http']).port}"
        shown = credentials(certificates.ca, cert, key)
        with Client(target, credentials=shown, timeout_s=scaled(60)) as client:
            text = client.generate("hello", model="sim", max_tokens=4, ignore_eos=True).choices
        assert text[0].text
        context = ssl.create_default_context(cafile=certificates.ca)
        context.load_cert_chain(cert, key)
        with OpenAI(
            base_url=f"{url}/v1", api_key="none", http_client=DefaultHttpxClient(verify=context)
        ) as client:
            assert [model.id for model in client.models.list()] == ["sim"]
        with (
            Client(target, credentials=credentials(certificates.ca), timeout_s=2) as stranger,
            pytest.raises(HeadraceError),
        ):
            stranger.models()
        bare = ssl.create_default_context(cafile=certificates.ca)
        with pytest.raises((URLError, ssl.SSLError, ConnectionError)):
            urlopen(f"{url}/livez", context=bare, timeout=10)
        environ = {
            "HEADRACE_TARGET": target,
            "HEADRACE_TLS_CA": str(certificates.ca),
            "HEADRACE_TLS_CERT": str(cert),
            "HEADRACE_TLS_KEY": str(key),
        }
        assert main(["models"], environ) == 0
        assert "sim" in capsys.readouterr().out


def test_a_renewed_certificate_is_shown_without_a_restart(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """The next connection sees it, over gRPC and HTTP; files that do not fit together change nothing."""
    first, second = Certificates(tmp_path, "first"), Certificates(tmp_path, "second")
    with gateway(redis_server, *first.server_flags("server")) as process:
        assert answers(process, first.ca) == (True, True)
        cert, _ = first.issue("other")
        (tmp_path / "server.crt").write_bytes(cert.read_bytes())
        assert answers(process, first.ca) == (True, True)
        second.issue("server")
        assert answers(process, second.ca) == (True, True)
        assert answers(process, first.ca) == (False, False)


def test_a_renewed_client_ca_decides_who_gets_in(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """Who has a certificate of the former CA is a stranger to gRPC and HTTP, and resumes no session from before."""
    first, second = Certificates(tmp_path, "first"), Certificates(tmp_path, "second")
    clients = tmp_path / "clients.pem"
    clients.write_bytes(first.ca.read_bytes())
    flags = first.server_flags("server", client_ca=clients)
    with gateway(redis_server, *flags) as process:
        ports = [urlsplit(process.endpoints["http"]).port]
        ports.append(int(process.endpoints["grpc"].rpartition(":")[2]))
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            clients.write_bytes(first.ca.read_bytes())
            old, new = (showing(one.issue("client"), first.ca, version) for one in (first, second))
            sessions = {port: session_of(port, old) for port in ports}
            assert all(sessions.values())
            assert not any(session_of(port, new) for port in ports)
            clients.write_bytes(second.ca.read_bytes())
            assert not any(session_of(port, old, sessions[port]) for port in ports)
            assert not any(session_of(port, old) for port in ports)
            assert all(session_of(port, new) for port in ports)


def showing(pair: tuple[Path, Path], ca: Path, version: ssl.TLSVersion) -> ssl.SSLContext:
    """A client with a certificate, of one version of TLS."""
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(*pair)
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])
    return context


def session_of(
    port: int | None, client: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> ssl.SSLSession | None:
    """What a client could resume that was let in, and None for one that was not; servers of both kinds answer this."""
    try:
        with (
            socket.create_connection(("127.0.0.1", port or 0), timeout=scaled(30)) as raw,
            client.wrap_socket(raw, server_hostname="localhost", session=session) as connection,
        ):
            connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            return connection.session if connection.recv(1) else None
    except (ssl.SSLError, ConnectionError):
        return None


def test_files_that_are_no_good_are_said_at_the_start(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """With the flags' names, and no traceback."""
    flags = Certificates(tmp_path).server_flags("server")
    (tmp_path / "server.key").write_text("no key")
    with pytest.raises(RuntimeError, match="--tls-cert") as caught:
        gateway(redis_server, *flags).__enter__()
    assert "Traceback" not in str(caught.value)


async def test_redis_by_tls_and_acl(redis_server: RedisServer, tmp_path: Path) -> None:
    """rediss:// checks the certificate, and a user of Redis' ACL needs no more than our keys and commands."""
    add_user(redis_server)
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue("redis")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    port = urlsplit(redis_server.url).port

    forwarding: set[asyncio.Task[None]] = set()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        forwarding.add(task)
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(65536):
                    sink.write(data)
                    await sink.drain()
            sink.close()

        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

    async with await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context) as server:
        secure = server.sockets[0].getsockname()[1]
        trusted = f"rediss://headrace:secret@127.0.0.1:{secure}/0?ssl_ca_certs={certificates.ca}"
        node = Node(trusted)
        assert await node.is_healthy()
        await node.call(lambda client: client.set("hr:x", 1, px=1000), bound_s=5)
        await node.close()
        stranger = Node(f"rediss://headrace:secret@127.0.0.1:{secure}/0")
        assert not await stranger.is_healthy()
        await stranger.close()
        # What they close is closed on the other side, too, before the loop is: nothing may be left to warn of.
        await asyncio.wait(forwarding, timeout=scaled(60))
