"""Spans of time, how long leases, beats, graces and looks are: all worked out here, from a few base numbers.

Correctness hangs on none of them: epochs and fences make a takeover that comes too early harmless (docs/delivery.md). They are
choices between pauses and false alarms, and only their proportions matter.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Base:
    """What the lengths are made of.

    ``beat_s`` is how often a holder says that it is there, and the longest that one answer of a healthy node may take:
    half a second is long for Redis and short for people. The other two are promises to clients.
    """

    beat_s: float = 0.5
    longest_life_s: float = 15 * 60.0
    result_s: float = 10 * 60.0


@dataclass(frozen=True, slots=True)
class Lengths:
    """The lengths in use, by what they are for. See ``derive``."""

    # A partition's leader.
    leader_renewal_s: float
    leader_lease_s: float
    leader_margin_s: float
    leader_look_gap_s: float
    leader_flush_s: float
    # A gateway.
    gateway_renewal_s: float
    gateway_lease_s: float
    gateway_look_s: float
    gateway_look_bound_s: float
    gateway_look_gap_s: float
    orphan_grace_s: float
    resume_grace_s: float
    # A leader's looks at its records, and what it leaves there.
    heartbeat_s: float
    heartbeat_bound_s: float
    inbox_sweep_s: float
    snapshot_s: float
    checkpoint_s: float
    checkpoint_tokens: int
    # A worker.
    worker_heartbeat_s: float
    worker_reconnect_s: float
    worker_cancel_s: float
    worker_deadline_s: float
    # What is stored.
    longest_life_s: float
    result_ttl_s: float
    open_record_ttl_s: float
    claim_ttl_s: float
    log_ttl_s: float
    status_ttl_s: float
    wake_ttl_s: float


def derive(base: Base) -> Lengths:
    """All lengths from the base numbers. With the default base, beat = 0.5 s:

    leader    renewed each beat; lease = 6 beats = 3 s: the pause that users feel when a leader is killed, and five
              lost answers in a row are no death. It counts from the *asking* and ends a beat early (margin) for its
              holder: a write begun in time may take a beat to arrive. A standby looks each beat; between looks more
              than 3 beats apart nothing was observed. Redis tells how old the last renewal is, so a beat of healthy
              looks has observed the holder's silence from that renewal on: where all is healthy the lease runs out
              and has been observed in full at the same moment, and the standby looks exactly then. A leader dies
              between two renewals: the takeover comes 5 to 6 beats = 2.5 to 3 s after its death.
    gateway   renewed every 2 beats = 1 s; lease = 10 beats = 5 s, four lost renewals: its absence costs only the
              work of requests that nobody follows, so it gets more time than a leader. Looked at every 2 beats, and
              when its lease runs out, as a leader is: it counts as gone 8 to 10 beats = 4 to 5 s after its death.
              Answers within 2 beats; an interval and two slow answers = 6 beats may lie between two looks.
    graces    a request outlives its gateway by two leases = 10 s, in which its client finds another gateway: a
              path that is silently dead is noticed within 10 s of the 14 that it has (client/connection.py). A
              resumable one by a minute, for people and processes that have to start again.
    records   heartbeats every 2 beats = 1 s, and an answer after 4 beats says nothing about now; so a leader learns of
              a cancellation whose wake message was lost within a second. Checkpoints every 4 beats = 2 s or 64 tokens:
              a takeover reads at most what lies between two of them.
    worker    a life sign every 2 beats = 1 s, three missing end the session. Back within 4 beats = 2 s, it was not
              lost: that is a broken connection and a first redial. A cancellation is answered between two steps, so
              within 4 beats or never; a deadline is kept by the worker itself, and by the leader 2 beats later.
    stored    an open record outlives the longest life by the life of a result, so that it never goes while somebody
              works on it; an idempotency key outlives both by another result and a minute between claim and admission.
              A log that nobody has appended to for a longest life has no open request. A snapshot is good for five.
    """
    beat_s = base.beat_s
    leader_lease_s, gateway_lease_s = 6 * beat_s, 10 * beat_s
    gateway_look_s = gateway_look_bound_s = 2 * beat_s
    open_record_ttl_s = base.longest_life_s + base.result_s
    snapshot_s = 2 * beat_s
    return Lengths(
        leader_renewal_s=beat_s,
        leader_lease_s=leader_lease_s,
        leader_margin_s=beat_s,
        leader_look_gap_s=3 * beat_s,
        leader_flush_s=leader_lease_s,
        gateway_renewal_s=2 * beat_s,
        gateway_lease_s=gateway_lease_s,
        gateway_look_s=gateway_look_s,
        gateway_look_bound_s=gateway_look_bound_s,
        gateway_look_gap_s=gateway_look_s + 2 * gateway_look_bound_s,
        orphan_grace_s=2 * gateway_lease_s,
        resume_grace_s=120 * beat_s,
        heartbeat_s=2 * beat_s,
        heartbeat_bound_s=4 * beat_s,
        inbox_sweep_s=2 * beat_s,
        snapshot_s=snapshot_s,
        checkpoint_s=4 * beat_s,
        checkpoint_tokens=64,
        worker_heartbeat_s=2 * beat_s,
        worker_reconnect_s=4 * beat_s,
        worker_cancel_s=4 * beat_s,
        worker_deadline_s=2 * beat_s,
        longest_life_s=base.longest_life_s,
        result_ttl_s=base.result_s,
        open_record_ttl_s=open_record_ttl_s,
        claim_ttl_s=open_record_ttl_s + base.result_s + 60.0,
        log_ttl_s=base.longest_life_s,
        status_ttl_s=5 * snapshot_s,
        wake_ttl_s=60.0,
    )


LENGTHS = derive(Base())
"""The lengths that all services use."""


def milliseconds(seconds: float) -> int:
    """As Redis wants them."""
    return round(seconds * 1000)
