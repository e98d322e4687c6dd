"""Content filters: the gate, the patterns from a file, and how plug-ins are found."""

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.content_filter import TextGate, first_refusal
from common.content_patterns import PatternFilter, from_file
from common.content_plugins import identity_of, load_filters
from common.server import CannotServe

WORDS = PatternFilter([r"\bab\b", "c{2,4}", "(?<=a)d"], hold_back=6)
OTHERS = PatternFilter(["bb"], hold_back=3)


def gate(*filters: PatternFilter) -> TextGate:
    def fail(name: str, error: Exception) -> None:
        raise AssertionError(name) from error

    return TextGate(filters, fail)


@given(
    text=st.text("abcd ", max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=12),
    filters=st.sampled_from([(WORDS,), (OTHERS,), (WORDS, OTHERS)]),
)
def test_pieces_do_not_matter(
    text: str, cuts: list[int], filters: tuple[PatternFilter, ...]
) -> None:
    """However it is cut, what comes through is the text up to the first passage that any filter finds in the whole."""
    found = [place for one in filters if (place := one.find(text, 0)) is not None]
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    opened = gate(*filters)
    out = ""
    for start, end in itertools.pairwise(borders):
        out += opened.push(text[start:end])
        assert text.startswith(out)
    out += opened.flush()
    assert out == text[: min(found, default=len(text))]
    assert opened.is_shut == bool(found)
    assert opened.push("more") == "" or not found


def test_no_more_is_held_than_has_to_be() -> None:
    """All but the last ``hold_back`` characters is told at once."""
    opened = gate(WORDS)
    assert opened.push("x" * 100) == "x" * 94


def test_a_filter_that_fails_shuts_the_gate() -> None:
    """Nobody knows better, and whoever runs it hears of it."""

    class Broken:
        name, identity, hold_back = "broken", "1", 2

        def find(self, text: str, start: int) -> int | None:
            raise RuntimeError(text)

    told: list[str] = []
    opened = TextGate([Broken()], lambda name, error: told.append(f"{name}: {error}"))
    assert opened.push("one") + opened.flush() == ""
    assert opened.is_shut
    assert told == ["broken: one"]


def test_a_whole_text() -> None:
    """The first filter that refuses it is named."""
    assert first_refusal([OTHERS, WORDS], "an ab it is") == "patterns"
    assert first_refusal([OTHERS, WORDS], "cab") is None


def test_patterns_from_a_file(tmp_path: Path) -> None:
    """What the file says counts, and a change of it changes the filter's identity."""
    path = tmp_path / "patterns.toml"
    path.write_text("hold_back = 20\npatterns = ['(?i)secret']\n")
    found = from_file(str(path))
    assert found.hold_back == 20
    assert found.find("a SECRET", 0) == 2
    path.write_text("hold_back = 20\npatterns = ['(?i)secrets']\n")
    changed = from_file(str(path))
    assert changed.identity != found.identity
    assert identity_of([changed]) != identity_of([found]) != identity_of([])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("patterns = ['(']", "("),
        ("patterns = ['a*']", "empty text"),
        ("patterns = 'a'", "must be a list"),
        ("patterns = ['a']\nhold_back = 0", "hold_back"),
        ("patterns = ['a']\nhold_back = 'x'", "hold_back"),
        ("patterns = ['a']\nholdback = 3", "holdback: not known"),
        ("patterns", "Expected"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, content: str, said: str) -> None:
    """It is said why, at the start, with the flag in front."""
    path = tmp_path / "patterns.toml"
    path.write_text(content)
    with pytest.raises(CannotServe, match=re.escape(said)) as caught:
        load_filters([f"patterns={path}"], "--output-filters")
    assert str(caught.value).startswith("--output-filters: patterns=")


def test_a_filter_that_is_not_installed() -> None:
    """The message names those that are."""
    with pytest.raises(
        CannotServe, match=r"no content filter nope is installed \(there is .*patterns"
    ):
        load_filters(["nope"], "--input-filters")
