"""The keys of one growing text, worked out as its blocks become full."""

from collections.abc import Sequence

from common.prefix_keys import next_key


class PrefixChain:
    """Remembers the keys so far. Without a root the text takes no part in the prefix cache: it has no keys."""

    def __init__(self, root: bytes | None, block_size: int) -> None:
        """Of a text none of whose keys is known."""
        self._root = root
        self._block_size = block_size
        self._keys: list[bytes] = []

    def keys(self, token_ids: Sequence[int], num_tokens: int) -> Sequence[bytes]:
        """The keys of the full blocks among the first ``num_tokens`` of ``token_ids``, which only ever grow."""
        if self._root is None:
            return ()
        size, count = self._block_size, num_tokens // self._block_size
        for index in range(len(self._keys), count):
            parent = self._keys[-1] if self._keys else self._root
            self._keys.append(next_key(parent, token_ids[index * size : (index + 1) * size]))
        return self._keys[:count]
