"""The flags that say what an answer must look like: one of them at most."""

import argparse
from pathlib import Path

from headrace.cli.exits import UsageError
from headrace.v1 import generation_pb2 as gen


def add_constraint(parser: argparse.ArgumentParser) -> None:
    """One kind; a text that begins with @ is read from the file behind it."""
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--json-schema", metavar="SCHEMA", help="a JSON document of this schema; @FILE reads one"
    )
    kinds.add_argument("--json-object", action="store_true", default=None, help="any JSON object")
    kinds.add_argument("--regex", metavar="REGEX", help="what this expression matches as a whole")
    kinds.add_argument(
        "--grammar", metavar="EBNF", help="what this grammar describes; @FILE reads one"
    )
    kinds.add_argument(
        "--choice", action="append", metavar="TEXT", help="one of these; to be given again"
    )


def constraint_of(arguments: argparse.Namespace) -> gen.OutputConstraint | None:
    """The constraint that was asked for; None for none."""
    if arguments.choice is not None:
        return gen.OutputConstraint(choice=gen.ChoiceList(options=arguments.choice))
    if arguments.json_object:
        return gen.OutputConstraint(json_object=True)
    if arguments.json_schema is not None:
        return gen.OutputConstraint(json_schema=_text(arguments.json_schema))
    if arguments.regex is not None:
        return gen.OutputConstraint(regex=arguments.regex)
    if arguments.grammar is not None:
        return gen.OutputConstraint(grammar=_text(arguments.grammar))
    return None


def _text(given: str) -> str:
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{given[1:]} cannot be read: {error}") from error
