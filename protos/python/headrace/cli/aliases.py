"""`headrace models alias`, `aliases` and `promote`: names that point at models."""

import argparse
from collections.abc import Iterable

from headrace.cli.flag_values import whole
from headrace.cli.terminal import Terminal
from headrace.client import Client
from headrace.v1 import admin_service_pb2 as pb


def add_aliases(models: argparse.ArgumentParser) -> None:
    """The actions behind `headrace models`."""
    actions = models.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("list", help="list models (what is done without an action)")
    actions.add_parser("aliases", help="list names that point at models")
    alias = actions.add_parser(
        "alias",
        help="let a name point at models",
        description="Let a name point at models, each with its share. Without targets the name is removed.",
    )
    alias.add_argument("name", metavar="NAME")
    alias.add_argument(
        "targets",
        nargs="*",
        type=target_of,
        metavar="MODEL[@REVISION][=WEIGHT]",
        help="where requests go, by weight (default: 1)",
    )
    alias.add_argument(
        "--fallback",
        action="append",
        default=[],
        type=target_of,
        metavar="MODEL[@REVISION][=WEIGHT]",
        help="where they go while no worker serves any of the targets",
    )
    alias.add_argument(
        "--fallback-above",
        type=whole(0, 32),
        metavar="N",
        help="they also go there while more than N requests wait for each of the targets' models",
    )
    promote = actions.add_parser(
        "promote",
        help="send all traffic of a name or model to a revision, or back",
        description="Send all traffic of a name or model to a revision; what was before becomes the fallback.",
    )
    promote.add_argument("name", metavar="NAME")
    promote.add_argument(
        "revision", nargs="?", default="", metavar="REVISION", help="default: back to the fallback"
    )


def target_of(text: str) -> pb.AliasTarget:
    """`model@revision=weight`, the last two as one likes."""
    name, _, weight = text.partition("=")
    model, _, revision = name.partition("@")
    if not model or (weight and not weight.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not MODEL[@REVISION][=WEIGHT]")
    return pb.AliasTarget(model=model, revision=revision, weight=int(weight or 1))


def change_aliases(client: Client, arguments: argparse.Namespace, terminal: Terminal) -> int:
    """Carries out one of the actions."""
    match arguments.action:
        case "alias":
            wanted = pb.ModelAlias(
                alias=arguments.name,
                current=arguments.targets,
                fallback=arguments.fallback,
                fallback_above_waiting=arguments.fallback_above,
            )
            found = [client.admin.set_alias(wanted)]
        case "promote":
            found = [client.admin.promote(arguments.name, arguments.revision)]
        case _:
            found = client.admin.aliases()
    terminal.table(
        ["NAME", "CURRENT", "FALLBACK"],
        [(one.alias, _shown(one.current) or "removed", _fallback(one)) for one in found],
    )
    return 0


def _fallback(alias: pb.ModelAlias) -> str:
    shown = _shown(alias.fallback)
    if alias.HasField("fallback_above_waiting"):
        return f"{shown} above {alias.fallback_above_waiting} waiting"
    return shown


def _shown(targets: Iterable[pb.AliasTarget]) -> str:
    return ", ".join(
        f"{one.model}{f'@{one.revision}' if one.revision else ''}={one.weight}" for one in targets
    )
