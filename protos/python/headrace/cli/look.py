"""``headrace models`` and ``headrace status``: what is served, and how it is doing."""

import argparse
from collections.abc import Sequence

from google.protobuf.timestamp_pb2 import Timestamp

from headrace.cli.aliases import change_aliases
from headrace.cli.exits import error_line
from headrace.cli.terminal import Terminal
from headrace.client import Client, Unauthenticated, Unimplemented, error_from_batch
from headrace.v1 import admin_service_pb2 as admin
from headrace.v1 import generation_pb2 as gen
from headrace.v1 import inference_service_pb2 as pb


def models(client: Client, arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Lists the models that can be asked for, or says what names mean."""
    if arguments.action not in (None, "list"):
        return change_aliases(client, arguments, terminal)
    terminal.table(
        ["MODEL", "REVISION", "QUANTIZATION", "CONTEXT", "CHAT", "WORKERS", "ALIASES"],
        [
            (
                model.name,
                model.revision,
                model.quantization,
                model.context_tokens,
                "yes" if model.has_chat_template else "no",
                model.workers,
                ", ".join(model.aliases),
            )
            for model in client.models()
        ],
    )
    return 0


def status(client: Client, arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Shows one request, or queues and workers."""
    if arguments.request_id:
        _show_request(client.get_request(arguments.request_id), terminal)
        return 0
    try:
        queues, workers = client.admin.queue(), client.admin.workers()
    except (Unimplemented, Unauthenticated) as error:
        # Models are all that who is no operator here may see; that is worth showing before the refusal.
        served = client.models()
        terminal.table(["MODEL", "WORKERS"], [(model.name, model.workers) for model in served])
        terminal.note(error_line(error, arguments))
        return 0
    if not queues:
        terminal.line("no model is served")
    _show_queues(queues, terminal)
    terminal.line()
    _show_workers(workers, terminal)
    return 0


def _show_request(request: pb.GetRequestResponse, terminal: Terminal) -> None:
    rows = [
        ("request", request.request_id),
        ("status", _status_name(request.status)),
        ("model", f"{request.model} {request.model_revision}".strip()),
        ("priority", gen.Priority.Name(request.priority).removeprefix("PRIORITY_").lower()),
        ("accepted", _time(request.accepted_at) if request.HasField("accepted_at") else ""),
        ("deadline", _time(request.deadline) if request.HasField("deadline") else ""),
        ("prompt tokens", request.usage.prompt_tokens),
        ("completion tokens", request.usage.completion_tokens),
        ("waiting for", request.waiting_for),
        ("worker", request.worker_id),
        ("attempts", request.attempts),
    ]
    if request.HasField("error"):
        rows.append(("error", str(error_from_batch(request.error))))
    for name, value in rows:
        if value != "":
            terminal.line(f"{name + ':':<19}{value}")
    for choice in request.result.choices:
        terminal.line(f"\n{choice.text}")


def _show_queues(queues: Sequence[admin.Queue], terminal: Terminal) -> None:
    terminal.table(
        ["MODEL", "PARTITION", "LEADER", "WAITING", "RUNNING", "WORKERS", "PER SECOND"],
        [
            (
                queue.model,
                queue.partition,
                queue.leader or "none",
                sum(part.num_waiting for part in queue.classes),
                queue.num_running,
                queue.num_workers,
                f"{queue.drain_rate:.1f}",
            )
            for queue in queues
        ],
    )


def _show_workers(workers: Sequence[admin.Worker], terminal: Terminal) -> None:
    terminal.table(
        ["WORKER", "MODEL", "REVISION", "RUNNING", "KV BLOCKS", "STATE"],
        [
            (
                worker.worker_id,
                worker.model,
                worker.model_revision,
                f"{worker.num_running}/{worker.max_seqs}",
                f"{worker.kv_blocks_used}/{worker.kv_blocks}",
                "draining" if worker.draining else "serving",
            )
            for worker in workers
        ],
    )


def _status_name(status: gen.RequestStatus.ValueType) -> str:
    return gen.RequestStatus.Name(status).removeprefix("REQUEST_STATUS_").lower()


def _time(at: Timestamp) -> str:
    return at.ToJsonString()
