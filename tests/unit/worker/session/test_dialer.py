"""Which scheduler is dialled next, and when."""

import asyncio
from collections.abc import Callable

import pytest

from worker.session import dialer as dialer_module
from worker.session.dialer import Dialer
from worker.session.session import Ended


class ScriptedSession:
    """Ends at once as told."""

    def __init__(self, ended: Ended, is_welcome: bool) -> None:
        self._ended = ended
        self.is_welcome = is_welcome

    async def run(self) -> Ended:
        return self._ended

    def leave(self, grace_s: float, reason: str) -> None:
        raise AssertionError("it was over")


async def dial(
    script: Callable[[int, str], ScriptedSession], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], list[float]]:
    """Addresses dialled and pauses made until the script leaves."""
    dialled: list[str] = []
    pauses: list[float] = []

    def open_session(address: str) -> ScriptedSession:
        dialled.append(address)
        return script(len(dialled), address)

    made = Dialer(["a", "b"], open_session, on_end=lambda ended: None, random_01=lambda: 0.0)

    async def pause(delay_s: float) -> None:
        pauses.append(delay_s)

    monkeypatch.setattr(made, "_pause", pause)
    await made.run()
    return dialled, pauses


LEFT = Ended("left", has_left=True)


async def test_failures_go_round_with_growing_pauses(monkeypatch) -> None:
    """Each failure waits longer, up to a bound, and the next address is tried."""
    dialled, pauses = await dial(
        lambda n, _: ScriptedSession(LEFT if n == 9 else Ended("refused"), is_welcome=False),
        monkeypatch,
    )
    assert dialled == ["a", "b"] * 4 + ["a"]
    assert pauses == sorted(pauses)
    assert pauses[0] == dialer_module.FIRST_DELAY_S / 2
    assert pauses[-1] == dialer_module.MAX_DELAY_S / 2


async def test_a_session_that_stood_resets_the_pauses(monkeypatch) -> None:
    """Behind a long session the first attempt comes quickly."""
    _, pauses = await dial(
        lambda n, _: ScriptedSession(LEFT if n == 6 else Ended("lost"), is_welcome=n == 4),
        monkeypatch,
    )
    assert pauses[3] == pauses[0] < pauses[2]


async def test_mutual_redirects_make_no_storm(monkeypatch) -> None:
    """The first redirect is followed at once; schedulers that send a worker to each other slow it down."""
    other = {"a": "b", "b": "a"}
    dialled, pauses = await dial(
        lambda n, address: ScriptedSession(
            LEFT if n == 6 else Ended("redirected", redirect=other[address]), is_welcome=False
        ),
        monkeypatch,
    )
    assert dialled == ["a", "b"] * 3
    assert len(pauses) == 4


async def test_leaving_cuts_a_pause_short() -> None:
    """A worker that is stopped while no scheduler answers ends at once."""
    ended = asyncio.Event()
    made = Dialer(
        ["a"],
        lambda _: ScriptedSession(Ended("refused"), is_welcome=False),
        on_end=lambda _: ended.set(),
    )
    running = asyncio.create_task(made.run())
    await ended.wait()
    made.leave(0, "test")
    await asyncio.wait_for(running, 60)
