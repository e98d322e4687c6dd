"""The list of known names and the services' settings agree."""

import importlib
import importlib.util
import inspect
from dataclasses import is_dataclass

import pytest

from common.service_settings import ServiceSettings
from common.setting_fields import settings_of
from common.setting_names import KNOWN_NAMES

_MODULES = ("gateway.settings", "scheduler.settings", "worker.settings", "deploy.local.settings")
_SERVICES = [name for name in _MODULES if importlib.util.find_spec(name) is not None]


def names_of(module_name: str) -> set[str]:
    module = importlib.import_module(module_name)
    return {
        item.env
        for _, cls in inspect.getmembers(module, is_dataclass)
        if inspect.isclass(cls) and cls.__module__ == module_name
        for item in settings_of(cls)
    }


@pytest.mark.parametrize("module_name", _SERVICES)
def test_every_setting_of_a_service_is_listed(module_name):
    """Otherwise another service that shares the environment would refuse to start."""
    assert names_of(module_name) - KNOWN_NAMES == set()


def test_the_settings_of_every_service_are_listed():
    """The common groups are no exception."""
    assert {item.env for item in settings_of(ServiceSettings)} <= KNOWN_NAMES
