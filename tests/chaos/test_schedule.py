"""The schedule of a chaos run."""

from itertools import islice

from tests.chaos.schedule import Fault, FaultKind, plan_faults


def test_a_seed_is_a_schedule():
    """Equal seeds give equal faults, another seed gives others, and every kind comes before any comes again."""
    kinds = tuple(FaultKind)

    def plan(seed: int) -> list[Fault]:
        return list(islice(plan_faults(seed, kinds, (1, 2)), 2 * len(kinds)))

    assert plan(1) == plan(1) != plan(2)
    assert {fault.kind for fault in plan(1)[: len(kinds)]} == set(kinds)
