"""Custom resources against the schemas of their operators, which npm has: what Kubernetes' own schemas say nothing of."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LOCK = HERE / "package-lock.json"
INSTALLED = HERE / "node_modules/headrace-installed"


def refused(manifests: Sequence[dict[str, Any]]) -> list[str]:
    """What the schemas refuse in these manifests, unknown fields among it."""
    _install()
    done = subprocess.run(
        ["node", HERE / "check.mjs"],
        input=json.dumps(manifests),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=240,
    )
    return done.stdout.splitlines()


def _install() -> None:
    """Installs what the lock file says, unless it is there already; with npm's cache in the environment, not at home."""
    if INSTALLED.exists() and INSTALLED.read_text() == LOCK.read_text():
        return
    subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=HERE,
        env={**os.environ, "npm_config_cache": f"{sys.prefix}/npm-cache"},
        check=True,
        timeout=240,
    )
    INSTALLED.write_text(LOCK.read_text())
