"""Which fault comes when: a pure function of the seed. Whom it meets is drawn here, and looked up when it happens."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """What can be done to a stack. docs/delivery.md promises undisturbed tokens through each of them."""

    KILL_WORKER = "kill-worker"
    KILL_SCHEDULER = "kill-scheduler"
    KILL_LEADER = "kill-leader"
    KILL_GATEWAY = "kill-gateway"
    KILL_REDIS = "kill-redis"
    PAUSE_WORKER = "pause-worker"
    PAUSE_SCHEDULER = "pause-scheduler"
    PAUSE_LEADER = "pause-leader"
    PAUSE_GATEWAY = "pause-gateway"
    PAUSE_REDIS = "pause-redis"
    FILL_REDIS = "fill-redis"
    CLIENT_KILL = "client-kill"
    LOSE_ANSWERS = "lose-answers"
    BLACKHOLE_SCHEDULER_REDIS = "blackhole-scheduler-redis"
    BLACKHOLE_GATEWAY_REDIS = "blackhole-gateway-redis"
    BLACKHOLE_WORKERS = "blackhole-workers"
    CUT_SCHEDULER_REDIS = "cut-scheduler-redis"
    CUT_GATEWAY_REDIS = "cut-gateway-redis"
    CUT_WORKERS = "cut-workers"
    STRAND_GATEWAY = "strand-gateway"
    """Redis is lost to one gateway alone, for longer than its requests outlive it."""
    DRAIN_WORKER = "drain-worker"
    ROLL_WORKERS = "roll-workers"
    ROLL_SCHEDULERS = "roll-schedulers"
    ROLL_GATEWAYS = "roll-gateways"


LASTS_LONG = frozenset({FaultKind.STRAND_GATEWAY})
"""Half a short run would pass under one of them."""

LOSES_WORKERS = frozenset(
    {
        FaultKind.KILL_WORKER,
        FaultKind.PAUSE_WORKER,
        FaultKind.BLACKHOLE_WORKERS,
        FaultKind.CUT_WORKERS,
    }
)
"""Each may count as a worker lost: three of them in one request's life would make it poison, rightly."""

# Up to past the leases: a gateway's is 5 s, a leader's 3 s, a worker is
# missed after 3.5 s. A gateway's clients notice nothing while it is paused, so it may not be gone for longer than
# what its requests outlive it by: lease and grace, 15 s from its last sign of life. One that is stranded tells them.
_HOLD_S = {
    FaultKind.KILL_WORKER: (0.0, 4.0),
    FaultKind.KILL_SCHEDULER: (0.0, 4.0),
    FaultKind.KILL_LEADER: (0.0, 5.0),
    FaultKind.KILL_GATEWAY: (0.0, 4.0),
    FaultKind.KILL_REDIS: (0.0, 4.0),
    FaultKind.PAUSE_WORKER: (0.5, 8.0),
    FaultKind.PAUSE_SCHEDULER: (0.5, 9.0),
    FaultKind.PAUSE_LEADER: (0.5, 9.0),
    FaultKind.PAUSE_GATEWAY: (0.5, 11.0),
    FaultKind.PAUSE_REDIS: (0.5, 8.0),
    FaultKind.FILL_REDIS: (0.5, 8.0),
    FaultKind.LOSE_ANSWERS: (0.5, 3.0),
    FaultKind.BLACKHOLE_SCHEDULER_REDIS: (0.5, 9.0),
    FaultKind.BLACKHOLE_GATEWAY_REDIS: (0.5, 11.0),
    FaultKind.BLACKHOLE_WORKERS: (0.5, 7.0),
    FaultKind.STRAND_GATEWAY: (16.0, 24.0),
    FaultKind.DRAIN_WORKER: (0.0, 3.0),  # the grace
}
_FAST_SHARE = 0.25
"""Share of the faults that come right behind the one before, so that both are there at once."""

_NO_REDIS = frozenset({FaultKind.PAUSE_REDIS, FaultKind.FILL_REDIS})
"""Redis is there and answers nothing, or takes nothing: how long may be said."""
_LONGEST_SHARE = 0.25
"""Share of these that last as long as they may: past every lease and every grace, in a long run."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault. `pick` chooses among those whom it can meet; `hold_s` is how long it lasts."""

    number: int
    kind: FaultKind
    after_s: float
    pick: float
    hold_s: float

    def __str__(self) -> str:
        return f"{self.number:4d}  +{self.after_s:4.1f} s  {self.kind:26s} pick {self.pick:.3f}, hold {self.hold_s:4.1f} s"


def plan_faults(
    seed: int,
    kinds: Sequence[FaultKind],
    gap_s: tuple[float, float],
    *,
    longest_without_redis_s: float = 8.0,
) -> Iterator[Fault]:
    """Faults for ever. Every kind comes once before any comes again, so that short runs see many kinds."""
    rng = random.Random(f"faults {seed}")
    number, deck = 0, [*kinds]
    while True:
        rng.shuffle(deck)
        for kind in deck:
            is_fast = rng.random() < _FAST_SHARE
            after_s = rng.uniform(0.0, 0.5) if is_fast else rng.uniform(*gap_s)
            low_s, high_s = _HOLD_S.get(kind, (0.0, 0.0))
            if kind in _NO_REDIS:
                high_s = longest_without_redis_s
            # The power: most are short, some go past every lease.
            hold_s = low_s + (high_s - low_s) * rng.random() ** 1.5
            if kind in _NO_REDIS and rng.random() < _LONGEST_SHARE:
                hold_s = high_s
            yield Fault(number, kind, round(after_s, 2), round(rng.random(), 3), round(hold_s, 2))
            number += 1
