"""Dockerfiles and compose: accepted by their linters, and what they name exists in the code."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.fernet import Fernet

from common.settings import read_settings
from gateway.settings import HTTP_PORT, GatewaySettings
from scheduler.settings import SchedulerSettings
from worker.settings import WorkerSettings

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
DOCKERFILES = sorted((ROOT / "deploy/docker").glob("*.Dockerfile"))
COMPOSE = ROOT / "deploy/compose/compose.yaml"
ENCRYPTION = ROOT / "deploy/compose/encryption.yaml"
GPU = ROOT / "deploy/compose/gpu.yaml"
SETTINGS: dict[str, type] = {
    "headrace-gateway": GatewaySettings,
    "headrace-scheduler": SchedulerSettings,
    "headrace-worker": WorkerSettings,
}


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_dockerfile(file: Path):
    """hadolint finds nothing; extras, commands and ports are the project's; nothing runs as root."""
    done = subprocess.run(
        [BIN / "hadolint", file], check=False, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = file.read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(re.findall(r"'\.\[(\w+)\]'", text)) <= project["optional-dependencies"].keys()
    commands = re.findall(r'ENTRYPOINT \["([\w-]+)"\]', text)
    assert commands
    assert set(commands) <= project["scripts"].keys()
    exposed = {int(p) for line in re.findall(r"EXPOSE (.+)", text) for p in line.split()}
    known = {
        getattr(cls, name)
        for command in commands
        for cls in [SETTINGS[command]]
        for name in ("grpc_port", "metrics_port")
        if hasattr(cls, name)
    }
    if "headrace-gateway" in commands:
        known.add(HTTP_PORT)
    assert exposed == known
    assert "USER 10001" in text
    # Packages by their digests and from wheels; what is ours then finds all it needs, or fails.
    commands = re.findall(r"bin/pip install ([^&\n]+)", text)
    stages = len(re.findall(r"^FROM \S+ AS build", text, re.MULTILINE))
    locked = [c for c in commands if c.startswith("--require-hashes --only-binary :all: ")]
    ours = [c for c in commands if c.startswith("--no-index --no-build-isolation ./protos")]
    assert len(locked) == len(ours) == stages
    assert len(commands) == 2 * stages
    default = re.search(r"^ARG LOCK=(\S+)$", text, re.MULTILINE)
    for lock in re.findall(r"COPY deploy/docker/locks/(\S+) lock.txt", text):
        name = lock.replace("${LOCK}", default.group(1) if default else "")
        assert (ROOT / "deploy/docker/locks" / name).exists()


def services() -> dict[str, Any]:
    return yaml.safe_load(COMPOSE.read_text())["services"]


def test_compose_fits_its_schema():
    """By the published schema of compose files."""
    done = subprocess.run(
        [
            BIN / "check-jsonschema",
            "--builtin-schema",
            "vendor.compose-spec",
            COMPOSE,
            ENCRYPTION,
            GPU,
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_compose_builds_exists():
    """Each image is built from a stage and with arguments that its Dockerfile has; others are added to services that are there."""
    for name, service in services().items():
        build = service.get("build")
        if build is None:
            continue
        text = (COMPOSE.parent / build["context"] / build["dockerfile"]).read_text()
        assert build.get("target", "worker") in re.findall(
            r"^FROM \S+ AS (\S+)$", text, re.MULTILINE
        ), name
        assert build.get("args", {}).keys() <= set(re.findall(r"^ARG (\w+)", text, re.MULTILINE))
    for beside in (ENCRYPTION, GPU):
        assert yaml.safe_load(beside.read_text())["services"].keys() <= services().keys()


def test_compose_settings_and_files_exist():
    """Each service reads its environment without complaint, stops in time, and mounts files that are there."""
    seen = set()
    for name, service in services().items():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (COMPOSE.parent / source).exists(), (name, source)
        if service["image"] not in SETTINGS:
            continue
        seen.add(service["image"])
        environment = {k: str(v) for k, v in service["environment"].items()}
        environment = {k: re.sub(r"\$\{\w+:-(.*)\}", r"\1", v) for k, v in environment.items()}
        settings: Any = read_settings(SETTINGS[service["image"]], [], environment, prog=name)
        assert float(service["stop_grace_period"].removesuffix("s")) > settings.stop_grace_s
        if service["image"] == "headrace-gateway":
            ports = (settings.grpc_port, settings.admin_port, HTTP_PORT)
            assert service["ports"] == [f"127.0.0.1:{port}:{port}" for port in ports]
        if service["image"] == "headrace-scheduler":
            assert settings.advertise_address.partition(":")[0] == name
        if service["image"] == "headrace-worker":
            assert {address.partition(":")[0] for address in settings.schedulers} <= set(
                services()
            )
    assert seen == SETTINGS.keys()


def test_encryption_is_for_whoever_has_to_do_with_redis(tmp_path: Path):
    """Its file names each of them, and the setting is where compose puts the secret."""
    beside = yaml.safe_load(ENCRYPTION.read_text())
    with_redis = {
        n for n, s in services().items() if "HEADRACE_REDIS_URL" in s.get("environment", {})
    }
    assert beside["services"].keys() == with_redis
    keys = tmp_path / "keys"
    keys.write_bytes(Fernet.generate_key())
    for name, more in beside["services"].items():
        (secret,) = more["secrets"]
        assert secret in beside["secrets"]
        assert more["environment"] == {"HEADRACE_ENCRYPTION_KEYS": f"/run/secrets/{secret}"}
        environment = {k: str(v) for k, v in services()[name]["environment"].items()}
        environment["HEADRACE_ENCRYPTION_KEYS"] = str(keys)
        settings: Any = read_settings(
            SETTINGS[services()[name]["image"]], [], environment, prog=name
        )
        assert settings.encryption_keys == keys


def test_prometheus_scrapes_every_service_by_the_names_of_the_rules():
    """Jobs, hosts and ports of the scrape configuration are those of the compose file."""
    config = yaml.safe_load((COMPOSE.parent / "prometheus.yml").read_text())
    for scrape in config["scrape_configs"]:
        (found,) = scrape["dns_sd_configs"]
        for host in found["names"]:
            assert services()[host]["image"] == scrape["job_name"]
        assert found["port"] == SETTINGS[scrape["job_name"]].metrics_port  # type: ignore[attr-defined]
