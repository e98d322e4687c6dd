"""Many times more requests than the engine can take (B35); the figures are ``python -m tests.bench.overload``'s."""

import pytest

from headrace.client import AsyncClient
from tests.bench.overload import Kind, Outcome, ask, closed_loop, open_loop
from tests.support.polling import eventually
from tests.support.stack import SIMULATED, running_stack
from tests.support.time_scale import scaled

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(scaled(600))]

QUEUE = 8


async def test_overload_is_refused_and_what_was_accepted_is_answered():
    """Refusals say when to come back, the queue keeps its bound, no accepted request is late, and service goes on."""
    flags = [*SIMULATED, "--step-ms", "20", "--max-seqs", "4"]
    bound = ["--queue-max-requests", str(QUEUE)]
    kind = Kind(tokens=16, deadline_s=scaled(120))
    with running_stack(worker_flags=flags, gateway_flags=bound) as stack:
        async with AsyncClient(stack.targets) as client:
            peak = await closed_loop(client, kind, lanes=8, seconds=1)
            assert not peak.reasons
            # Where this machine had a bad moment meanwhile, still many times what the engine's steps allow: 12.5.
            rate = max(5 * peak.goodput, 60)
            over = await open_loop(client, kind, rate=rate, seconds=3, stack=stack)
            over.reasons.pop("ANSWERED_AFTERWARDS")
            assert set(over.reasons) == {"QUEUE_FULL"}
            assert all(retry_s is not None and 0 < retry_s <= 60 for retry_s in over.retry_s)
            assert 0 < over.longest_queue <= QUEUE
            assert over.answered
            afterwards = Outcome()
            await ask(client, kind, afterwards)
            assert afterwards.answered == 1
        eventually(lambda: stack.pending_entries() == 0)
