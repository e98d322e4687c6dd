"""Faults on purpose."""

import pytest

from worker.engine.runner import Row
from worker.faults import FAULT_EXIT_CODE, Fault, FaultAction, FaultyRunner
from worker.simulated.runner import SimulatedRunner
from worker.simulated.settings import SimulatedSettings


def test_parse() -> None:
    """A fault is written token=ID:ACTION."""
    assert Fault.parse("token=7:nan") == Fault(7, FaultAction.NAN)


@pytest.mark.parametrize(
    "text", ["", "token=7", "token=7:boom", "token=x:nan", "id=7:nan", "7:nan"]
)
def test_anything_else_is_refused(text: str) -> None:
    """The error says what was expected."""
    with pytest.raises(ValueError, match=r"token=ID"):
        Fault.parse(text)


def test_exit_and_sleep_act_on_their_token_only() -> None:
    """The process ends, or hangs, in the step that computes the token, and in no other."""
    happened: list[object] = []

    def leave(code: int) -> None:
        happened.append(code)

    faults = [Fault(1, FaultAction.EXIT), Fault(2, FaultAction.SLEEP)]
    runner = FaultyRunner(
        SimulatedRunner(SimulatedSettings(kv_blocks=2)),
        faults,
        exit_process=leave,  # type: ignore[arg-type]  # a real one does not return
        hang=lambda: happened.append("hang"),
    )
    runner.run([Row([3], 0, [0], None)])
    assert happened == []
    runner.run([Row([3], 0, [0], None), Row([2], 0, [1], None)])
    runner.run([Row([1], 0, [0], None)])
    assert happened == ["hang", FAULT_EXIT_CODE]
