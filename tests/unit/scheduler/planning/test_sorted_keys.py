"""Sorted keys against a plain sorted list."""

from hypothesis import given
from hypothesis import strategies as st

from common.domain import Priority
from scheduler.planning.sorted_keys import SortedKeys
from scheduler.planning.waiting import Entry
from tests.support.planning import make_request


def _key(due_s: float, number: int):
    return Entry(make_request(str(number)), number, due_s, 0, Priority.NORMAL).key


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=60))
def test_order_and_ranks_are_those_of_a_sorted_list(steps):
    """Whatever is added and removed, the keys are in order and every rank is right."""
    keys, model = SortedKeys(), []
    for number, (due_s, removes) in enumerate(steps):
        if removes and model:
            keys.remove(model.pop(due_s % len(model)))
        else:
            key = _key(float(due_s), number)
            keys.add(key)
            model.append(key)
            model.sort()
    assert list(keys) == model
    assert len(keys) == len(model)
    assert [keys.rank(key) for key in model] == list(range(len(model)))
    assert keys.rank(_key(99.0, 99)) == len(model)


def test_long_orders_stay_sorted_across_runs():
    """The same with thousands of keys, which fill and empty many runs."""
    keys = SortedKeys()
    made = [_key(float(n * 7919 % 5000), n) for n in range(5000)]
    for key in made:
        keys.add(key)
    assert list(keys) == sorted(made)
    assert keys.rank(sorted(made)[4321]) == 4321
    for key in made[:4990]:
        keys.remove(key)
    assert list(keys) == sorted(made[4990:])
