"""What an idempotency key that is taken means for the next caller: the whole table."""

import pytest

from common.request_status import RequestStatus
from gateway.verdict import Verdict, verdict_on

OPEN = [RequestStatus.QUEUED, RequestStatus.RUNNING]
KEPT = [RequestStatus.FINISHED, RequestStatus.FAILED, RequestStatus.DEAD]
FREED = [RequestStatus.CANCELLED, RequestStatus.EXPIRED]
both = pytest.mark.parametrize("is_same", [True, False])


def verdict(
    status: RequestStatus | None, is_same: bool, *, admitted: bool = True, cancelling: bool = False
) -> Verdict:
    """The verdict, in short."""
    return verdict_on(status, is_admitted=admitted, is_cancelling=cancelling, is_same=is_same)


@both
@pytest.mark.parametrize("status", [*OPEN, *KEPT])
@pytest.mark.parametrize("admitted", [True, False])
def test_a_request_or_its_result_keeps_the_key(
    status: RequestStatus, admitted: bool, is_same: bool
) -> None:
    """For the same body only, whether or not the claim says that it was admitted."""
    expected = Verdict.ATTACH if is_same else Verdict.REUSED
    assert verdict(status, is_same, admitted=admitted) is expected


@both
@pytest.mark.parametrize("cancelling", [True, False])
@pytest.mark.parametrize("status", FREED)
def test_what_has_no_result_frees_the_key(
    status: RequestStatus, cancelling: bool, is_same: bool
) -> None:
    """For any body."""
    assert verdict(status, is_same, cancelling=cancelling) is Verdict.FREE


@both
@pytest.mark.parametrize("status", OPEN)
def test_a_cancellation_under_way_is_awaited(status: RequestStatus, is_same: bool) -> None:
    """It may still end with a result."""
    assert verdict(status, is_same, cancelling=True) is Verdict.WAIT


@pytest.mark.parametrize("status", KEPT)
def test_a_result_outranks_a_cancellation(status: RequestStatus) -> None:
    """That came too late."""
    assert verdict(status, True, cancelling=True) is Verdict.ATTACH


@both
def test_no_record(is_same: bool) -> None:
    """Gone, where there was one; otherwise about to be admitted, by whoever has the same body."""
    assert verdict(None, is_same) is Verdict.FREE
    expected = Verdict.ADMIT if is_same else Verdict.REUSED
    assert verdict(None, is_same, admitted=False) is expected
