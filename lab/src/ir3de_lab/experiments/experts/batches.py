"""Rows of unequal length, long with long, in batches of a size that the memory holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de_lab.experiments.experts.models import LanguageModel


def batches(lengths: Sequence[int], tokens: int) -> Iterator[npt.NDArray[np.intp]]:
    """Places, long with long, as many as stay below so many tokens when padded, and one at least."""
    order = np.argsort([-length for length in lengths], kind="stable")
    begin = 0
    while begin < len(order):
        count = max(1, tokens // max(1, lengths[order[begin]]))
        yield order[begin : begin + count]
        begin += count


def padded(model: LanguageModel, rows: Sequence[list[int]], *, left: bool) -> tuple[Any, Any]:
    """Token ids and their mask, on the model's device."""
    torch, width = model.torch, max(len(row) for row in rows)
    ids = np.full((len(rows), width), model.end)
    mask = np.zeros((len(rows), width), np.int64)
    for place, row in enumerate(rows):
        where = slice(width - len(row), width) if left else slice(0, len(row))
        ids[place, where], mask[place, where] = row, 1
    return torch.from_numpy(ids).to(model.device), torch.from_numpy(mask).to(model.device)
