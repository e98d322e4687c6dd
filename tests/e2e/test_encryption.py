"""Encryption in Redis over real processes: nothing to be read there, and everything goes on as without it."""

import asyncio
import re
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from headrace.client import AsyncClient
from tests.support.outcomes import TokenCount, collect
from tests.support.stack import SIMULATED, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def contents(client) -> bytes:
    """All that lies in Redis, as it lies there."""
    found: list[object] = []
    for key in client.keys("*"):
        kind = client.type(key)
        if kind == b"hash":
            found.append(client.hgetall(key))
        elif kind == b"stream":
            found.append(client.xrange(key))
        elif kind == b"string":
            found.append(client.get(key))
    return repr(found).encode()


async def test_a_takeover_reads_what_was_sealed(tmp_path: Path) -> None:
    """Streams through kill -9 of the leader equal the undisturbed one; no text is in Redis, before the end and after."""
    path = tmp_path / "keys"
    path.write_text(Fernet.generate_key().decode() + "\n")
    flags = [*SIMULATED, "--step-ms", "15"]
    environment = {"HEADRACE_ENCRYPTION_KEYS": str(path)}
    with running_stack(schedulers=2, worker_flags=flags, environment=environment) as stack:
        async with AsyncClient(stack.targets[0]) as client:
            ask = {"model": "sim", "max_tokens": 200, "ignore_eos": True, "seed": 1}
            undisturbed = await client.generate("hello", **ask)
            text = undisturbed.choices[0].text
            count = TokenCount()
            streams = [
                asyncio.create_task(collect(client, "hello", count=count, **ask)) for _ in range(4)
            ]
            await count.reach(300)
            stack.leading_scheduler().kill()
            during = contents(stack.redis_client())
            outcomes = await asyncio.gather(*streams)
            stored = await client.get_request(outcomes[0].request_id)
        after = contents(stack.redis_client())
    assert {outcome.text for outcome in outcomes} == {text}
    assert stored.result.choices[0].text == text
    piece = max(re.findall("[a-z ]{5,}", text), key=len)
    for whole in (during, after):
        assert b"gAAAA" in whole
        assert piece.encode() not in whole
