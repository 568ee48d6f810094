"""Subject rows: what each token is about, in a few small whole numbers. Version 3 of the default embedding has them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ir3de.files.tensors import from_safetensors

SUBJECTS_FILE = "subjects.safetensors"


class SubjectRows(NamedTuple):
    """The subject of a text is the mean of its tokens' rows, less the centre. Its direction counts, not its length."""

    rows: npt.NDArray[np.int8]  # (V, k)
    centre: npt.NDArray[np.float32]  # (k,)  of general prompts


@lru_cache(maxsize=2)
def read_subjects(folder: Path) -> SubjectRows | None:
    """The subject rows of a bundled version; None if it has none."""
    path = folder / SUBJECTS_FILE
    if not path.is_file():
        return None
    tensors, _ = from_safetensors(path.read_bytes(), path)
    return SubjectRows(tensors["rows"], tensors["centre"])
