"""Runs of the protocol's model, replayed against the real scripts: both must say the same after every step."""

import random
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from common.streams.node import Node
from tests.integration.protocol.replayed import Replayed
from tests.support.redis_server import RedisServer, running_redis
from tests.unit.protocol.explore import LateCheckpoint, State, first_state, moves
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
        steps, trimmed = await _replay(node, scope, f"g{number}", partial(_choose, chooser))
        num_steps, num_trimmed = num_steps + len(steps), num_trimmed + trimmed
    print(f"{num_steps} steps, {num_trimmed} appends trimmed")
    assert num_steps > 400
    assert num_trimmed > 0 or scope.has_late_reader, "nothing was ever trimmed"


async def test_a_checkpoint_never_goes_back(node: Node) -> None:
    """A copy that arrives behind a newer checkpoint of its epoch changes nothing: random runs hardly ever have one."""
    chooser, scope = random.Random(1), Scope(num_tokens=6, checkpoints=2)
    num_late = 0
    for number in range(30):
        steps, _ = await _replay(node, scope, f"g{number}", partial(_choose_late, chooser))
        num_late += sum(_is_overtaken(before, name) for before, name in steps)
    print(f"{num_late} late checkpoints")
    assert num_late > 10


async def _replay(
    node: Node,
    scope: Scope,
    log: str,
    choose: Callable[[Scope, State, str], tuple[str, State] | None],
) -> tuple[list[tuple[State, str]], int]:
    """Carry out one run; its steps with the states before them, and how many appends were trimmed."""
    replayed = await Replayed.admit(node, log, scope)
    state, name = first_state(scope), ""
    steps = []
    while (step := choose(scope, state, name)) is not None:
        name, after = step
        await replayed.do(state, name, after)
        await replayed.check(after)
        steps.append((state, name))
        state = after
    return steps, await replayed.num_trimmed()


def _choose(
    chooser: random.Random, scope: Scope, state: State, last: str
) -> tuple[str, State] | None:
    """Mostly the same session goes on, so that runs get far before another one comes between."""
    possible = list(moves(scope, state))
    if chooser.random() < 0.7:
        possible = [step for step in possible if step[0][:1] == last[:1]] or possible
    return chooser.choice(possible) if possible else None


def _choose_late(
    chooser: random.Random, scope: Scope, state: State, last: str
) -> tuple[str, State] | None:
    """The first session goes on; its checkpoint is delayed, and arrives as soon as another has overtaken it."""
    possible = list(moves(scope, state))
    of_choice = (
        [step for step in possible if _is_overtaken(state, step[0])]
        or [step for step in possible if "(delayed)" in step[0]]
        or [step for step in possible if state.strays and step[0] == "0 checkpoint 0"]
        or [step for step in possible if step[0][:1] == "0" and not _loses_answer(step[0])]
        or possible
    )
    return chooser.choice(of_choice) if of_choice else None


def _loses_answer(name: str) -> bool:
    return "lost" in name or "time out" in name


def _is_overtaken(before: State, name: str) -> bool:
    """Whether a step is the arrival of a checkpoint behind a newer one of the same epoch."""
    word = name.split()
    late = before.strays[int(word[1])] if word[0] == "stray" else None
    if not isinstance(late, LateCheckpoint):
        return False
    record = before.store.records[late.request]
    is_open = record.terminal is None and record.epoch == late.epoch
    return is_open and len(late.checkpoint.summary.tokens) < len(record.checkpoint.summary.tokens)
