"""One tensor out of a model's safetensors file, without reading the rest of the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.embedding.rows import BFloat16, widen
from ir3de.errors import ArtifactError, EmbeddingError
from ir3de.storage import tensors
from ir3de.storage.tensors import StoredTensor, read_header

# what the bytes are read as; bfloat16 is the upper half of a float32
_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def list_tensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file, by name, read from its header alone."""
    try:
        with path.open("rb") as file:
            return read_header(file, path.stat().st_size)[0]
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactError(
            f"{path} is damaged or not a safetensors file: {error}. Take it again from its source"
        ) from error


def read_tensor(
    path: Path, name: str, tensor: StoredTensor, more: Mapping[str, str] = MappingProxyType({})
) -> npt.NDArray[np.generic] | BFloat16:
    """The tensor's values: float16 and float32 as they are, bfloat16 as float32, which loses nothing.

    A large tensor stays in its file, mapped, and bfloat16 then becomes float32 when it is asked for. `more` names
    further types that the caller can handle.
    """
    known = {**_DTYPES, **more}
    if tensor.dtype not in known:
        raise EmbeddingError(
            f"'{name}' in {path} is stored as {tensor.dtype}; ir3de reads {', '.join(_DTYPES)}. "
            "Take a version of the model whose embedding is not quantised, or convert it to float16"
        )
    dtype, count = np.dtype(known[tensor.dtype]), math.prod(tensor.shape)
    if count * dtype.itemsize != tensor.length:
        raise ArtifactError(
            f"{path} is damaged: '{name}' is {tensor.dtype} {list(tensor.shape)} in {tensor.length} bytes. "
            "Take it again from its source"
        )
    if tensor.length > tensors.LARGE_FILE_BYTES:
        mapped: npt.NDArray[Any] = np.memmap(path, dtype, "r", tensor.begin, tensor.shape)
        return BFloat16(mapped) if tensor.dtype == "BF16" else mapped
    values = np.fromfile(path, dtype, count, offset=tensor.begin).reshape(tensor.shape)
    return widen(values) if tensor.dtype == "BF16" else values
