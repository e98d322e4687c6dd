"""Blocks in files: what comes back is what was kept, or nothing; and the folder never outgrows its bound."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.support.polling import eventually
from worker.kv.disk_tier import MAX_PENDING, DiskTier

CONTENT_BYTES = 100
FILE_BYTES = 8 + 16 + CONTENT_BYTES


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def content(number: int) -> bytes:
    return bytes([number % 256]) * CONTENT_BYTES


@pytest.fixture
def tiers(tmp_path: Path) -> Iterator["Tiers"]:
    made = Tiers(tmp_path)
    yield made
    made.close()


class Tiers:
    """Opens tiers over one folder, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "f"
        self._root = folder
        self._open: DiskTier | None = None

    def open(self, max_files: int = 10) -> DiskTier:
        self.close()
        self._open = DiskTier(
            self._root, "f", max_bytes=max_files * FILE_BYTES, block_bytes=CONTENT_BYTES
        )
        return self._open

    def close(self) -> None:
        if self._open is not None:
            self._open.close(10)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


def test_what_is_kept_comes_back_after_a_restart_too(tiers: Tiers) -> None:
    """From memory while it is being written, from its file afterwards."""
    tier = tiers.open()
    for number in range(5):
        tier.save(key(number), content(number))
        assert tier.load(key(number)) == content(number)
    tier = tiers.open()
    assert [tier.load(key(number)) for number in range(5)] == [content(n) for n in range(5)]
    assert tier.load(key(9)) is None
    assert tiers.folder.stat().st_mode & 0o077 == 0


def test_the_least_recently_used_goes(tiers: Tiers) -> None:
    """In the index and on the disk; a smaller bound holds from the start."""
    tier = tiers.open(max_files=3)
    for number in range(3):
        tier.save(key(number), content(number))
    tier = tiers.open(max_files=3)
    assert tier.load(key(0)) is not None
    tier.save(key(3), content(3))
    assert [number for number in range(4) if key(number) in tier] == [0, 2, 3]
    tier = tiers.open(max_files=2)
    assert len(tier) == 2
    assert len(tiers.names()) == 2


@pytest.mark.parametrize("damage", ["cut", "changed", "swapped", "gone"])
def test_a_damaged_file_is_not_there(tiers: Tiers, damage: str) -> None:
    """Cut short, altered, of another block or deleted: it is forgotten, not given out."""
    tier = tiers.open()
    tier.save(key(1), content(1))
    tier.save(key(2), content(2))
    tier = tiers.open()
    path, other = (tiers.folder / f"{key(n).hex()}.kv" for n in (1, 2))
    match damage:
        case "cut":
            path.write_bytes(path.read_bytes()[:-1])
        case "changed":
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)
        case "swapped":
            path.write_bytes(other.read_bytes())
        case "gone":
            path.unlink()
    with capture_logs():
        assert tier.load(key(1)) is None
    assert key(1) not in tier
    assert not path.exists()
    assert tier.load(key(2)) == content(2)


def test_what_a_crash_left_is_removed(tiers: Tiers) -> None:
    """Half-written files and foreign names do not stay."""
    tiers.folder.mkdir()
    (tiers.folder / "00.part").write_bytes(b"x")
    (tiers.folder / "note.kv").write_bytes(b"x")
    assert len(tiers.open()) == 0
    assert tiers.names() == []


def test_what_another_model_left_is_removed(tiers: Tiers, tmp_path: Path) -> None:
    """Its blocks would never be read and never be counted; nothing else is touched."""
    former, strange = tmp_path / "former", tmp_path / "strange"
    tier = DiskTier(tmp_path, "former", max_bytes=FILE_BYTES, block_bytes=CONTENT_BYTES)
    tier.save(key(1), content(1))
    tier.close(10)
    (former / f"{key(2).hex()}.part").write_bytes(b"x")
    strange.mkdir()
    (tmp_path / "empty").mkdir()
    for path in (strange / "note.kv", strange / f"{key(1).hex()}.txt", tmp_path / "note"):
        path.write_bytes(b"x")
    tiers.open()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "empty",
        "f",
        "note",
        "strange",
    ]
    assert len(list(strange.iterdir())) == 2


def test_half_of_a_file_does_not_stay(tiers: Tiers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that becomes full in the middle of a block has that room again."""
    tier, write = tiers.open(), Path.write_bytes

    def write_some(path: Path, data: bytes) -> int:
        write(path, data[:10])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", write_some)
    tier.save(key(1), content(1))
    tier.close(10)
    assert tiers.names() == []


def test_a_disk_that_fails_costs_the_block_only(tiers: Tiers) -> None:
    """Nothing waits for it and nothing breaks."""
    tier = tiers.open()
    tiers.folder.rmdir()
    with capture_logs() as lines:
        tier.save(key(1), content(1))
        eventually(lambda: any(x["event"] == "cached_block_not_written" for x in lines))
        eventually(lambda: tier.load(key(1)) is None)
    tiers.folder.mkdir()


def test_the_books_hold_under_any_use(tiers: Tiers) -> None:
    """Random saves and loads: never a wrong content, never more files than allowed."""
    randomness, tier = random.Random(3), tiers.open(max_files=8)
    for _ in range(2000):
        number = randomness.randrange(20)
        if randomness.random() < 0.5:
            tier.save(key(number), content(number))
        else:
            assert tier.load(key(number)) in (None, content(number))
        assert len(tier) <= 8 + MAX_PENDING
    tiers.open(max_files=8)
    assert len(tiers.names()) <= 8
