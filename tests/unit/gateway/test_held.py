"""What large messages hold at once has a bound, and nothing is lost of it."""

import pytest

from common.errors import QueueFull
from gateway import held
from gateway.held import HeldMessages
from gateway.message_size import SMALL_BYTES

LARGE = 10 * SMALL_BYTES


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> HeldMessages:
    """For two and a half large messages."""
    monkeypatch.setattr(held, "_LEAST_BYTES", 25 * SMALL_BYTES)
    return HeldMessages(1)


def test_beyond_the_bound_callers_are_told_to_come_back(room: HeldMessages) -> None:
    """The one too many holds nothing; when another has ended, there is room again."""
    with room.share() as first, room.share() as second:
        first.hold(LARGE)
        second.hold(LARGE)
        with room.share() as third:
            with pytest.raises(QueueFull) as refused:
                third.hold(LARGE)
            assert (refused.value.reason, refused.value.retry_after_s) == ("MESSAGES_FULL", 1.0)
        assert room.num_bytes == 2 * LARGE
    with room.share() as fourth:
        fourth.hold(LARGE)
    assert room.num_bytes == 0


def test_a_message_that_grows_counts_once(room: HeldMessages) -> None:
    """By what has come so far, and refused where it no longer fits: what it held until then is given back at its end."""
    with room.share() as other, room.share() as growing:
        other.hold(LARGE)
        for size in range(0, 15 * SMALL_BYTES, SMALL_BYTES):
            growing.hold(size)
        assert room.num_bytes == LARGE + 14 * SMALL_BYTES
        with pytest.raises(QueueFull):
            growing.hold(16 * SMALL_BYTES)
    assert room.num_bytes == 0


def test_small_messages_do_not_count(room: HeldMessages) -> None:
    """Nor are they refused where large ones are."""
    with room.share() as large, room.share() as small:
        large.hold(2 * LARGE)
        for _ in range(1000):
            small.hold(SMALL_BYTES)
        assert room.num_bytes == 2 * LARGE


def test_the_longest_messages_have_room() -> None:
    """However long an operator lets them be."""
    longest = 100 * 1024 * 1024
    room = HeldMessages(longest)
    shares = [room.share() for _ in range(64)]
    for share in shares:
        share.hold(longest)
    with pytest.raises(QueueFull):
        room.share().hold(longest)
