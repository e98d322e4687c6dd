"""What Ctrl-C does while an answer comes."""

import signal
import threading
from collections.abc import Iterator

import pytest

from headrace.cli.interrupts import interruptible
from headrace.client import Cancelled


@pytest.fixture(autouse=True)
def _usual_interrupts() -> Iterator[None]:
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


def test_the_stream_is_closed_and_the_interrupt_raised_behind_it() -> None:
    """Nothing is raised where the reader is; afterwards interrupts mean again what they meant."""
    closed, steps = threading.Event(), []

    def read() -> None:
        with interruptible(closed.set):
            signal.raise_signal(signal.SIGINT)
            steps.append(closed.wait(60))

    with pytest.raises(KeyboardInterrupt):
        read()
    assert steps == [True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_that_the_stream_was_closed_is_no_failure_of_the_request() -> None:
    """It is the interrupt that is told; without one it is what the reader raised."""

    def read(*, is_interrupted: bool) -> None:
        with interruptible(lambda: None):
            if is_interrupted:
                signal.raise_signal(signal.SIGINT)
            raise Cancelled("the stream was closed", code="CANCELLED")

    with pytest.raises(KeyboardInterrupt):
        read(is_interrupted=True)
    with pytest.raises(Cancelled):
        read(is_interrupted=False)


def test_who_insists_is_not_kept_waiting() -> None:
    """The second interrupt is raised where it comes."""
    steps = []

    def read() -> None:
        with interruptible(lambda: None):
            for number in range(3):
                steps.append(number)
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        read()
    assert steps == [0, 1]


def test_ignored_interrupts_stay_ignored() -> None:
    """As of a command that a shell runs in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    closed: list[str] = []
    with interruptible(lambda: closed.append("closed")):
        signal.raise_signal(signal.SIGINT)
    assert not closed
