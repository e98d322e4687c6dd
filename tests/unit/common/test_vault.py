"""Encryption of stored content: sealing, opening, rotation, and what was there before."""

from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st

from common.streams.vault import Vault, read_keys

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


@given(st.binary())
def test_what_is_sealed_opens_again(content: bytes) -> None:
    """Nothing of it shows, and nothing stays nothing."""
    vault = Vault([OLD])
    stored = vault.seal(content)
    assert vault.open(stored) == content
    assert bool(stored) == bool(content)
    if len(content) > 12:
        assert content not in stored


def test_rotation() -> None:
    """The first key seals, all open; a key that is gone opens nothing more, and what it sealed stays as it is."""
    before = Vault([OLD]).seal(b"text")
    assert Vault([NEW, OLD]).open(before) == b"text"
    assert Vault([NEW]).open(before) == before
    assert Vault([NEW]).open(Vault([NEW, OLD]).seal(b"text")) == b"text"
    assert Vault().open(before) == before


def test_what_was_there_before() -> None:
    """Switched on while everything runs: what is stored in clear is read, and sealed when it is written again."""
    assert Vault([OLD]).open(b"\x0a\x03abc") == b"\x0a\x03abc"
    assert Vault().seal(b"text") == b"text"


def test_answers_of_scripts() -> None:
    """However deep it lies; numbers and names pass."""
    vault = Vault([OLD])
    answer = [1, b"name", [vault.seal(b"text"), None]]
    assert vault.open_all(answer) == [1, b"name", [b"text", None]]


@pytest.mark.parametrize("content", ["", "\n", "too short", OLD + "\nnot a key"])
def test_files_that_hold_no_keys(tmp_path: Path, content: str) -> None:
    """They are refused, by a message without the key."""
    path = tmp_path / "keys"
    path.write_text(content)
    with pytest.raises(ValueError, match=r".") as caught:
        read_keys(path)
    assert OLD not in str(caught.value)


def test_a_file_of_keys(tmp_path: Path) -> None:
    """One on each line, in their order."""
    path = tmp_path / "keys"
    path.write_text(f"{NEW}\n{OLD}\n")
    assert read_keys(path) == [NEW, OLD]
