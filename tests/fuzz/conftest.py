"""A whole stack of real processes, which has to be as well afterwards as before."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from headrace.client import Client
from tests.support.polling import eventually
from tests.support.stack import Stack, running_stack
from tests.support.time_scale import scaled

# `make fuzz` takes the second; the first is for every run of the suite.
settings.register_profile(
    "headrace",
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.register_profile("fuzz", settings.get_profile("headrace"), max_examples=3000)
if settings.get_current_profile_name() == "untimed":
    settings.load_profile("headrace")

_MAX_GROWTH_MB = 64.0


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """Everything with a simulated engine; checked at the end for life, leftovers, errors and growth."""
    with running_stack(gateway_flags=("--default-timeout-s", "5")) as stack:
        before = greeting(stack)
        resident_mb = memory_mb(stack)
        yield stack
        assert greeting(stack) == before
        eventually(lambda: stack.pending_entries() == 0, within_s=30)
        assert memory_mb(stack) - resident_mb < _MAX_GROWTH_MB
        for process in (*stack.gateways, *stack.schedulers, *stack.workers):
            assert process.process.poll() is None
            assert "call failed" not in process.log


def greeting(stack: Stack) -> str:
    """The same greedy text as ever."""
    with Client(stack.targets[0], timeout_s=scaled(30)) as client:
        answer = client.generate(
            "hello", model="sim", max_tokens=8, ignore_eos=True, temperature=0
        )
    return answer.choices[0].text


def memory_mb(stack: Stack) -> float:
    """Resident memory of the gateway."""
    status = Path(f"/proc/{stack.gateways[0].process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024
