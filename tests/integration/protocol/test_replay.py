"""Runs of the protocol's model, replayed against the real scripts: both must say the same after every step."""

import random
from collections.abc import Iterator

import pytest

from common.streams.node import Node
from tests.integration.protocol.replayed import Replayed
from tests.support.redis_server import RedisServer, running_redis
from tests.unit.protocol.explore import State, first_state, moves
from tests.unit.protocol.scope import Scope

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

SCOPES = {
    "one request": Scope(sessions=3, num_tokens=3, lost=3, checkpoints=2, worker_losses=1),
    "expiry": Scope(sessions=3, lost=2, expires=True),
    "late reader": Scope(sessions=3, lost=2, has_late_reader=True),
    "two requests": Scope(requests=2, sessions=3, lost=2),
}


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A Redis whose logs drop single entries, so that trimming shows in short logs."""
    with running_redis(options=["--stream-node-max-entries", "1"]) as server:
        yield server


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES.keys())
async def test_the_scripts_do_what_the_model_does(node: Node, scope: Scope) -> None:
    """Along random runs every answer, record, mark and log entry is the model's; trimming happens and is safe."""
    chooser = random.Random(1)
    num_trimmed = num_steps = 0
    for number in range(60):
        replayed = await Replayed.admit(node, f"g{number}", scope)
        state, name = first_state(scope), ""
        while (step := _choose(chooser, scope, state, name)) is not None:
            name, after = step
            await replayed.do(state, name, after)
            await replayed.check(after)
            state, num_steps = after, num_steps + 1
        num_trimmed += await replayed.num_trimmed()
    print(f"{num_steps} steps, {num_trimmed} appends trimmed")
    assert num_steps > 400
    assert num_trimmed > 0 or scope.has_late_reader, "nothing was ever trimmed"


def _choose(
    chooser: random.Random, scope: Scope, state: State, last: str
) -> tuple[str, State] | None:
    """Mostly the same session goes on, so that runs get far before another one comes between."""
    possible = list(moves(scope, state))
    if chooser.random() < 0.7:
        possible = [step for step in possible if step[0][:1] == last[:1]] or possible
    return chooser.choice(possible) if possible else None
