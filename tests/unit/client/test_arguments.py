"""What may be said where on the command line."""

import pytest

from headrace.cli.arguments import build_parser


@pytest.mark.parametrize(
    "words",
    [
        ("--target", "there:1", "dead", "list"),
        ("dead", "--target", "there:1", "list"),
        ("dead", "list", "--target", "there:1"),
        ("dead", "show", "ID", "--target", "there:1"),
        ("status", "--target", "there:1"),
    ],
)
def test_the_server_may_be_named_anywhere(words: tuple[str, ...]):
    """Before the command, behind it and behind its action; what is not repeated stays as it was said."""
    assert build_parser("here:1").parse_args(words).target == "there:1"


def test_without_a_server_the_default_counts():
    """Nothing behind the command undoes the default."""
    assert build_parser("here:1").parse_args(["dead", "list"]).target == "here:1"
