"""``headrace cancel``, ``drain`` and ``dead``: steer what runs."""

import argparse

from headrace.cli.terminal import Terminal
from headrace.client import Client
from headrace.v1 import generation_pb2 as gen


def cancel(client: Client, arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Cancels a request; one that has ended already is not an error."""
    found = client.cancel(arguments.request_id, arguments.reason)
    status = gen.RequestStatus.Name(found.status).removeprefix("REQUEST_STATUS_").lower()
    terminal.line(
        f"cancelling ({status})" if found.cancelling else f"nothing to cancel ({status})"
    )
    return 0


def drain(client: Client, arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Lets a worker finish what it runs."""
    worker = client.admin.drain(arguments.worker_id, arguments.grace)
    name = worker.worker_id or arguments.worker_id
    # As it was seen last: what ran may have ended by now.
    terminal.line(f"draining {name}; it ran {worker.num_running} a moment ago")
    return 0


def dead(client: Client, arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Lists, shows or replays requests that were set aside."""
    match arguments.action:
        case "list":
            terminal.table(
                ["REQUEST", "MODEL", "TENANT", "REASON", "DIED", "ATTEMPTS"],
                [
                    (
                        letter.request_id,
                        letter.model,
                        letter.tenant,
                        letter.reason,
                        letter.died_at.ToJsonString(),
                        len(letter.attempts),
                    )
                    for letter in client.admin.dead_letters(arguments.model)
                ],
            )
        case "show":
            _show(client, arguments.request_id, terminal)
        case "replay":
            terminal.line(client.admin.replay(arguments.request_id))
    return 0


def _show(client: Client, request_id: str, terminal: Terminal) -> None:
    letter = client.admin.dead_letter(request_id)
    terminal.line(f"request:  {letter.request_id}")
    terminal.line(f"model:    {letter.model}")
    terminal.line(f"tenant:   {letter.tenant}")
    terminal.line(f"reason:   {letter.reason}")
    terminal.line(f"died:     {letter.died_at.ToJsonString()}")
    terminal.table(
        ["WORKER", "DISPATCHED", "TOKENS", "OUTCOME"],
        [
            (
                attempt.worker_id,
                attempt.dispatched_at.ToJsonString(),
                attempt.tokens,
                attempt.outcome,
            )
            for attempt in letter.attempts
        ],
    )
