"""When a stream looks for another gateway, and where."""

from itertools import pairwise

from common.lengths import LENGTHS
from headrace.client.moving import TRIAL_S, Moving
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb

CUT_OFF = pb.GenerateStreamResponse(keepalive=gen.KeepAlive(queue_unreachable=True))
NOTHING_NEW = pb.GenerateStreamResponse(keepalive=gen.KeepAlive())
TOKENS = pb.GenerateStreamResponse(delta=gen.Delta(text="a"))


def test_only_a_gateway_that_says_so_is_left() -> None:
    """For each of the others, in turn, beginning behind the one in use; with one target for none."""
    for event in (NOTHING_NEW, TOKENS):
        assert not Moving(3).others(event, 1, 0.0)
    assert [*Moving(3).others(CUT_OFF, 1, 0.0)] == [2, 0]
    assert not Moving(1).others(CUT_OFF, 0, 0.0)


def test_looks_become_rare_while_nothing_comes() -> None:
    """At once, then a second and more apart, up to some; tokens make them as prompt as at first."""
    moving = Moving(2)

    def looks(from_s: float, to_s: float) -> list[float]:
        tenths = range(round(from_s * 10), round(to_s * 10))
        return [tenth / 10 for tenth in tenths if moving.others(CUT_OFF, 0, tenth / 10)]

    times_s = looks(0.0, 60.0)
    gaps_s = [b - a for a, b in pairwise(times_s)]
    assert times_s[0] == 0.0
    assert all(1.0 <= gap_s < 8.0 for gap_s in gaps_s)
    assert min(gaps_s[4:]) >= 5.0
    moving.progressed()
    again_s = looks(100.0, 110.0)
    assert again_s[1] - again_s[0] < 2.0


def test_two_looks_end_while_the_request_lives() -> None:
    """From when its gateway knows, 6 s after its last renewal, to when nobody follows any more for the others."""
    lives_s = LENGTHS.gateway_lease_s - LENGTHS.gateway_renewal_s + LENGTHS.orphan_grace_s
    knows_s = LENGTHS.gateway_lease_s + LENGTHS.gateway_renewal_s
    assert knows_s + 2 * TRIAL_S <= lives_s
