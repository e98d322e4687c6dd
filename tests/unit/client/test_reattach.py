"""When a broken stream is continued, how often, and after which pause."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.grpc_options import public_server_options
from common.lengths import LENGTHS
from common.streams.node import queue_unavailable
from headrace.client.connection import Targets, call_timeout_s, channel_options
from headrace.client.errors import HeadraceError
from headrace.client.reattach import Reattach, ReattachPolicy

GONE = HeadraceError("", code="UNAVAILABLE")
CUT_OFF = HeadraceError(
    "", code="UNAVAILABLE", reason=queue_unavailable().reason, retry_after_s=1.0
)


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (GONE, True),
        (HeadraceError("", code="UNAVAILABLE", reason="SHUTTING_DOWN"), True),
        (HeadraceError("", code="UNAVAILABLE", reason="REQUEST_LOST"), False),
        (HeadraceError("", code="UNAVAILABLE", reason="NO_WORKER"), False),
        (HeadraceError("", code="UNAVAILABLE", reason="NO_EQUAL_WORKER"), False),
        (HeadraceError("", code="UNAVAILABLE", reason="REVISION_LEFT"), False),
        (HeadraceError("", code="CANCELLED"), True),
        (HeadraceError("", code="CANCELLED", reason="CANCELLED"), False),
        (HeadraceError("", code="INTERNAL"), True),
        (HeadraceError("", code="INTERNAL", reason="POISON_REQUEST"), False),
        (HeadraceError("", code="DEADLINE_EXCEEDED"), False),
        (HeadraceError("", code="NOT_FOUND", reason="REQUEST_NOT_FOUND"), False),
    ],
)
def test_only_breaks_are_mended(error: HeadraceError, helps: bool) -> None:
    """What a server decided is final; what a connection did is not."""
    assert (Reattach.of(True).next_pause_s(error, None) is not None) == helps


@given(st.integers(1, 10), st.floats(0, 1))
def test_pauses_grow_are_drawn_and_bounded(attempt: int, jitter: float) -> None:
    """Between half and all of a doubling pause, never above the longest."""
    policy = ReattachPolicy()
    full = min(policy.longest_pause_s, policy.first_pause_s * 2 ** (attempt - 1))
    assert full / 2 <= policy.pause_s(attempt, jitter) <= full


def test_attempts_end_and_progress_renews_them() -> None:
    """So many in a row without a new token, however long the stream."""
    reattach = Reattach(ReattachPolicy(max_attempts=2))
    assert [reattach.next_pause_s(GONE, None) is None for _ in range(3)] == [False, False, True]
    reattach.progressed()
    assert reattach.next_pause_s(GONE, None) is not None


def test_the_servers_wish_outranks_the_pause_and_the_deadline_both() -> None:
    """Retry advice lengthens the pause; a pause past the deadline is none."""
    later = HeadraceError("", code="UNAVAILABLE", retry_after_s=3.0)
    assert Reattach.of(True).next_pause_s(later, None) == 3.0
    assert Reattach.of(True).next_pause_s(later, 2.0) is None


def test_little_time_is_used() -> None:
    """A break shortly before the deadline is followed by another try; behind it the time is what was missing."""
    reattach = Reattach.of(True)
    pause_s = reattach.next_pause_s(GONE, 0.02)
    assert pause_s is not None
    assert pause_s <= 0.01
    assert not reattach.lacked_time
    assert reattach.next_pause_s(GONE, 0.001) is None
    assert reattach.lacked_time
    spent = Reattach(ReattachPolicy(max_attempts=0))
    assert spent.next_pause_s(GONE, 0.001) is None
    assert not spent.lacked_time


def test_a_gateway_that_waits_for_the_queue_is_asked_for_as_long_as_there_is_time() -> None:
    """It uses up nothing that is meant for gateways that are gone, and begins their count anew; advice and time hold."""
    reattach = Reattach(ReattachPolicy(max_attempts=2))
    for _ in range(100):
        assert reattach.next_pause_s(GONE, None) is not None
        pause_s = reattach.next_pause_s(CUT_OFF, None)
        assert pause_s is not None
        assert 1.0 <= pause_s <= ReattachPolicy().longest_pause_s
    assert reattach.next_pause_s(CUT_OFF, 0.9) is None
    assert reattach.lacked_time
    assert Reattach.of(False).next_pause_s(CUT_OFF, None) is None


def test_off_is_off() -> None:
    """No attempt at all."""
    assert Reattach.of(False).next_pause_s(GONE, None) is None


@given(st.floats(0, 1e6))
def test_a_call_waits_a_little_longer_than_the_server(limit_s: float) -> None:
    """Enough for its answer to arrive, at most two seconds."""
    wait_s = call_timeout_s(limit_s)
    assert wait_s is not None
    assert limit_s < wait_s <= limit_s + 2


def test_targets() -> None:
    """One or several, in turn; none is a mistake."""
    assert Targets.of("a").after(0) == 0
    assert Targets.of(["a", "b"]).after(1) == 0
    with pytest.raises(ValueError, match="at least one target"):
        Targets.of([])
    with pytest.raises(ValueError, match="a list"):
        Targets.of("a:1,b:2")
    assert Targets.of("ipv4:10.0.0.1:1,10.0.0.2:1").after(0) == 0


def test_a_dead_path_is_noticed_while_the_request_lives() -> None:
    """Its gateway counts as gone within the lease at the earliest, and then there is the grace to come back elsewhere."""
    options = dict(channel_options(num_targets=2))
    noticed_ms = options["grpc.keepalive_time_ms"] + options["grpc.keepalive_timeout_ms"]
    assert options["grpc.http2.ping_timeout_ms"] == options["grpc.keepalive_timeout_ms"]
    lives_s = LENGTHS.gateway_lease_s - LENGTHS.gateway_renewal_s + LENGTHS.orphan_grace_s
    assert noticed_ms / 1000 + 3.0 < lives_s, "too little is left for finding another gateway"
    allowed_ms = dict(public_server_options())["grpc.http2.min_ping_interval_without_data_ms"]
    assert int(allowed_ms) < options["grpc.keepalive_time_ms"]
