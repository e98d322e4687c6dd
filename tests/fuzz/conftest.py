"""A whole stack of real processes for all of them, which has to be as well afterwards as before."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from headrace.client import Client
from tests.fuzz.tally import GROWTH, LEAST_ANSWERED, TRIED, Growth, Sizes, answered
from tests.support.polling import eventually
from tests.support.process_sizes import sizes_of
from tests.support.stack import Stack, running_stack
from tests.support.time_scale import scaled

# `make fuzz` takes the second; the first is for every run of the suite.
settings.register_profile(
    "headrace",
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.register_profile("fuzz", settings.get_profile("headrace"), max_examples=1000)
if settings.get_current_profile_name() == "untimed":
    settings.load_profile("headrace")

# Caches of what was asked for fill: grammars, tenants, series of metrics. Pools of connections keep what was needed at once.
_MAX_GROWTH_MB = 64.0
_MAX_MORE_FDS = 24


@pytest.fixture(scope="package")
def stack() -> Iterator[Stack]:
    """Everything with a simulated engine; checked at the end for life, leftovers, errors and growth."""
    with running_stack(gateway_flags=("--default-timeout-s", "5")) as stack:
        before, keys, sizes = greeting(stack), lasting_keys(stack), all_sizes(stack)
        yield stack
        assert greeting(stack) == before
        eventually(lambda: stack.pending_entries() == 0, within_s=scaled(30))
        assert lasting_keys(stack) <= keys
        growth = Growth(sizes, all_sizes(stack))
        GROWTH.append(growth)
        more_mb, more_fds = growth.most
        assert more_mb < _MAX_GROWTH_MB, growth
        assert more_fds < _MAX_MORE_FDS, growth
        for process in (*stack.gateways, *stack.schedulers, *stack.workers):
            assert process.process.poll() is None
            assert "call failed" not in process.log
        if settings.get_current_profile_name() == "fuzz":
            assert answered() >= LEAST_ANSWERED, TRIED


def greeting(stack: Stack) -> str:
    """The same greedy text as ever."""
    with Client(stack.targets[0], timeout_s=scaled(30)) as client:
        answer = client.generate(
            "hello", model="sim", max_tokens=8, ignore_eos=True, temperature=0
        )
    return answer.choices[0].text


def lasting_keys(stack: Stack) -> set[str]:
    """Keys that stay for ever; the stream of a class is there while its first request is."""
    return {key for key in stack.keys_without_ttl() if ":inbox:" not in key}


def all_sizes(stack: Stack) -> Sizes:
    """What each process holds now."""
    pids = {"redis": stack.redis_client().info("server")["process_id"]}
    for name in ("gateways", "schedulers", "workers"):
        (process,) = getattr(stack, name)
        pids[name] = process.process.pid
    return {name: sizes_of(pid) for name, pid in pids.items()}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The count, and what became of the processes' sizes."""
    if TRIED:
        parts = ", ".join(f"{name} {count:,}" for name, count in sorted(TRIED.items()))
        terminalreporter.write_line(
            f"fuzzed inputs: {answered():,} answered by the running system; {parts}"
        )
    for growth in GROWTH:
        terminalreporter.write_line(f"sizes: {growth}")
