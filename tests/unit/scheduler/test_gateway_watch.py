"""When the clients of a gateway that died are let go: within its lease, by the clock alone."""

import asyncio
from types import SimpleNamespace

import pytest

from common import keys
from common.domain import RequestId
from common.lengths import LENGTHS
from common.streams.node import queue_unavailable
from common.streams.scripts import script_digest
from common.streams.vault import Vault
from scheduler.gateway_watch import GatewayWatch
from tests.support.fake_clock import FakeClock
from tests.support.time_scale import scaled

LEASE_S = LENGTHS.gateway_lease_s
DIED_S = 1007.0
ANSWERS_WITHIN_S = 0.004
# A look that comes a moment before the lease runs out is followed by one this much later.
SLACK_S = 0.05


class FakeNode:
    """Redis with one gateway's lease, last renewed when the gateway was last alive; away at some times."""

    def __init__(self, clock: FakeClock, renewed_s: float) -> None:
        self.clock = clock
        self.renewed_s = renewed_s
        self.is_taught = True
        self.vault = Vault()
        self.away: tuple[float, float] = (0.0, 0.0)
        self.left: list[tuple[float, str, int]] = []

    async def call(self, operation, *, bound_s=None):
        self.clock.advance(ANSWERS_WITHIN_S)
        if self.away[0] <= self.clock() < self.away[1]:
            self.clock.advance(bound_s)
            raise queue_unavailable()
        return await operation(self)

    async def execute_command(self, _command, digest, _num_keys, key, *rest):
        if digest == script_digest("look_lease"):
            assert key == keys.gateway_alive("g")
            left_s = self.last_renewal_s() + LEASE_S - self.clock()
            return [b"1", round(1000 * left_s)] if left_s > 0 else []
        assert digest == script_digest("leave")
        _, _, follower, grace_ms, _ = rest
        self.left.append((self.clock(), follower, grace_ms))
        return [b"abandoned"]

    def last_renewal_s(self) -> float:
        """The last renewal: each second until the death."""
        now_s = min(self.clock(), DIED_S)
        renewals = int((now_s - self.renewed_s) / LENGTHS.gateway_renewal_s)
        return self.renewed_s + renewals * LENGTHS.gateway_renewal_s


def watching(phase_s: float) -> tuple[FakeClock, FakeNode, GatewayWatch]:
    """A watch that has just begun, of one request at one gateway."""
    clock = FakeClock()
    node = FakeNode(clock, clock() - phase_s)
    request_id = RequestId.make("m", 1)
    request = SimpleNamespace(id=request_id, key=str(request_id), gateways=frozenset({"g"}))
    led = SimpleNamespace(requests={request.key: request}, clock=clock)
    return clock, node, GatewayWatch(node, led, grace_s=2.0)  # type: ignore[arg-type]


async def let_go_at(clock: FakeClock, node: FakeNode, watch: GatewayWatch) -> float:
    """Look until the clients were let go; when that was."""
    while not node.left:
        clock.advance(await watch.look())
        assert clock() < DIED_S + 100
    assert watch.num_orphans == 1
    ((when_s, follower, grace_ms),) = node.left
    assert (follower, grace_ms) == ("g:", 2000)
    return when_s


@pytest.mark.parametrize("phase", range(10))
async def test_a_killed_gateways_clients_are_let_go_within_its_lease(phase: int):
    """Whenever in between two renewals it dies and is looked at: once its lease has run out, and no later (B17)."""
    clock, node, watch = watching(phase / 10)
    when_s = await let_go_at(clock, node, watch)
    lapsed_s = node.last_renewal_s() + LEASE_S
    assert lapsed_s <= when_s <= lapsed_s + SLACK_S
    assert when_s <= DIED_S + LEASE_S + SLACK_S


class NodeThatWaitsForAll(FakeNode):
    """Answers nobody before it was asked for all three gateways."""

    all_asked: asyncio.Barrier

    async def execute_command(self, _command, digest, _num_keys, key, *rest):
        assert digest == script_digest("look_lease")
        await self.all_asked.wait()
        return [b"1", round(1000 * LEASE_S)]


async def test_a_gateway_whose_lease_cannot_be_read_keeps_no_other_waiting():
    """Leases lie on several nodes of a cluster, of which some may be away: all are looked at beside each other."""
    clock = FakeClock()
    node = NodeThatWaitsForAll(clock, clock())
    node.all_asked = asyncio.Barrier(3)
    request_id = RequestId.make("m", 1)
    gateways = frozenset({"a", "b", "c"})
    request = SimpleNamespace(id=request_id, key=str(request_id), gateways=gateways)
    led = SimpleNamespace(requests={request.key: request}, clock=clock)
    watch = GatewayWatch(node, led, grace_s=2.0)  # type: ignore[arg-type]
    async with asyncio.timeout(scaled(30)):
        await watch.look()
    assert watch.num_orphans == 0


@pytest.mark.parametrize("away_s", [1.0, 3.0, 30.0])
async def test_while_redis_is_away_nobody_is_let_go(away_s: float):
    """A time in which no gateway could have renewed counts for none: the rest of the lease is watched afterwards."""
    clock, node, watch = watching(0.5)
    node.away = DIED_S + 1, DIED_S + 1 + away_s
    when_s = await let_go_at(clock, node, watch)
    if away_s >= LEASE_S:
        assert when_s >= node.away[1] + LEASE_S
    else:
        assert when_s >= DIED_S + LEASE_S - LENGTHS.gateway_renewal_s + away_s


async def test_who_lives_is_left_alone():
    """As long as it renews, nothing happens."""
    clock, node, watch = watching(0.3)
    while clock() < DIED_S:
        clock.advance(await watch.look())
    assert node.left == []
    assert watch.num_orphans == 0
