"""Request ids and statuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.domain import FinishReason, Partition, RequestId, uuid7_hex
from common.request_status import RequestStatus, status_of_finish, transition

MODELS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,20}", fullmatch=True)


@given(MODELS, st.integers(1, 9))
def test_an_id_names_model_and_partition(model, partitions):
    """Whoever holds an id finds its record: parsing gives back what made it."""
    made = RequestId.make(model, partitions)
    assert RequestId.parse(str(made)) == made
    assert 0 <= made.partition.index < partitions


@pytest.mark.parametrize(
    "text", ["", "x", "m:0:zz", "m:x:" + "0" * 32, "m:0:" + "0" * 31, "m{:0:" + "0" * 32]
)
def test_what_is_no_id_is_refused(text):
    """A made-up id never becomes a Redis key."""
    assert RequestId.parse(text) is None


def test_ids_of_one_moment_differ_and_sort_by_time():
    """A thousand ids of the same millisecond are distinct; later ones sort behind."""
    assert len({uuid7_hex(1) for _ in range(1000)}) == 1000
    assert uuid7_hex(1) < uuid7_hex(2)
    assert uuid7_hex(5)[12] == "7"


def test_ids_spread_over_partitions():
    """No partition is left out."""
    assert {RequestId.make("m", 4).partition for _ in range(200)} == {
        Partition("m", i) for i in range(4)
    }


def test_final_statuses_never_move():
    """A request ends once."""
    for status in RequestStatus:
        if status.is_final:
            for target in RequestStatus:
                with pytest.raises(AssertionError):
                    transition(status, target)


def test_loss_and_preemption_lead_back_to_the_queue():
    """RUNNING goes back to QUEUED; QUEUED never repeats itself."""
    assert transition(RequestStatus.RUNNING, RequestStatus.QUEUED) is RequestStatus.QUEUED
    with pytest.raises(AssertionError):
        transition(RequestStatus.QUEUED, RequestStatus.QUEUED)


def test_every_finish_reason_has_a_final_status():
    """No way to end is forgotten."""
    assert all(status_of_finish(reason).is_final for reason in FinishReason)
