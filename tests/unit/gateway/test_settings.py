"""What a gateway may be told."""

import pytest

from common.domain import Priority
from common.settings import SettingsError, read_settings
from common.streams.admission import QueueBounds
from gateway.settings import GatewaySettings, is_loopback


def read(*argv: str) -> GatewaySettings:
    """Settings from flags alone."""
    return read_settings(GatewaySettings, argv, {}, prog="headrace-gateway")


def test_bounds_for_all_classes_or_each() -> None:
    """One number counts for all; four go from CRITICAL to BATCH."""
    settings = read("--queue-max-requests", "5", "--queue-max-tokens", "1,2,3,4")
    assert settings.bounds(Priority.CRITICAL) == QueueBounds(5, 1)
    assert settings.bounds(Priority.NORMAL) == QueueBounds(5, 3)
    assert settings.bounds(Priority.BATCH) == QueueBounds(5, 4)


@pytest.mark.parametrize("value", ["1,2", "0", "1,2,3,-4"])
def test_bounds_that_make_no_sense(value: str) -> None:
    """Neither one number nor four, or none at all."""
    with pytest.raises(SettingsError):
        read("--queue-max-requests", value)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("gateway.internal", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    """What only this machine reaches; a name may mean anything."""
    assert is_loopback(host) is expected


def test_the_open_door() -> None:
    """Asked for explicitly, any address is fine."""
    with pytest.raises(SettingsError):
        read("--grpc-host", "0.0.0.0")
    assert read("--grpc-host", "0.0.0.0", "--allow-unauthenticated").grpc_host == "0.0.0.0"


@pytest.mark.parametrize("grace", ["0.5", "4", "30", "600"])
def test_a_stop_fits_into_its_grace(grace: str) -> None:
    """Its steps, each at its longest, leave something of any grace; most of it is for open streams."""
    settings = read("--stop-grace-s", grace)
    steps_s = settings.drain_s + settings.goodbye_s + settings.last_calls_s + settings.last_words_s
    assert 0.7 * float(grace) <= settings.drain_s < steps_s < 0.9 * float(grace)
