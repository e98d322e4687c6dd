"""What an output must look like, in the form that llguidance reads, and whether it can be read at all.

A gateway looks at the form alone; a worker compiles it for its vocabulary. Both bound what a grammar may cost: its size,
and the work before the first token and at each one.
"""

import functools
import json
from typing import Any

from common.domain import ConstraintKind, OutputConstraint

CAPABILITY = "constraint"
"""What a model card says of workers that can follow grammars."""

MAX_GRAMMAR_NODES = 200_000
FIRST_STEP_FUEL = 200_000
"""Work on a grammar's lexer before the first token: a second at most. It is done when the grammar is compiled."""
STEP_FUEL = 50_000
STEP_ITEMS = 20_000
"""Work at each token: tens of milliseconds at most, and microseconds as a rule."""

# Whatever JSON allows between tokens, a model that has nothing to say fills up with: a line break with its indentation, or
# a blank, is enough for every way to write JSON.
_JSON_WHITESPACE = r"(\n[ ]{0,24}|[ ])?"


class BadGrammar(Exception):
    """It cannot be read, or costs too much; the message says why."""


def is_available() -> bool:
    """Whether the library is there."""
    try:
        import llguidance  # noqa: F401
    except ImportError:
        return False
    return True


@functools.cache
def limits() -> Any:
    """The bounds, as the library takes them."""
    from llguidance import LLParserLimits

    return LLParserLimits(
        initial_lexer_fuel=FIRST_STEP_FUEL,
        step_lexer_fuel=STEP_FUEL,
        step_max_items=STEP_ITEMS,
        max_grammar_size=MAX_GRAMMAR_NODES,
    )


def grammar_text(constraint: OutputConstraint) -> str:
    """The grammar in the library's own format.

    Raises:
        BadGrammar: it cannot be read.
    """
    from llguidance import LLMatcher, grammar_from

    try:
        match constraint.kind:
            case ConstraintKind.JSON_OBJECT:
                return _json_grammar('{"type": "object"}')
            case ConstraintKind.JSON_SCHEMA:
                return _json_grammar(constraint.text)
            case ConstraintKind.REGEX:
                return LLMatcher.grammar_from_regex(constraint.text)
            case ConstraintKind.CHOICE:
                return grammar_from("choice", json.dumps(constraint.options))
            case ConstraintKind.GRAMMAR:
                return grammar_from("ebnf", constraint.text)
    except (ValueError, RecursionError) as error:
        raise BadGrammar(_short(str(error))) from error


def check_grammar(constraint: OutputConstraint) -> None:
    """Whether a worker will be able to compile it, as far as that can be told without a vocabulary.

    Raises:
        BadGrammar: it will not.
    """
    from llguidance import LLMatcher

    text = grammar_text(constraint)
    is_error, messages = LLMatcher.validate_grammar_with_warnings(text, limits=limits())
    if is_error:
        raise BadGrammar(_short(messages[0]))


def _json_grammar(schema: str) -> str:
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_json_schema(
        schema, defaults={"whitespace_pattern": _JSON_WHITESPACE}
    )


def _short(message: str) -> str:
    """The first lines of what the library says; it quotes whole grammars."""
    return " ".join(message.split())[:300]
