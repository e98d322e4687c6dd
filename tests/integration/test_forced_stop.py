"""A service that will not end, in a process of its own, because its end is the process's."""

import signal
import subprocess
import sys

import pytest

from common.stop_signals import EXIT_FORCED
from tests.support.time_scale import scaled

pytestmark = pytest.mark.integration

STUBBORN = """
import asyncio, sys
from common.server import run_service
from common.service_settings import ServiceSettings

async def serve(runtime):
    runtime.announce({})
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            print("cancelled", file=sys.stderr, flush=True)

sys.exit(run_service("gateway", ServiceSettings(metrics_port=0), serve))
"""


@pytest.fixture
def stubborn():
    """A service that ignores its cancellation, once it serves."""
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_for_line(process, "serving")
            yield process
        finally:
            process.kill()


def wait_for_line(process: subprocess.Popen[str], part: str) -> None:
    assert process.stderr is not None
    assert any(part in line for line in process.stderr), f"ended without {part!r}"


def insist(process: subprocess.Popen[str]) -> None:
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        wait_for_line(process, "stop asked for")
    wait_for_line(process, "cancelled")


def test_a_third_signal_kills(stubborn):
    """Whoever is at the keyboard has the last word."""
    insist(stubborn)
    stubborn.send_signal(signal.SIGTERM)
    assert stubborn.wait(scaled(60)) == -signal.SIGTERM


def test_the_process_ends_even_if_the_service_ignores_its_cancellation(stubborn):
    """No orchestrator waits for ever, and no port stays taken."""
    insist(stubborn)
    assert stubborn.wait(scaled(60)) == EXIT_FORCED
