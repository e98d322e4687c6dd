"""A gateway that slept knows it, before its own tick tells it too, and forgets it soon."""

from gateway.relay.wakefulness import TICK_S, Wakefulness


def test_a_sleep_is_known_for_a_while():
    """From the first look behind it, and no longer than what it explains."""
    awake = Wakefulness(0.0)
    for number in range(1, 5):
        awake.tick(number * TICK_S)
        assert not awake.has_slept(number * TICK_S)
    began_s = 4 * TICK_S
    assert not awake.has_slept(began_s + 3.0), "a busy machine is no sleep"
    woke_s = began_s + 30.0
    assert awake.has_slept(woke_s), "its tick comes later than what it finds"
    awake.tick(woke_s + 0.1)
    assert awake.has_slept(woke_s + 2.0)
    number = 0
    while number * TICK_S < 10.0:
        number += 1
        awake.tick(woke_s + number * TICK_S)
    assert not awake.has_slept(woke_s + 10.0)
