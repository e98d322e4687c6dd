"""What `headrace-local` accepts."""

from pathlib import Path

import pytest

from common.setting_fields import settings_of
from common.setting_names import KNOWN_NAMES
from common.settings import SettingsError, read_settings
from deploy.local.settings import LocalSettings
from gateway.settings import GatewaySettings


def read(*argv: str) -> LocalSettings:
    return read_settings(LocalSettings, argv, {}, prog="headrace-local")


def test_defaults() -> None:
    """One worker, and the port that clients try first."""
    settings = read()
    assert (settings.workers, settings.port, settings.data_dir) == (1, 50051, None)


def test_folders_are_checked_before_anything_starts(tmp_path: Path) -> None:
    """Both mistakes are told at once."""
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(SettingsError) as caught:
        read(f"--data-dir={file}", f"--ready-file={tmp_path}/none/ready")
    assert len(caught.value.problems) == 2


def test_the_http_port_is_chosen_as_the_gateway_does() -> None:
    """Its number is known before the gateway runs, because a taken port is told of at once."""
    for argv in ([], ["--port=0"], ["--http-port=0"], ["--port=0", "--http-port=81"]):
        gateway_argv = [word.replace("--port", "--grpc-port") for word in argv]
        gateway = read_settings(GatewaySettings, gateway_argv, {}, prog="headrace-gateway")
        assert read(*argv).chosen_http_port == gateway.chosen_http_port


def test_services_accept_the_launchers_names() -> None:
    """What is set for the launcher reaches its children's environment and is not refused there."""
    assert {item.env for item in settings_of(LocalSettings)} <= KNOWN_NAMES
