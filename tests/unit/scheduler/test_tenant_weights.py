"""Shares of tenants as an operator writes them."""

import pytest

from scheduler.tenant_weights import problem_with, weights_of


def test_weights_are_read():
    """Each pair is a name and a number."""
    assert weights_of(["a=2", "team/b=0.5"]) == {"a": 2.0, "team/b": 0.5}
    assert problem_with(["a=2"]) is None


@pytest.mark.parametrize("pair", ["a", "=2", "a=", "a=0", "a=-1", "a=inf", "a=x"])
def test_what_is_no_weight_is_named(pair):
    """A typing error is said at the start."""
    assert pair in (problem_with([pair]) or "")
