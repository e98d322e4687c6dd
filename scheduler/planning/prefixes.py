"""Rule 9: which worker holds how much of a prompt's beginning, by the hashes of its blocks.

    prompt   | block 0 | block 1 | block 2 | rest        each block's hash includes those before it
    hashes       h0        h1        h2                  so a worker with h2 that lacks h1 is of no use beyond h0

Requests name every block of a short prompt and some of a long one, in this order. Workers report the blocks that became reusable and those that were evicted. An index that is behind costs a
recomputation and never a wrong token: the worker looks for itself.
"""

from collections.abc import Iterable, Iterator, Sequence


class PrefixIndex:
    """Holders of blocks."""

    def __init__(self) -> None:
        """No worker holds anything."""
        # In the order in which they came to hold it: what is looked at first must not be a matter of chance.
        self._holders: dict[int, dict[str, None]] = {}
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
            self._holders.setdefault(block, {})[worker_id] = None

    def num_held(self, worker_id: str) -> int:
        """Blocks that a worker holds, as far as it has told."""
        return len(self._held.get(worker_id, ()))

    def forget(self, worker_id: str) -> None:
        """A worker has left, or begins anew."""
        for block in self._held.pop(worker_id, ()):
            self._drop(block, worker_id)

    def longest(self, prefix: Sequence[int]) -> int:
        """How many leading blocks of ``prefix`` somebody holds, each of them: no worker holds more."""
        holders = self._holders
        for index, block in enumerate(prefix):
            if block not in holders:
                return index
        return len(prefix)

    def num_cached(self, worker_id: str, prefix: Sequence[int]) -> int:
        """How many leading blocks of ``prefix`` a worker holds."""
        held = self._held.get(worker_id)
        if not held:
            return 0
        for index, block in enumerate(prefix):
            if block not in held:
                return index
        return len(prefix)

    def holders(self, prefix: Sequence[int]) -> Iterator[str]:
        """Workers that hold any of ``prefix``, those first that hold its longest beginning, as far as one block tells."""
        named: set[str] = set()
        for block in reversed(prefix[: self.longest(prefix)]):
            for worker_id in self._holders[block]:
                if worker_id not in named:
                    named.add(worker_id)
                    yield worker_id

    def _drop(self, block: int, worker_id: str) -> None:
        holders = self._holders[block]
        del holders[worker_id]
        if not holders:
            del self._holders[block]
