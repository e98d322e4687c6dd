"""What `headrace-local` accepts."""

from pathlib import Path

import pytest

from common.setting_fields import settings_of
from common.setting_names import KNOWN_NAMES
from common.settings import SettingsError, read_settings
from deploy.local.settings import LocalSettings


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


def test_services_accept_the_launchers_names() -> None:
    """What is set for the launcher reaches its children's environment and is not refused there."""
    assert {item.env for item in settings_of(LocalSettings)} <= KNOWN_NAMES
