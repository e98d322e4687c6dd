"""Names that point at models: shares, health, fallback, promotion and the way back."""

from collections import Counter
from dataclasses import replace

import pytest

from common.aliases import Alias, NoFallback, Target, choose, promoted
from common.wire.aliases import decode_alias, encode_alias
from common.wire.records import UndecodableError

OLD, NEW, SPARE = Target("m", "r1", 90), Target("m", "r2", 10), Target("small")
CANARY = Alias("chat", (OLD, NEW), (SPARE,))


def shares(alias: Alias, *served: Target) -> dict[Target, int]:
    """Of a hundred evenly drawn requests, how many each target gets."""
    return shares_under(alias, {}, *served)


def shares_under(alias: Alias, waiting: dict[str, int], *served: Target) -> dict[Target, int]:
    """The same while so many requests wait for the models."""
    draws = [draw / 100 for draw in range(100)]
    return dict(
        Counter(
            choose(alias, served.__contains__, lambda target: waiting.get(target.model, 0), draw)
            for draw in draws
        )
    )


def test_shares_follow_the_weights():
    """A canary gets its part and no more."""
    assert shares(CANARY, OLD, NEW, SPARE) == {OLD: 90, NEW: 10}


def test_what_nobody_serves_is_passed_over():
    """First within the targets, then to the fallback; with nothing served, requests wait where they belong."""
    assert shares(CANARY, OLD, SPARE) == {OLD: 100}
    assert shares(CANARY, SPARE) == {SPARE: 100}
    assert shares(CANARY) == {OLD: 90, NEW: 10}


def test_a_long_queue_sends_requests_to_the_fallback():
    """Only above the threshold, only where one is set, and only while somebody serves the fallback."""
    opted_in = replace(CANARY, fallback_above_waiting=5)
    assert shares_under(opted_in, {"m": 5}, OLD, NEW, SPARE) == {OLD: 90, NEW: 10}
    assert shares_under(opted_in, {"m": 6, "small": 99}, OLD, NEW, SPARE) == {SPARE: 100}
    assert shares_under(opted_in, {"m": 6}, OLD, NEW) == {OLD: 90, NEW: 10}
    assert shares_under(CANARY, {"m": 99}, OLD, NEW, SPARE) == {OLD: 90, NEW: 10}
    other = replace(opted_in, current=(OLD, Target("n")))
    assert shares_under(other, {"m": 6}, OLD, Target("n"), SPARE) == {Target("n"): 100}
    assert promoted(opted_in, "r3").fallback_above_waiting is None
    assert decode_alias(encode_alias(opted_in)) == opted_in


def test_a_weight_of_nothing_gets_nothing():
    """A target can be named before it takes part."""
    alias = Alias("chat", (OLD, Target("m", "r3", 0)))
    assert shares(alias, OLD, Target("m", "r3", 0)) == {OLD: 100}
    assert shares(alias, Target("m", "r3", 0)) == {OLD: 100}


def test_a_promotion_can_be_taken_back():
    """All to the new revision, with the former shares as the fallback; then the other way round."""
    forward = promoted(CANARY, "r2")
    assert forward.current == (Target("m", "r2", 1),)
    assert forward.fallback == CANARY.current
    back = promoted(forward, "")
    assert back.current == CANARY.current
    assert back.fallback == forward.current
    with pytest.raises(NoFallback):
        promoted(Alias("chat", (OLD,)), "")


def test_a_name_survives_the_store():
    """As it was set; damage is told apart."""
    assert decode_alias(encode_alias(CANARY)) == CANARY
    with pytest.raises(UndecodableError):
        decode_alias(b"\xff\xff")
