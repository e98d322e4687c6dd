"""What is kept of a child's output."""

from pathlib import Path

import pytest

from deploy.local.child_log import ChildLog


def test_lines_are_put_together(tmp_path: Path) -> None:
    """Chunks end anywhere; the file gets every byte and the tail whole lines."""
    log = ChildLog("gateway", tmp_path / "log", echo=False)
    for chunk in (b"on", b"e\ntw", b"o\nthr"):
        log.feed(chunk)
    log.close()
    assert log.tail == "one\ntwo"
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\nthr"


def test_a_new_start_begins_empty(tmp_path: Path) -> None:
    """What an earlier start said cannot be taken for this one's; the file keeps it."""
    log = ChildLog("redis", tmp_path / "log", echo=False)
    log.feed(b"ready\nhalf")
    log.begin()
    log.feed(b"loading\n")
    log.close()
    assert log.tail == "loading"
    assert (tmp_path / "log").read_bytes() == b"ready\nhalfloading\n"


def test_echo_names_the_child(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Asked for, each line goes to stderr with the child's name, odd bytes and all."""
    log = ChildLog("worker-1", tmp_path / "log", echo=True)
    log.feed(b"caf\xff\n")
    log.close()
    assert capsys.readouterr().err == "[worker-1] caf\ufffd\n"
