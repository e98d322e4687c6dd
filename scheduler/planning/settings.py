"""What can be tuned about planning."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from common.domain import Priority


def _default_patience_s() -> Mapping[Priority, float]:
    # Longer than a healthy queue ever is: this is for overload, not for daily business.
    return {
        Priority.CRITICAL: 10.0,
        Priority.HIGH: 15.0,
        Priority.NORMAL: 30.0,
        Priority.BATCH: 60.0,
    }


def _default_preempt_after_s() -> Mapping[Priority, float]:
    # What is urgent by its class waits for a slot a moment only; the others until they are late by any measure.
    return {
        Priority.CRITICAL: 0.1,
        Priority.HIGH: 0.2,
        Priority.NORMAL: 10.0,
        Priority.BATCH: 60.0,
    }


@dataclass(frozen=True, slots=True)
class PlanningSettings:
    """Limits of the rules in this package.

    ``preempt_after_s`` is how long a request waits before others make room for it, ``quantum_s`` how long those have
    run by then, ``max_preempted`` how often one is asked, ``max_preempting`` for how many a plan asks. All of it may
    cost ``recompute_share`` of what is computed, after ``recompute_burst_tokens``.
    ``fairness_quantum_tokens`` is by how many weighted tokens tenants may differ before fairness goes before due
    times; by ``max_ahead_tokens`` a tenant may get ahead of one whose request does not fit before a worker is kept for that
    one. ``tenant_weights`` are shares, 1 for whoever is not named. ``patience_s`` is the wait held tolerable in a class: behind it a request is overdue, and a request
    without a deadline is ordered as if this were its deadline. ``unserved_wait_s`` is how long what no worker serves
    any more waits for one.
    """

    batch_window_ms: float = 0.0
    preempt_after_s: Mapping[Priority, float] = field(default_factory=_default_preempt_after_s)
    recompute_share: float = 0.1
    recompute_burst_tokens: int = 8192
    quantum_s: float = 0.5
    max_preempted: int = 3
    max_preempting: int = 4
    bucket_bounds: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
    unbucketed_every: int = 8
    overdue_every: int = 8
    fairness_quantum_tokens: int = 1024
    max_ahead_tokens: int = 16_384
    tenant_weights: Mapping[str, float] = field(default_factory=dict)
    max_overtaken: int = 16
    look_ahead: int = 4
    reserve_tokens: int = 128
    prefill_steps: int = 2
    patience_s: Mapping[Priority, float] = field(default_factory=_default_patience_s)
    unserved_wait_s: float = 120.0

    def __post_init__(self) -> None:
        assert self.batch_window_ms >= 0, self
        assert self.bucket_bounds == tuple(sorted(set(self.bucket_bounds))), self
        assert self.unbucketed_every >= 1, self
        assert self.overdue_every >= 1, self
        assert set(self.preempt_after_s) == set(Priority), self
        assert min(self.quantum_s, self.recompute_share, *self.preempt_after_s.values()) >= 0, self
        assert min(self.max_preempted, self.max_preempting) >= 0, self
        assert self.fairness_quantum_tokens >= 1, self
        assert self.max_ahead_tokens >= self.fairness_quantum_tokens, self
        assert all(weight > 0 for weight in self.tenant_weights.values()), self
        assert self.max_overtaken >= 0, self
        assert self.look_ahead >= 1, self
        assert self.reserve_tokens >= 1, self
        assert self.prefill_steps >= 1, self
        assert set(self.patience_s) == set(Priority), self
        assert all(patience > 0 for patience in self.patience_s.values()), self

    @property
    def max_ahead_quanta(self) -> int:
        """How far a tenant may get ahead, as counters are compared."""
        return self.max_ahead_tokens // self.fairness_quantum_tokens

    @property
    def batch_window_s(self) -> float:
        """The window in seconds."""
        return self.batch_window_ms / 1000
