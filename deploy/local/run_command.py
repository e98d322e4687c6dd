"""One command against the running stack: `headrace-local --run 'headrace generate …'`."""

import asyncio
import os
import shlex
import shutil
import sys
from pathlib import Path

from deploy.local.leash import leashed

# As a shell tells of a command that a signal ended.
_SIGNALLED = 128


def problem_of_command(line: str) -> str | None:
    """Why a line cannot be run, known without running it."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        return f"{line!r} cannot be read: {error}"
    if not words:
        return "names no command"
    if shutil.which(words[0], path=_path()) is None:
        return f"no command {words[0]!r} is found (no shell reads the line; sh -c '…' would)"
    return None


async def run_command(line: str, address: str) -> int:
    """Run it on our terminal with the gateway's address in `HEADRACE_TARGET`; its exit status."""
    process = await asyncio.create_subprocess_exec(
        *leashed(shlex.split(line)),
        env={**os.environ, "HEADRACE_TARGET": address, "PATH": _path()},
    )
    try:
        status = await process.wait()
    finally:
        if process.returncode is None:
            # Whoever interrupts us wants an end, and a command line has nothing to lose.
            process.kill()
            await process.wait()
    return status if status >= 0 else _SIGNALLED - status


def _path() -> str:
    """`headrace` lies beside this Python, whether or not the virtual environment is activated."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
