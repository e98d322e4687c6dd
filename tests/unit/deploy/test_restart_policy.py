"""When a child is started again, left alone, or takes the stack down with it."""

import pytest

from deploy.local.restart_policy import Decision, Finished, GiveUp, Restart, RestartPolicy


def exits(policy: RestartPolicy, count: int, served_s: float | None) -> list[Decision]:
    return [policy.decide(exit_status=1, served_s=served_s) for _ in range(count)]


def test_never_serving_gives_up() -> None:
    """Three starts that never served are enough."""
    policy = RestartPolicy(may_finish=False)
    assert exits(policy, 3, served_s=None) == [Restart(0.5), Restart(1.0), GiveUp()]


def test_refused_settings_give_up_at_once() -> None:
    """The same settings would be refused again."""
    assert RestartPolicy(may_finish=True).decide(exit_status=2, served_s=None) == GiveUp()


def test_once_served_it_is_never_given_up() -> None:
    """A crash loop after service goes on, ever slower up to a bound."""
    policy = RestartPolicy(may_finish=False)
    first, *_, last = exits(policy, 20, served_s=1.0)
    assert first == Restart(0.5)
    assert last == Restart(10.0)
    assert exits(policy, 5, served_s=None)[-1] == Restart(10.0)


def test_a_long_service_forgives() -> None:
    """After half a minute of service a crash is a new story."""
    policy = RestartPolicy(may_finish=False)
    exits(policy, 5, served_s=1.0)
    assert policy.decide(exit_status=-9, served_s=60.0) == Restart(0.5)


@pytest.mark.parametrize(("may_finish", "decision"), [(True, Finished()), (False, Restart(0.5))])
def test_only_some_may_finish(may_finish: bool, decision: Decision) -> None:
    """A drained worker stays away; a gateway that ends is missed."""
    policy = RestartPolicy(may_finish=may_finish)
    assert policy.decide(exit_status=0, served_s=1.0) == decision
