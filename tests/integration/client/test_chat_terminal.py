"""``headrace chat`` on a terminal: Ctrl-C stops an answer and not the conversation, Ctrl-D ends it."""

import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from tests.integration.client.scripted import (
    Script,
    ScriptedServer,
    accepted,
    delta,
    finish,
    hang_after,
    stream,
)

pytestmark = pytest.mark.integration


class _Screen:
    """The other side of a pseudo-terminal."""

    def __init__(self, end: int) -> None:
        self._end = end
        self._shown = b""

    def wait_for(self, text: str) -> None:
        """Reads until ``text`` has been shown, and forgets what came before it."""
        deadline = time.monotonic() + 60
        while text.encode() not in self._shown:
            ready, _, _ = select.select([self._end], [], [], deadline - time.monotonic())
            assert ready, f"{text!r} did not come; shown: {self._shown!r}"
            self._shown += os.read(self._end, 4096)
        self._shown = self._shown.partition(text.encode())[2]

    def type(self, text: str) -> None:
        """Types."""
        os.write(self._end, text.encode())


def test_ctrl_c_stops_the_answer_and_ctrl_d_the_conversation(
    server: ScriptedServer, script: Script
) -> None:
    """What was said until the interrupt stays part of the conversation, and its call is cancelled."""
    script.on(
        "GenerateStream",
        hang_after([accepted(), delta(0, ["Lon"])]),
        stream([accepted(), delta(0, ["Paris"]), finish(1)]),
    )
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "headrace.cli", "--target", server.target, "chat"]
    with subprocess.Popen(
        [*command, "--model", "tiny"], stdin=slave, stdout=slave, stderr=slave
    ) as process:
        os.close(slave)
        screen = _Screen(master)
        screen.wait_for("> ")
        screen.type("Capital?\n")
        screen.wait_for("Lon")
        process.send_signal(signal.SIGINT)
        screen.wait_for("(stopped)")
        assert script.ended["GenerateStream"].wait(60)
        screen.wait_for("> ")
        screen.type("Sure?\n")
        screen.wait_for("Paris")
        screen.wait_for("> ")
        screen.type("\x04")
        assert process.wait(60) == 0
    os.close(master)
    said = [
        message.content for message in script.of("GenerateStream")[1].request.prompt.chat.messages
    ]
    assert said == ["Capital?", "Lon", "Sure?"]
