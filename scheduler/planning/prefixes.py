"""Rule 9: which worker holds how much of a prompt's beginning, by the hashes of its blocks.

    prompt   | block 0 | block 1 | block 2 | rest        each block's hash includes those before it
    hashes       h0        h1        h2                  so a worker with h2 that lacks h1 is of no use beyond h0

Workers report the blocks that became reusable and those that were evicted. An index that is behind costs a
recomputation and never a wrong token: the worker looks for itself.
"""

from collections.abc import Iterable, Mapping, Sequence


class PrefixIndex:
    """Holders of blocks."""

    def __init__(self) -> None:
        """No worker holds anything."""
        self._holders: dict[int, set[str]] = {}
        self._held: dict[str, set[int]] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def update(self, worker_id: str, added: Iterable[int], evicted: Iterable[int]) -> None:
        """A worker's cache has changed; what is in both is held."""
        held = self._held.setdefault(worker_id, set())
        for block in evicted:
            if block in held:
                held.discard(block)
                self._drop(block, worker_id)
        for block in added:
            held.add(block)
            self._holders.setdefault(block, set()).add(worker_id)

    def num_held(self, worker_id: str) -> int:
        """Blocks that a worker holds, as far as it has told."""
        return len(self._held.get(worker_id, ()))

    def forget(self, worker_id: str) -> None:
        """A worker has left, or begins anew."""
        for block in self._held.pop(worker_id, ()):
            self._drop(block, worker_id)

    def num_cached(self, prefix: Sequence[int]) -> Mapping[str, int]:
        """How many leading blocks of ``prefix`` each worker holds; workers that hold none are not named."""
        found: dict[str, int] = {}
        left: set[str] | None = None
        for index, block in enumerate(prefix):
            holders = self._holders.get(block)
            left = set(holders or ()) if left is None else left & (holders or set())
            if not left:
                break
            for worker_id in left:
                found[worker_id] = index + 1
        return found

    def _drop(self, block: int, worker_id: str) -> None:
        holders = self._holders[block]
        holders.discard(worker_id)
        if not holders:
            del self._holders[block]
