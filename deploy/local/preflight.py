"""What can be known to be wrong before anything starts: the services' own settings, and ports that are taken.

The services are asked, not imported: each command says what is wrong with its settings (`--check-settings`).
"""

import asyncio
import errno
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from common.settings import CHECK_FLAG, SEE_HELP
from deploy.local.child import ChildSpec
from deploy.local.data_folder import DataFolder
from deploy.local.leash import leashed
from deploy.local.settings import LocalSettings
from deploy.local.stack import Stack

_LOOPBACK = "127.0.0.1"
# Stand for what is only known once it runs.
_SOME_REDIS = f"redis://{_LOOPBACK}:6379/0"
_SOME_SCHEDULER = f"{_LOOPBACK}:50052"


def port_problems(settings: LocalSettings, environ: Mapping[str, str]) -> Iterator[str]:
    """Of the ports that clients were told, those that cannot be had."""
    for flag, port, host_name in (
        ("--port", settings.port, "HEADRACE_GRPC_HOST"),
        ("--http-port", settings.chosen_http_port, "HEADRACE_HTTP_HOST"),
    ):
        host = environ.get(host_name) or _LOOPBACK
        problem = _problem_of_port(host.strip("[]"), port)
        if problem is not None:
            yield f"{flag}: port {port} {problem}; {flag} 0 picks a free one"


async def service_problems(settings: LocalSettings) -> list[str]:
    """What the services say of the settings that they would get, each fault once."""
    folder = DataFolder(settings.data_dir or Path(os.curdir))
    stack = Stack(settings, folder, cores=os.cpu_count() or 1)
    specs = [
        stack.gateway(_SOME_REDIS),
        stack.scheduler(_SOME_REDIS),
        stack.worker(0, _SOME_SCHEDULER),
    ]
    found = await asyncio.gather(*map(problems_of, specs))
    return list(dict.fromkeys(problem for problems in found for problem in problems))


def _problem_of_port(host: str, port: int) -> str | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            return None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return f"is taken on {host}"
        return f"cannot be had on {host}: {error.strerror}"


async def problems_of(spec: ChildSpec) -> Sequence[str]:
    """What one of them says."""
    process = await asyncio.create_subprocess_exec(
        *leashed([*spec.command, CHECK_FLAG]),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **spec.environment},
    )
    try:
        async with asyncio.timeout(spec.ready_within_s):
            _, said = await process.communicate()
    except TimeoutError:
        return [f"{spec.name} has not checked its settings within {spec.ready_within_s:g} s"]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 0:
        return ()
    lines = said.decode(errors="replace").splitlines()
    if process.returncode != 2:
        last = lines[-1] if lines else "it said nothing"
        return [f"{spec.name} cannot start: {last}"]
    told = [line.partition(": ")[2] for line in lines]
    return [line for line in told if line != SEE_HELP]
