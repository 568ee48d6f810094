"""One tensor out of a safetensors file, without reading the rest of the model.

The header is parsed here because the format's numpy reader does not know bfloat16.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.embedding.rows import BFloat16, widened
from ir3de.errors import ArtifactError, EmbeddingError
from ir3de.storage.tensors import LARGE

LARGEST_HEADER = 100_000_000  # the format's own limit, in bytes

# what the bytes are read as; bfloat16 is the upper half of a float32
_STORED_AS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies in its file, and how its numbers are written."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    length: int


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file, by name, read from its header alone."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header_length = int.from_bytes(file.read(8), "little")
            if size < 8 or not 0 < header_length <= min(size - 8, LARGEST_HEADER):
                raise ValueError(f"a header of {header_length} bytes in a file of {size}")
            header = json.loads(file.read(header_length))
        tensors = {
            name: _stored_tensor(entry, 8 + header_length) for name, entry in header.items() if name != "__metadata__"
        }
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(
            f"{path} is damaged or not a safetensors file: {error}. Take it again from its source"
        ) from error
    needed = max((tensor.start + tensor.length for tensor in tensors.values()), default=0)
    if needed > size:
        raise ArtifactError(
            f"{path} is truncated: its header promises {needed} bytes, the file has {size}. "
            "Take it again from its source"
        )
    return tensors


def read_tensor(path: Path, name: str, tensor: StoredTensor) -> npt.NDArray[np.generic] | BFloat16:
    """The tensor's values: float16 and float32 as they are, bfloat16 widened to float32, which loses nothing.

    Many of them stay in their file, mapped, and bfloat16 is then widened when it is asked for.
    """
    if tensor.dtype not in _STORED_AS:
        raise EmbeddingError(
            f"'{name}' in {path} is stored as {tensor.dtype}; ir3de reads {', '.join(_STORED_AS)}. "
            "Take a version of the model whose embedding is not quantised, or convert it to float16"
        )
    stored = np.dtype(_STORED_AS[tensor.dtype])
    count = math.prod(tensor.shape)
    if count * stored.itemsize != tensor.length:
        raise ArtifactError(
            f"{path} is damaged: '{name}' is {tensor.dtype} {list(tensor.shape)} in {tensor.length} bytes. "
            "Take it again from its source"
        )
    if tensor.length > LARGE:
        mapped: npt.NDArray[Any] = np.memmap(path, stored, "r", tensor.start, tensor.shape)
        return BFloat16(mapped) if tensor.dtype == "BF16" else mapped
    values = np.fromfile(path, stored, count, offset=tensor.start).reshape(tensor.shape)
    return widened(values) if tensor.dtype == "BF16" else values


def _stored_tensor(entry: dict[str, object], data_start: int) -> StoredTensor:
    first, last = _whole_numbers(entry["data_offsets"])
    if first > last:
        raise ValueError(f"data_offsets {first} … {last}")
    return StoredTensor(str(entry["dtype"]), _whole_numbers(entry["shape"]), data_start + first, last - first)


def _whole_numbers(values: object) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(isinstance(value, int) and value >= 0 for value in values):
        raise ValueError(f"expected a list of whole numbers, found {values!r:.80}")
    return tuple(values)
