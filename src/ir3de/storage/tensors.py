"""Files of tensors too large to be in memory twice: mapped when read, written piece by piece.

What lies in small files is read and written as in `files`; the bytes on disk are the same either way.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.errors import ArtifactError
from ir3de.storage import files

LARGE = 1 << 28  # bytes of a file from which it is mapped, or written in pieces
PIECE = 1 << 24  # bytes that are looked at at a time

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "U32": "<u4", "U16": "<u2", "U8": "|u1"}
_NAMES = {np.dtype(kind): name for name, kind in _TYPES.items()}


def read_tensors(path: Path, *, sha256: str | None = None) -> tuple[files.Tensors, files.Header]:
    """The tensors and the header of a safetensors file of ours, checked against its hash; mapped if it is large."""
    try:
        large = path.stat().st_size > LARGE
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from error
    if large:
        return map_tensors(path, sha256=sha256)
    return files.from_safetensors(files.read(path, sha256=sha256), path)


def map_tensors(path: Path, *, sha256: str | None = None) -> tuple[dict[str, npt.NDArray[Any]], files.Header]:
    """A safetensors file of ours as read-only views on it, checked against its hash; replacing it disturbs no view."""
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise ArtifactError(f"cannot map {path} into memory: {error}") from error
    if sha256 is not None and (found := _hash(content)) != sha256:
        raise ArtifactError(
            f"{path} is damaged: its SHA-256 is {found[:16]}…, {sha256[:16]}… was recorded. "
            "Copy it again from where it came from"
        )
    try:
        begin = 8 + int.from_bytes(content[:8], "little")
        described = json.loads(content[8:begin])
        header = json.loads(described.pop("__metadata__")["ir3de"])
        return {name: _view(content, begin, part) for name, part in described.items()}, header
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{path} is not a file that ir3de wrote, or it is damaged ({error})") from error


def _view(content: mmap.mmap, begin: int, part: Mapping[str, Any]) -> npt.NDArray[Any]:
    kind, (first, last) = np.dtype(_TYPES[part["dtype"]]), part["data_offsets"]
    return np.frombuffer(content, kind, (last - first) // kind.itemsize, begin + first).reshape(part["shape"])


def _hash(content: mmap.mmap) -> str:
    sha = hashlib.sha256()
    with memoryview(content) as view:
        for begin in range(0, len(view), PIECE):
            sha.update(view[begin : begin + PIECE])
    forget(content)
    return sha.hexdigest()


def forget(array: object) -> None:
    """Give the pages back that were read of a mapped file: they are read again when they are needed."""
    while array is not None and not isinstance(array, mmap.mmap):
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    if array is not None and hasattr(mmap, "MADV_DONTNEED"):
        array.madvise(mmap.MADV_DONTNEED)


class TensorFile:
    """A safetensors file that is written piece by piece, and never whole in memory."""

    def __init__(self, tensors: Mapping[str, Any], header: files.Header) -> None:
        # the format's own order, so that the bytes are those of `files.to_safetensors`: wide types first, then by name
        order = sorted(tensors, key=lambda name: (-np.dtype(tensors[name].dtype).itemsize, name))
        self._tensors = [tensors[name] for name in order]
        described: dict[str, Any] = {
            "__metadata__": {"ir3de": json.dumps(header, ensure_ascii=False, sort_keys=True)},
        }
        end = 0
        for name, tensor in zip(order, self._tensors, strict=True):
            kind, begin = np.dtype(tensor.dtype), end
            end += int(np.prod(tensor.shape)) * kind.itemsize
            described[name] = {"dtype": _NAMES[kind], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        written = json.dumps(described, ensure_ascii=False, separators=(",", ":")).encode()
        written += b" " * (-len(written) % 8)
        self._head = len(written).to_bytes(8, "little") + written
        self.size = len(self._head) + end

    def pieces(self) -> Iterator[bytes]:
        """The file's bytes, one piece after the other."""
        yield self._head
        for tensor in self._tensors:
            yield from row_pieces(tensor)

    @cached_property
    def sha256(self) -> str:
        sha = hashlib.sha256()
        for piece in self.pieces():
            sha.update(piece)
        return sha.hexdigest()

    def write(self, path: Path) -> None:
        with files.appearing(path) as file:
            for piece in self.pieces():
                file.write(piece)

    def is_at(self, path: Path) -> bool:
        """Whether a file is this one already."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256


def row_pieces(tensor: Any) -> Iterator[bytes]:
    """The bytes of a tensor, some rows at a time."""
    rows = max(1, PIECE // max(1, int(np.prod(tensor.shape[1:])) * np.dtype(tensor.dtype).itemsize))
    for begin in range(0, tensor.shape[0], rows):
        yield np.ascontiguousarray(tensor[begin : begin + rows]).tobytes()
    forget(tensor)


def tensor_file(tensors: Mapping[str, Any], header: files.Header) -> bytes | TensorFile:
    """Tensors as a file to be written: its bytes, or, if they are many, what writes it piece by piece."""
    made = TensorFile(tensors, header)
    return files.to_safetensors(tensors, header) if made.size <= LARGE else made


def write_tensors(path: Path, tensors: Mapping[str, Any], header: files.Header) -> None:
    """Write tensors and a header to a file."""
    TensorFile(tensors, header).write(path)
