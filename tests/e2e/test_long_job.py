"""A generation that outlasts every lease several times over runs once (B32)."""

import asyncio
import time

import pytest

from common.lengths import LENGTHS
from headrace.client import AsyncClient
from tests.support.outcomes import collect
from tests.support.stack import SIMULATED, running_stack
from tests.support.witnesses import witnessed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

# Entries of a scheduler that is gone are taken over after its lease.
LASTS_S = 3 * LENGTHS.leader_lease_s + 1
NUM_TOKENS = 500


async def test_a_long_generation_is_dispatched_once():
    """Two schedulers, one stream and one answer, three leases long: each has one attempt, and nobody takes over."""
    step_ms = LASTS_S * 1000 / NUM_TOKENS
    flags = [*SIMULATED, "--step-ms", f"{step_ms:g}"]
    asked = {"model": "sim", "max_tokens": NUM_TOKENS, "ignore_eos": True, "temperature": 0.0}
    with running_stack(schedulers=2, workers=2, worker_flags=flags) as stack:
        async with AsyncClient(stack.targets) as client:
            async with witnessed(stack, client, count=1, tokens=50):
                began_s = time.monotonic()
                stream, answer = await asyncio.gather(
                    collect(client, "long", **asked), client.generate("long", **asked)
                )
                assert time.monotonic() - began_s > 3 * LENGTHS.leader_lease_s
                assert stream.error is None
                assert stream.token_ids == list(answer.choices[0].token_ids)
                assert (stream.timings.attempts, answer.timings.attempts) == (1, 1)
            dispatched = sum(
                stack.metric(scheduler, "headrace_dispatched_total")
                for scheduler in stack.schedulers
            )
            # The two, a witness twice, a control request twice.
            assert dispatched == 6
            assert not any(
                stack.metric(scheduler, "headrace_takeovers_total")
                for scheduler in stack.schedulers
            )
