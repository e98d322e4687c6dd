"""``headrace-worker`` as a process: flags, exit codes, metrics."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from common.domain import StopConditions
from headrace.internal.v1 import worker_service_pb2 as pb
from tests.support.processes import ServiceProcess
from tests.support.scheduler_stub import StubSession, assignment, scheduler_stub
from tests.support.stack import scrape
from worker.faults import FAULT_EXIT_CODE
from worker.session.watchdog import EXIT_STEP_HUNG

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
ROOT = Path(__file__).parents[3]
ENDLESS = StopConditions(max_tokens=3000)
POISON = ord("!")


@contextlib.asynccontextmanager
async def worker_process(*flags: str) -> AsyncIterator[tuple[ServiceProcess, StubSession]]:
    """A worker and its welcomed session."""
    async with scheduler_stub() as stub:
        process = ServiceProcess(
            "worker",
            flags=[
                *("--engine", "simulated", "--schedulers", stub.address),
                *("--metrics-port", "0", "--worker-id", "w"),
                *flags,
            ],
        )
        process.start()
        try:
            session = await stub.session(180)
            await session.welcome()
            await asyncio.to_thread(process.wait_until_ready)
            yield process, session
        finally:
            await asyncio.to_thread(process.close)


async def test_serves_and_stops_politely() -> None:
    """SIGTERM drains: what runs ends within the grace, and the exit status is 0."""
    async with worker_process("--step-ms", "1") as (process, session):
        session.send(assign=pb.Assign(assignments=[assignment("r", max_tokens=100)]))
        await session.until(lambda: bool(session.tokens_of("r")))
        stopping = asyncio.create_task(asyncio.to_thread(process.stop))
        await session.wait_closed()
        assert len(session.tokens_of("r")) == 100
        assert await stopping == 0


async def test_drained_by_the_scheduler_it_exits_cleanly() -> None:
    """A drain gives back what is left and ends the process with status 0."""
    async with worker_process("--step-ms", "1") as (process, session):
        session.send(assign=pb.Assign(assignments=[assignment("r", stop=ENDLESS)]))
        await session.until(lambda: bool(session.tokens_of("r")))
        session.send(drain=pb.Drain(grace_ms=10))
        await session.wait_closed()
        assert session.returned == {"r": "drained"}
        assert await asyncio.to_thread(process.wait) == 0


async def test_metrics() -> None:
    """The scrape has the worker's metrics under their agreed names, and the pool is empty behind the work."""
    async with worker_process("--served-model-name", "sim") as (process, session):
        session.send(
            assign=pb.Assign(assignments=[assignment("a"), assignment("b", "xyz", max_tokens=5)])
        )
        await session.until(lambda: bool(session.finish_of("a") and session.finish_of("b")))
        values = dict(await asyncio.to_thread(scrape, process))
    label = '{model_name="sim"}'
    assert values["headrace_generation_tokens_total" + label] == 17
    assert values["headrace_prompt_tokens_total" + label] == 8
    assert values["headrace_kv_cache_usage_ratio" + label] == 0
    assert values["headrace_num_requests_running" + label] == 0
    assert values["headrace_step_time_seconds_count" + label] >= 12
    assert values["headrace_num_preemptions_total" + label] == 0
    assert values["headrace_session_reconnects_total" + label] == 0


async def test_faults_of_the_process() -> None:
    """A token that exits takes the process down with status 137."""
    flags = ("--allow-faults", "--fault", f"token={POISON}:exit")
    async with worker_process(*flags) as (process, session):
        session.send(assign=pb.Assign(assignments=[assignment("r", "boom!")]))
        assert await asyncio.to_thread(process.wait) == FAULT_EXIT_CODE


async def test_hanging_step_ends_the_process() -> None:
    """A step that hangs is noticed by the watchdog, whose exit status says so."""
    flags = ("--allow-faults", "--fault", f"token={POISON}:sleep", "--step-timeout-s", "0.5")
    async with worker_process(*flags) as (process, session):
        session.send(assign=pb.Assign(assignments=[assignment("r", "boom!")]))
        assert await asyncio.to_thread(process.wait) == EXIT_STEP_HUNG
        assert "step_hung" in process.log


def test_faults_are_refused_without_leave() -> None:
    """``--fault`` alone is an error, so that no production worker carries one by accident."""
    command = [sys.executable, "-m", "worker", "--schedulers", "x:1", "--fault", "token=1:exit"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 2
    assert "--allow-faults" in done.stderr


def test_simulated_engine_needs_no_torch() -> None:
    """Nothing that the simulated worker imports imports torch or transformers."""
    code = (
        "import sys, worker.__main__, worker.loading\n"
        "sys.exit(bool({'torch', 'transformers'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=180, check=False).returncode == 0


_LOADS_FOR_EVER = """
import torch
from worker import __main__, loading

def load(settings, progress):
    progress("for ever")
    while True:
        torch.ones(100_000).apply_(float)

loading.load = load
__main__.main()
"""


def test_a_stop_while_a_library_loads_is_quiet() -> None:
    """Nothing interrupts C++ code; the process ends with status 0 all the same, and says nothing odd."""
    flags = ["--schedulers", "127.0.0.1:1", "--metrics-port", "0"]
    command = [sys.executable, "-c", _LOADS_FOR_EVER, *flags]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if json.loads(line).get("step") == "for ever":
                break
        process.send_signal(signal.SIGTERM)
        events = [json.loads(line)["event"] for line in process.stderr]
    assert (process.returncode, events[-1]) == (0, "stopped")
