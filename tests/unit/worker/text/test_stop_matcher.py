"""Stop strings in text that arrives in pieces."""

from hypothesis import given
from hypothesis import strategies as st

from worker.text.stop_matcher import StopMatch, StopMatcher

letters = st.text("abé", max_size=30)
stop_lists = st.lists(st.text("abé", min_size=1, max_size=5), max_size=4)


def reference(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Text before the match that is complete first, the longest of several; by trying every end."""
    for end in range(1, len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)], stop
    return text, None


def run(pieces: list[str], stops: list[str]) -> tuple[list[str], str | None]:
    matcher = StopMatcher(stops)
    given_out: list[str] = []
    for piece in pieces:
        found = matcher.push(piece)
        if isinstance(found, StopMatch):
            return [*given_out, found.before], found.stop
        given_out.append(found)
    return [*given_out, matcher.flush()], None


@given(st.lists(letters, max_size=8), stop_lists)
def test_pieces_do_not_matter(pieces: list[str], stops: list[str]) -> None:
    """Match and text are those of the whole text, wherever it is cut."""
    given_out, stop = run(pieces, stops)
    assert ("".join(given_out), stop) == reference("".join(pieces), stops)


@given(st.lists(letters, max_size=8), stop_lists)
def test_no_part_of_a_stop_string_is_given_out_before_it_is_decided(
    pieces: list[str], stops: list[str]
) -> None:
    """What was given out is always a beginning of the final text, and nothing that could still be matched is."""
    matcher = StopMatcher(stops)
    seen = given_out = ""
    for piece in pieces:
        found = matcher.push(piece)
        if isinstance(found, StopMatch):
            return
        seen, given_out = seen + piece, given_out + found
        held = seen[len(given_out) :]
        assert seen.startswith(given_out)
        longest = max((n for s in stops for n in range(len(s)) if seen.endswith(s[:n])), default=0)
        assert len(held) == longest


def test_passed_over_stop_is_ordinary_text() -> None:
    """A stop string that is complete too early stays in the text, and the next one still matches."""
    matcher = StopMatcher(["ab"])
    assert matcher.push("xab", may_stop=False) == "xab"
    assert matcher.push("ab") == StopMatch("", "ab")


def test_overlap() -> None:
    """``aa`` matches in ``aaa`` at its first chance."""
    assert run(["a", "a", "a"], ["aa"]) == (["", ""], "aa")
