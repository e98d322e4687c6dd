"""Debian's Redis by TLS, under the user of its ACL that docs/operations.md names: everything works, nothing else may."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pytest
import redis

from headrace.client import AsyncClient, Client
from headrace.v1 import admin_service_pb2 as admin
from tests.support.certificates import Certificates
from tests.support.outcomes import TokenCount, collect
from tests.support.polling import eventually
from tests.support.ports import settled_port
from tests.support.redis_user import documented_user
from tests.support.stack import SIMULATED, Stack, running_stack
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.system, pytest.mark.timeout(scaled(600))]

SECRET = "s3cret/with:signs"
ASKED = {"model": "sim", "max_tokens": 4, "temperature": 0.0, "ignore_eos": True}
WORKER = (*SIMULATED, "--step-ms", "20")


def options(folder: Path, port: int) -> Sequence[str]:
    """What a server is told that asks everybody at `port` for TLS and a certificate."""
    certificates = Certificates(folder)
    cert, key = certificates.issue("redis")
    rules = folder / "users.acl"
    rules.write_text(f"user default on nopass ~* &* +@all\n{documented_user(SECRET)}\n")
    flags = {
        "tls-port": port,
        "tls-cert-file": cert,
        "tls-key-file": key,
        "tls-ca-cert-file": certificates.ca,
        "aclfile": rules,
    }
    return [word for name, value in flags.items() for word in (f"--{name}", str(value))]


def url(folder: Path, port: int) -> str:
    """How the services find it."""
    files = f"ssl_ca_certs={folder}/ca.pem&ssl_certfile={folder}/redis.crt&ssl_keyfile={folder}/redis.key"
    return f"rediss://headrace:{quote(SECRET, safe='')}@127.0.0.1:{port}/0?{files}"


async def test_everything_works_with_no_more_than_the_guide_grants(tmp_path: Path) -> None:
    """Answers, operators' orders, and takeovers of a gateway and a scheduler: Redis refuses no command of theirs."""
    port = settled_port()
    with running_stack(
        schedulers=2,
        gateways=2,
        workers=2,
        worker_flags=WORKER,
        redis_options=options(tmp_path, port),
        redis_url=url(tmp_path, port),
    ) as stack:
        await asyncio.to_thread(operate, stack)
        await take_over(stack)
        with stack.redis_client() as client:
            assert client.execute_command("ACL", "LOG") == []
        log = "".join(one.log for one in (*stack.gateways, *stack.schedulers))
        assert "NOPERM" not in log
        refuses(tmp_path, port)


def operate(stack: Stack) -> None:
    """A call of each kind."""
    with Client(stack.targets, timeout_s=scaled(30)) as client:
        answer = client.generate("hello", idempotency_key="once", **ASKED)
        assert client.generate("hello", idempotency_key="once", **ASKED) == answer
        cached = [client.generate("hello", use_response_cache=True, **ASKED) for _ in range(2)]
        assert cached[0].choices == cached[1].choices
        client.admin.set_tenant("default", admin.TenantLimits(requests_per_minute=1000))
        key = client.admin.create_key("default", "a key").key
        client.admin.revoke_key(key.key_id)
        alias = admin.ModelAlias(
            alias="production", current=[admin.AliasTarget(model="sim", weight=1)]
        )
        client.admin.set_alias(alias)
        eventually(lambda: "production" in client.models()[0].aliases)
        assert client.admin.queue("sim")
        assert client.admin.keys()
        assert not list(client.admin.dead_letters())
        assert client.admin.drain("worker-0").worker_id == "worker-0"
        with client.stream("hello", **{**ASKED, "max_tokens": 5000}) as stream:
            next(iter(stream))
            client.cancel(stream.request_id)
        assert client.admin.forget(request_id=answer.request_id)
        assert client.admin.forget(tenant="default")


async def take_over(stack: Stack) -> None:
    """The leader and a gateway are killed in the middle of streams, which go on."""
    count = TokenCount()
    async with AsyncClient(stack.targets) as client:
        asked = {**ASKED, "max_tokens": 100, "resumable": True, "count": count}
        streams = asyncio.gather(*(collect(client, f"n {i}", **asked) for i in range(4)))
        await count.more(20)
        stack.leading_scheduler().kill()
        stack.gateways[0].kill()
        outcomes = await streams
    assert [(one.error, len(one.token_ids)) for one in outcomes] == 4 * [(None, 100)]


def refuses(folder: Path, port: int) -> None:
    """Neither other keys, nor what operates Redis, nor whoever shows no certificate."""
    commands = ("SET other 1", "GET other", "KEYS *", "FLUSHALL", "CONFIG SET save x", "ACL LIST")
    with redis.Redis.from_url(url(folder, port)) as user:
        for command in commands:
            with pytest.raises(redis.exceptions.NoPermissionError):
                user.execute_command(*command.split())
    bare = f"rediss://headrace:{quote(SECRET, safe='')}@127.0.0.1:{port}/0?ssl_ca_certs={folder}/ca.pem"
    with redis.Redis.from_url(bare) as stranger, pytest.raises(redis.exceptions.ConnectionError):
        stranger.ping()
