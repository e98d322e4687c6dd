"""``headrace top``: queues and workers, looked at again and again."""

import argparse
import time

from headrace.cli.terminal import Terminal
from headrace.cli.top_view import frame
from headrace.client import Client


def top(client: Client, arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Shows a frame each interval, until interrupted or for as often as was asked for."""
    shown = 0
    try:
        while True:
            queues, workers = client.admin.queue(), client.admin.workers()
            lines = frame(queues, workers, time.strftime("%H:%M:%S"))
            terminal.frame("\n".join(lines))
            shown += 1
            if shown == arguments.frames:
                return 0
            time.sleep(arguments.interval)
    except KeyboardInterrupt:
        return 0
