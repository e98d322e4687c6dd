"""A content policy over real processes: the end is the same to the letter, whoever dies meanwhile and however it is read."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from headrace.client import AsyncClient
from headrace.v1 import generation_pb2 as gen
from tests.support.engines import make_job, run_alone
from tests.support.outcomes import TokenCount
from tests.support.stack import SIMULATED, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PROMPT = "hello"
PLACE = 150


async def read(client: AsyncClient, count: TokenCount, **ask) -> tuple[str, str, int, int]:
    """A stream's id, text, finish reason and tokens; it has no token ids, and still no gap."""
    text, seq = "", 0
    async with client.stream(PROMPT, **ask) as stream:
        async for event in stream:
            count.add(event.count)
            text += event.delta.text
            assert not event.delta.token_ids
            assert event.WhichOneof("event") in ("accepted", "prompt") or event.seq == seq
            seq += event.count
        assert stream.request_id
        return stream.request_id, text, event.finish.finish_reason, event.usage.completion_tokens


async def test_a_kill_changes_nothing(tmp_path: Path) -> None:
    """Stream, unary and stored answer end in front of the passage, through kill -9 of the worker; tokens stay unsaid."""
    whole = run_alone(make_job(prompt=PROMPT, max_tokens=200)).text
    forbidden = whole[PLACE : PLACE + 12]
    told = whole[: whole.index(forbidden)]
    path = tmp_path / "patterns.toml"
    pattern = json.dumps(re.escape(forbidden), ensure_ascii=False)
    path.write_text(f"hold_back = 16\npatterns = [{pattern}]\n")
    flags = [*SIMULATED, "--step-ms", "10", "--output-filters", f"patterns={path}"]
    with running_stack(workers=2, worker_flags=flags) as stack:
        async with AsyncClient(stack.targets[0]) as client:
            count = TokenCount()
            ask = {"model": "sim", "max_tokens": 400, "temperature": 0.0, "seed": 1}
            streams = [asyncio.create_task(read(client, count, **ask)) for _ in range(4)]
            await count.reach(120)
            stack.workers[0].kill()
            stack.workers[0].start()
            outcomes = await asyncio.gather(*streams)
            unary = await client.generate(PROMPT, **ask)
            stored = await client.get_request(outcomes[0][0])
    for outcome in outcomes:
        assert outcome[1:3] == (told, gen.FINISH_REASON_CONTENT_FILTER)
        assert outcome[3] == unary.usage.completion_tokens
    assert unary.choices[0].text == told
    assert stored.result.choices[0].text == told
