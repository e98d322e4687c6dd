"""An equal share of partitions for each scheduler, and no partition without a leader."""

from common.domain import Partition
from scheduler.balance import PATIENCE_S, STEADY_LOOKS, Balance

P = [Partition("m", index) for index in range(4)]


def leading(*partitions: Partition) -> Balance:
    balance = Balance()
    for partition in partitions:
        balance.leads(partition)
    return balance


def test_a_scheduler_alone_keeps_everything():
    """Nobody is there to give it to."""
    balance = leading(*P)
    assert [balance.look(1, 4) for _ in range(10)] == [None] * 10


def test_surplus_is_given_away_one_at_a_time_once_it_is_steady():
    """A second scheduler gets its half; one that only flickers sets nothing in motion."""
    balance = leading(*P)
    assert [balance.look(2, 4) for _ in range(STEADY_LOOKS - 1)] == [None] * (STEADY_LOOKS - 1)
    assert balance.look(1, 4) is None
    looks = [balance.look(2, 4) for _ in range(STEADY_LOOKS)]
    assert looks == [*[None] * (STEADY_LOOKS - 1), P[3]]
    balance.left(P[3])
    assert [balance.look(2, 4) for _ in range(STEADY_LOOKS)][-1] == P[2]
    balance.left(P[2])
    assert [balance.look(2, 4) for _ in range(10)] == [None] * 10


def test_who_has_a_share_leaves_free_partitions_to_others_for_a_while():
    """But not for ever: they may all have died in that moment."""
    balance = leading(P[0], P[1])
    balance.look(2, 4)
    assert not balance.may_take(P[2], 10.0)
    assert not balance.may_take(P[2], 10.0 + PATIENCE_S - 0.1)
    assert balance.may_take(P[2], 10.0 + PATIENCE_S)


def test_patience_begins_anew_when_somebody_led_meanwhile():
    """What was free long ago is not free since then."""
    balance = leading(P[0])
    balance.look(2, 2)
    assert not balance.may_take(P[1], 0.0)
    balance.is_led(P[1])
    assert not balance.may_take(P[1], PATIENCE_S)


def test_who_lacks_partitions_takes_at_once():
    """Also before anything is known of others."""
    assert Balance().may_take(P[0], 0.0)
    balance = leading(P[0])
    balance.look(2, 4)
    assert balance.may_take(P[1], 0.0)
