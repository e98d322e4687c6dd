"""Ports for servers that come back at their address: chosen where nobody else looks for one."""

import random
import socket
from pathlib import Path

_GIVEN_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _USUALLY_GIVEN_OUT_FROM = 10_000, 32_768


def settled_port() -> int:
    """A free loopback port below those that the system gives to whoever connects somewhere.

    While a server is away, one of those might be taken from it: even by a client that tries to reach it, and then reaches
    itself. Not from `random`'s own state, which is the same at the start of each test.
    """
    given_out_from = _USUALLY_GIVEN_OUT_FROM
    if _GIVEN_OUT.exists():
        given_out_from = int(_GIVEN_OUT.read_text().split()[0])
    candidates = range(_LOWEST, max(given_out_from, _LOWEST + 1000))
    chooser = random.SystemRandom()
    while True:
        port = chooser.choice(candidates)
        if is_free(port):
            return port


def is_free(port: int) -> bool:
    """Whether it can be listened at."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
