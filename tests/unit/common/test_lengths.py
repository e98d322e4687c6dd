"""The proportions of the lengths hold for any base, not for today's numbers only."""

from dataclasses import asdict

import pytest

from common import keys
from common.lengths import LENGTHS, Base, Lengths, derive


@pytest.fixture(params=[Base(), Base(beat_s=0.05, longest_life_s=10.0, result_s=4.0), Base(2.0)])
def lengths(request) -> Lengths:
    return derive(request.param)


def test_a_holder_stops_before_anybody_may_take_over(lengths: Lengths):
    """Several renewals fit into what a holder may use of a lease, and looks are closer than a lease."""
    usable_s = lengths.leader_lease_s - lengths.leader_margin_s
    assert usable_s >= 4 * lengths.leader_renewal_s
    assert lengths.leader_look_gap_s < lengths.leader_lease_s
    assert lengths.gateway_lease_s >= 4 * lengths.gateway_renewal_s


def test_a_slow_look_does_not_interrupt_an_observation(lengths: Lengths):
    """Two looks whose answers take their whole bound still count as continuous."""
    assert lengths.gateway_look_s + 2 * lengths.gateway_look_bound_s <= lengths.gateway_look_gap_s


def test_graces_outlast_what_they_wait_for(lengths: Lengths):
    """A request outlives the lease of its gateway, a resumable one for longer; both end with the longest life."""
    assert lengths.gateway_lease_s < lengths.orphan_grace_s <= lengths.resume_grace_s
    assert lengths.worker_reconnect_s > lengths.worker_heartbeat_s


def test_nothing_stored_goes_before_what_needs_it(lengths: Lengths):
    """Record after life and result, claim after record and result, log after the last append of any open request."""
    assert lengths.open_record_ttl_s >= lengths.longest_life_s + lengths.result_ttl_s
    assert lengths.claim_ttl_s > lengths.open_record_ttl_s + lengths.result_ttl_s
    assert lengths.log_ttl_s >= lengths.longest_life_s
    assert lengths.status_ttl_s > lengths.snapshot_s


def test_the_services_use_them():
    """The keys' lifetimes are these lengths; and no length is nothing."""
    assert keys.LEADER_LEASE_MS == 1000 * LENGTHS.leader_lease_s == 3000
    assert keys.GATEWAY_LEASE_MS == 1000 * LENGTHS.gateway_lease_s == 5000
    assert 1000 * LENGTHS.claim_ttl_s == keys.IDEMPOTENCY_TTL_MS
    assert all(value > 0 for value in asdict(LENGTHS).values())
