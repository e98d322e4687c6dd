"""The launcher's folder: Redis' data, logs and ready files; one launcher at a time."""

import contextlib
import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


class FolderInUse(Exception):
    """Two servers appending to one AOF would ruin it."""


@dataclass(frozen=True)
class DataFolder:
    """Where the parts of one stack keep their files."""

    root: Path

    @property
    def redis(self) -> Path:
        return self.root / "redis"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """Ready files of the children; empty when nothing runs."""
        return self.root / "run"

    @property
    def temporary(self) -> Path:
        """What libraries leave in the temporary folder of their process; gone at the end."""
        return self.root / "tmp"


@contextlib.contextmanager
def open_data_folder(kept: Path | None) -> Iterator[DataFolder]:
    """The given folder, locked; or a temporary one that is removed at the end."""
    root = kept or Path(tempfile.mkdtemp(prefix="headrace-local-"))
    try:
        folder = DataFolder(root)
        for part in (folder.redis, folder.logs, folder.run, folder.temporary):
            part.mkdir(parents=True, exist_ok=True)
        with _locked(root):
            try:
                yield folder
            finally:
                shutil.rmtree(folder.temporary, ignore_errors=True)
    finally:
        if kept is None:
            shutil.rmtree(root)


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    with (root / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(f"another headrace-local uses {root}") from None
        yield
