"""What reaches a terminal, and what reaches a pipe."""

import io
import threading

import pytest

from headrace.cli import waiting
from headrace.cli.terminal import Terminal


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_model_cannot_steer_the_terminal() -> None:
    """Control characters are made visible; line ends, tabs and every script pass."""
    output = _Tty()
    Terminal(io.StringIO(), output, io.StringIO()).write("a\x1b[2J\r\x07\n\t日本 👋")
    assert output.getvalue() == "a\ufffd[2J\ufffd\ufffd\n\t日本 👋"


def test_a_pipe_gets_the_text_as_it_is() -> None:
    """Byte for byte what the model said."""
    output = io.StringIO()
    Terminal(io.StringIO(), output, io.StringIO()).write("a\x1b[2J")
    assert output.getvalue() == "a\x1b[2J"


def test_tables_align() -> None:
    """Columns are as wide as their widest cell, and no line ends in blanks."""
    output = io.StringIO()
    Terminal(io.StringIO(), output, io.StringIO()).table(["A", "B"], [("long", 1), ("x", "")])
    assert output.getvalue() == "A     B\nlong  1\nx\n"


def test_input_that_is_piped_keeps_its_line_ends() -> None:
    """A prompt is sent as it was written, carriage returns and a missing last line end included."""
    given = b"one\r\ntwo\rthree\n\nfour"
    piped = io.TextIOWrapper(io.BytesIO(given), encoding="utf-8")
    assert Terminal(piped, io.StringIO(), io.StringIO()).read_all().encode() == given


class _Noted(io.StringIO):
    """Tells when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.is_written = threading.Event()

    def flush(self) -> None:
        self.is_written.set()


def test_a_long_wait_is_spoken_of_and_a_short_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, and by what was waited for first."""
    error = _Noted()
    with waiting.Waiting(Terminal(io.StringIO(), io.StringIO(), error)) as wait:
        wait.begin("looking for one thing")
        wait.end()
        monkeypatch.setattr(waiting, "AFTER_S", 0.0)
        wait.begin("looking for another")
        wait.begin("looking for a third")
        assert error.is_written.wait(60)
    assert error.getvalue() == "headrace: looking for another\n"
