"""One command against the running stack: `headrace-local --run 'headrace generate …'`."""

import asyncio
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.local.child import Child
from deploy.local.leash import leashed


class CommandFailed(Exception):
    """It ended with another status than 0; the message shows what the processes said last."""


async def run_command(line: str, children: Sequence[Child]) -> None:
    """Run it with the gateway's address in `HEADRACE_TARGET`, on our terminal."""
    [address] = [child.endpoints["grpc"] for child in children if child.spec.name == "gateway"]
    # `headrace` lies beside this Python, whether or not the virtual environment is activated.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    process = await asyncio.create_subprocess_exec(
        *leashed(shlex.split(line)),
        env={**os.environ, "HEADRACE_TARGET": address, "PATH": path},
    )
    try:
        status = await process.wait()
    finally:
        if process.returncode is None:
            # Whoever interrupts us wants an end, and a command line has nothing to lose.
            process.kill()
            await process.wait()
    if status != 0:
        logs = [f"--- {child.spec.name}\n{child.log.tail}" for child in children]
        raise CommandFailed("\n".join([f"{line!r} ended with status {status}", *logs]))
