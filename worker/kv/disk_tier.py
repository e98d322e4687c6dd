"""Blocks that left the prefix cache, in files: bounded in size, checked when they are read, never waited for when written.

    evicted ──▶ pending, in memory ──▶ writer's thread ──▶ <folder>/<fingerprint>/<key>.kv
    wanted  ──▶ from pending, or from the file if its checksum holds

A file is `magic │ checksum │ content`, written beside its place and moved there, so a crash leaves no half of one under a
key's name. The folder belongs to one worker; files of the same fingerprint are found again after a restart, and those of
another are removed: nobody reads them any more, and they would not count towards the bound.
"""

import contextlib
import queue
import threading
from collections import OrderedDict
from hashlib import blake2b
from pathlib import Path

from common.logs import get_log
from common.prefix_keys import KEY_BYTES

_MAGIC = b"HRKV0001"
_CHECKSUM_BYTES = 16
_SUFFIX, _HALF_SUFFIX = ".kv", ".part"
MAX_PENDING = 256
"""Blocks that wait for the writer; what comes when so many wait is not kept."""

_log = get_log(__name__)


class DiskTier:
    """Files of blocks, least recently used first. One thread calls it; only the writer is another's."""

    def __init__(
        self, folder: Path, fingerprint: str, *, max_bytes: int, block_bytes: int
    ) -> None:
        """Find what an earlier process left there, as far as it fits.

        Raises:
            OSError: the folder cannot be used.
        """
        self._folder = folder / fingerprint
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _remove_blocks_of_others(self._folder)
        self._block_bytes = block_bytes
        self._max_files = max_bytes // (len(_MAGIC) + _CHECKSUM_BYTES + block_bytes)
        self._files: OrderedDict[bytes, None] = OrderedDict()
        self._pending: dict[bytes, bytes] = {}
        self._jobs: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        for path in sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime):
            key = _key_of(path)
            if key is None:
                path.unlink()  # what a crash left half written
            else:
                self._files[key] = None
        self._bound()
        self._writer = threading.Thread(target=self._write_all, name="disk-tier", daemon=True)
        self._writer.start()

    def __len__(self) -> int:
        """Blocks that can be read, as far as is known."""
        return len(self._files)

    def __contains__(self, key: bytes) -> bool:
        """Whether the block of a key may be there."""
        return key in self._files

    def save(self, key: bytes, content: bytes) -> None:
        """Keep a block, soon; not if the disk is slower than the evictions."""
        if key in self._files:
            self._files.move_to_end(key)
            return
        if len(self._pending) >= MAX_PENDING or not self._max_files:
            return
        self._files[key] = None
        self._pending[key] = content
        self._jobs.put(key)
        self._bound()

    def load(self, key: bytes) -> bytes | None:
        """The block of a key; None, and forgotten, if it is not there or not whole."""
        if key not in self._files:
            return None
        content = self._pending.get(key) or self._read(key)
        if content is None:
            self._forget(key)
            return None
        self._files.move_to_end(key)
        return content

    def close(self, timeout_s: float) -> None:
        """Write what is pending, within ``timeout_s``."""
        self._jobs.put(None)
        self._writer.join(timeout_s)

    def _read(self, key: bytes) -> bytes | None:
        try:
            data = self._path(key).read_bytes()
        except OSError:
            return None
        head = len(_MAGIC) + _CHECKSUM_BYTES
        content = data[head:]
        if data[:head] != _MAGIC + _checksum(key, content) or len(content) != self._block_bytes:
            _log.warning("cached_block_damaged", key=key.hex())
            return None
        return content

    def _write_all(self) -> None:
        while (key := self._jobs.get()) is not None:
            content = self._pending[key]
            path = self._path(key)
            beside = path.with_suffix(_HALF_SUFFIX)
            try:
                beside.write_bytes(_MAGIC + _checksum(key, content) + content)
                beside.replace(path)
            except OSError as error:
                # The next read misses it, and the block is computed instead.
                _log.warning("cached_block_not_written", error=str(error))
                with contextlib.suppress(OSError):
                    beside.unlink()
            del self._pending[key]

    def _bound(self) -> None:
        while len(self._files) > self._max_files:
            # What is pending has just come: the writer would bring its file back.
            oldest = next((key for key in self._files if key not in self._pending), None)
            if oldest is None:
                return
            self._forget(oldest)

    def _forget(self, key: bytes) -> None:
        del self._files[key]
        with contextlib.suppress(FileNotFoundError):
            self._path(key).unlink()

    def _path(self, key: bytes) -> Path:
        return self._folder / f"{key.hex()}{_SUFFIX}"


def _remove_blocks_of_others(folder: Path) -> None:
    """Of the folders beside ``folder``; whatever else lies there stays."""
    for other in folder.parent.iterdir():
        if other == folder or not other.is_dir():
            continue
        with contextlib.suppress(OSError):  # it may be anybody's
            blocks = [path for path in other.iterdir() if _is_block(path)]
            for path in blocks:
                path.unlink()
            if blocks:
                other.rmdir()


def _is_block(path: Path) -> bool:
    """Whether its name is that of a block, whole or half written."""
    is_named_so = path.suffix in {_SUFFIX, _HALF_SUFFIX}
    return is_named_so and _key_of(path.with_suffix(_SUFFIX)) is not None


def _checksum(key: bytes, content: bytes) -> bytes:
    return blake2b(content, digest_size=_CHECKSUM_BYTES, key=key).digest()


def _key_of(path: Path) -> bytes | None:
    """The key that a file's name spells."""
    if path.suffix != _SUFFIX:
        return None
    try:
        key = bytes.fromhex(path.stem)
    except ValueError:
        return None
    return key if len(key) == KEY_BYTES else None
