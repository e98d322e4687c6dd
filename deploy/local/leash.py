"""Ties a child's life to its starter's, so that even kill -9 of the launcher leaves nothing running.

The child starts as this small script, asks the kernel for SIGKILL at the death of its parent, and
becomes the real command (same pid). A script of its own because code between fork and exec of a
process with threads may deadlock. Linux only; elsewhere a killed launcher leaves its children.
"""

import ctypes
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1


def leashed(command: list[str]) -> list[str]:
    """The command that dies with this process.

    The kernel watches the *thread* that forks, so only children of the main thread are tied.
    """
    main_thread = threading.current_thread() is threading.main_thread()
    if sys.platform != "linux" or not main_thread:
        return command
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def _run(parent: int, command: list[str]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel knew of the bond
        sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    _run(int(sys.argv[1]), sys.argv[2:])
