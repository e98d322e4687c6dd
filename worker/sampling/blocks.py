"""Rows of a vocabulary's length, cut into blocks, so that what is large is found without looking at everything twice.

    row        │ block 0: 64 values │ block 1 │ ... │ block n-1 │
    summits    │ the largest of 0   │ of 1    │ ... │

At least k values of a row reach the k-th largest summit: whatever belongs to the k largest values stands in a block whose
summit reaches it. What is computed of a row is the same whatever other rows are there: sums have a fixed shape, and
blocks without weight add exactly nothing.
"""

import numpy as np
import torch

SIZE = 64


def cut(rows: torch.Tensor) -> torch.Tensor:
    """``rows`` [rows, vocabulary] as [rows, blocks, SIZE]; a vocabulary that does not come out even is padded with -inf."""
    missing = -rows.shape[-1] % SIZE
    if missing:
        rows = torch.nn.functional.pad(rows, (0, missing), value=float("-inf"))
    return rows.view(rows.shape[0], -1, SIZE)


def largest(values: torch.Tensor, count: int) -> torch.Tensor:
    """The ``count`` largest of each row of ``values`` [rows, n], the largest first."""
    count = min(count, values.shape[-1])
    if values.device.type != "cpu":
        return values.topk(count, dim=-1).values
    # numpy selects and sorts several times as fast as torch does on a CPU.
    start = values.shape[-1] - count
    array = values.numpy()
    if start:
        array = np.partition(array, start, axis=-1)[:, start:]
    return torch.from_numpy(np.sort(array, axis=-1)[:, ::-1].copy())


def reaching(summits: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
    """Numbers [rows, most] of each row's blocks whose summit reaches its bound, in order, filled with -1.

    ``summits`` [rows, blocks], ``bounds`` [rows, 1].
    """
    wanted = summits >= bounds
    places = wanted.cumsum(dim=-1)
    found = torch.full((wanted.shape[0], int(places[:, -1].max())), -1, device=wanted.device)
    rows, columns = wanted.nonzero(as_tuple=True)
    found[rows, places[rows, columns] - 1] = columns
    return found


def taken(
    blocks: torch.Tensor, rows: torch.Tensor, numbers: torch.Tensor, missing: float
) -> torch.Tensor:
    """Of ``rows`` [n] of ``blocks`` the blocks ``numbers`` [n, m], as [n, m, SIZE]; where a number is -1, ``missing``."""
    flat = (numbers.clamp_min(0) + rows.unsqueeze(-1) * blocks.shape[1]).view(-1)
    found = blocks.reshape(-1, SIZE).index_select(0, flat).view(*numbers.shape, SIZE)
    return found.masked_fill_((numbers < 0).unsqueeze(-1), missing)


def totals(blocks: torch.Tensor) -> torch.Tensor:
    """Sums up to and with each block, [rows, blocks], in the order of the vocabulary."""
    return blocks.sum(dim=-1).cumsum(dim=-1, dtype=torch.float64)
