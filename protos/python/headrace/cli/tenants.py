"""``headrace keys``, ``tenant`` and ``forget``: who may call, and what they may do."""

import argparse
from datetime import UTC, datetime, timedelta

from headrace.cli.terminal import Terminal
from headrace.client import Client
from headrace.v1 import admin_service_pb2 as pb
from headrace.v1 import generation_pb2 as gen

_COUNTED = (
    ("requests_per_minute", "requests_used"),
    ("tokens_per_minute", "tokens_used"),
    ("concurrent_requests", "requests_open"),
)


def keys(client: Client, arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Issues, lists or revokes API keys."""
    match arguments.action:
        case "create":
            ends = None
            if arguments.days is not None:
                ends = datetime.now(UTC) + timedelta(days=arguments.days)
            made = client.admin.create_key(arguments.tenant, arguments.description, ends)
            terminal.note(f"key {made.key.key_id}; the secret is shown this once:")
            terminal.line(made.secret)
        case "list":
            terminal.table(
                ["KEY", "TENANT", "CREATED", "EXPIRES", "STATE", "DESCRIPTION"],
                [
                    (
                        key.key_id,
                        key.tenant,
                        key.created_at.ToJsonString(),
                        key.expires_at.ToJsonString() if key.HasField("expires_at") else "never",
                        "revoked" if key.revoked else "holds",
                        key.description,
                    )
                    for key in client.admin.keys(arguments.tenant)
                ],
            )
        case "revoke":
            key = client.admin.revoke_key(arguments.key_id)
            terminal.line(f"revoked {key.key_id} of {key.tenant}")
    return 0


def tenant(client: Client, arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Sets or shows a tenant's limits."""
    if arguments.action == "set":
        client.admin.set_tenant(arguments.tenant, _limits(arguments))
    found = client.admin.tenant(arguments.tenant)
    limits = found.limits
    terminal.line(f"models:           {', '.join(limits.models) or 'all'}")
    highest = gen.Priority.Name(limits.highest_priority).removeprefix("PRIORITY_").lower()
    terminal.line(f"highest priority: {highest}")
    terminal.line(f"weight:           {limits.weight:g}")
    terminal.table(
        ["LIMIT", "USED", "MOST"],
        [
            (
                limit.replace("_", " "),
                getattr(found, used),
                getattr(limits, limit) if limits.HasField(limit) else "any",  # type: ignore[arg-type]
            )
            for limit, used in _COUNTED
        ],
    )
    return 0


def forget(client: Client, arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Deletes what is stored about a tenant's requests, or about one."""
    request_id = arguments.request_id or arguments.request
    num_gone = client.admin.forget(tenant=arguments.tenant, request_id=request_id)
    terminal.line(f"forgot {num_gone} requests" if num_gone != 1 else "forgot 1 request")
    return 0


def _limits(arguments: argparse.Namespace) -> pb.TenantLimits:
    limits = pb.TenantLimits(models=arguments.models, weight=arguments.weight)
    if arguments.highest_priority is not None:
        name = f"PRIORITY_{arguments.highest_priority.upper()}"
        limits.highest_priority = gen.Priority.Value(name)
    for limit, _ in _COUNTED:
        if (most := getattr(arguments, limit)) is not None:
            setattr(limits, limit, most)
    return limits
