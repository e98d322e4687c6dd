"""Guesses from a text's own past."""

from hypothesis import given
from hypothesis import strategies as st

from worker.engine.lookup import PromptLookup


def test_what_followed_the_last_time_is_guessed() -> None:
    """The latest place counts, and no more than was asked for."""
    text = [1, 2, 3, 7, 7, 1, 2, 3, 8, 9, 1, 2, 3]
    assert PromptLookup().propose(text, 2) == [8, 9]
    assert PromptLookup().propose(text, 9) == [8, 9, 1, 2, 3]


def test_nothing_is_guessed_where_nothing_came_before() -> None:
    """Neither in short texts nor behind new words; the end is no place of its own."""
    assert PromptLookup().propose([], 4) == []
    assert PromptLookup().propose([5, 5], 4) == []
    assert PromptLookup().propose([1, 2, 3, 4], 4) == []
    assert PromptLookup().propose([5, 5, 5, 5], 4) == [5]


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 6))
def test_growing_text_equals_text_read_at_once(text: list[int], step: int) -> None:
    """Whatever was proposed before, the same is proposed as for the text as a whole."""
    growing = PromptLookup()
    for end in range(0, len(text) + 1, step):
        assert growing.propose(text[:end], 3) == PromptLookup().propose(text[:end], 3)
