"""Collections of a service look at what has come since it serves, and only then."""

import gc
import weakref

import pytest

from common.garbage import keep_what_exists


class Node:
    """One half of a cycle."""

    other: "Node"


def make_cycle() -> weakref.ref[Node]:
    one, two = Node(), Node()
    one.other, two.other = two, one
    return weakref.ref(one)


@pytest.fixture(autouse=True)
def _usual_collector():
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_only_new_objects_are_looked_at():
    """What existed is out of the collector's lists; a cycle that was made later still goes."""
    before = len(gc.get_objects())
    keep_what_exists()
    assert gc.get_freeze_count() > before / 2
    assert len(gc.get_objects()) < before / 10
    cycle = make_cycle()
    gc.collect()
    assert cycle() is None


def test_what_is_garbage_already_goes_before():
    """Nothing is kept for ever that nobody can reach any more."""
    cycle = make_cycle()
    keep_what_exists()
    assert cycle() is None
