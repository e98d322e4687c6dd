"""Fixtures that any test may ask for."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.redis_server import RedisServer, running_redis

# How long an example takes says more of the machine than of the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
if settings.get_current_profile_name() == "default":
    settings.load_profile("untimed")


def pytest_configure() -> None:
    """Interrupts work in the tests' processes, also where the tests run in a shell's background, which ignores them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A fresh, empty Redis (AOF always) of this test alone: `.url`, `.kill()`, `.restart()`, …"""
    with running_redis() as server:
        yield server
