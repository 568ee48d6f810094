"""Tensors in safetensors files with a JSON header of IR3DE: one reader, one writer.

Small files are read into memory, large ones are mapped and written in pieces, so that no tensor is in memory twice.
Equal content gives equal bytes, the same that the `safetensors` package writes. That package itself copies each tensor
that it reads, and serialises a file as a whole: docs/format.md has the figures.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ir3de import files
from ir3de.errors import ArtifactError

Tensors = Mapping[str, npt.NDArray[Any]]

LARGE_FILE_BYTES = 1 << 28  # larger files are mapped, and written in pieces
PIECE_BYTES = 1 << 24  # read or written at a time
MAX_HEADER_BYTES = 100_000_000  # the format's own limit

# in the order in which the format stores tensors
_DTYPES = {
    "U64": "<u8", "I64": "<i8", "F64": "<f8", "F32": "<f4", "U32": "<u4", "I32": "<i4",
    "F16": "<f2", "U16": "<u2", "I16": "<i2", "I8": "|i1", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
_NAMES = {np.dtype(kind): name for name, kind in _DTYPES.items()}
_ORDER = list(_NAMES)
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)  # what `read_header` raises


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor is in its file, and how its numbers are written."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    length: int  # in bytes

    @property
    def end(self) -> int:
        return self.begin + self.length


def read_header(file: IO[bytes] | mmap.mmap, size: int) -> tuple[dict[str, StoredTensor], Mapping[str, str]]:
    """The tensors and the metadata in the header of a safetensors file; one of `DAMAGE` if it is damaged."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or not 0 < length <= min(size - 8, MAX_HEADER_BYTES):
        raise ValueError(f"a header of {length} bytes in a file of {size}")
    header = json.loads(file.read(length))
    metadata = header.pop("__metadata__", {})
    tensors = {name: _parse_tensor(entry, 8 + length) for name, entry in header.items()}
    needed = max((tensor.end for tensor in tensors.values()), default=0)
    if needed > size:
        raise ValueError(f"it is truncated: its header promises {needed} bytes, the file has {size}")
    return tensors, metadata


def _parse_tensor(entry: dict[str, object], data_begin: int) -> StoredTensor:
    begin, end = _parse_numbers(entry["data_offsets"])
    if begin > end:
        raise ValueError(f"data_offsets {begin} … {end}")
    return StoredTensor(str(entry["dtype"]), _parse_numbers(entry["shape"]), data_begin + begin, end - begin)


def _parse_numbers(values: object) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(isinstance(value, int) and value >= 0 for value in values):
        raise ValueError(f"expected a list of whole numbers, found {values!r:.80}")
    return tuple(values)


def read_tensors(path: Path, *, sha256: str | None = None) -> tuple[Tensors, files.Header]:
    """The tensors and the header of a file that IR3DE wrote, checked against its hash; mapped if it is large."""
    if path.is_file() and path.stat().st_size > LARGE_FILE_BYTES:
        return map_tensors(path, sha256=sha256)
    return from_safetensors(files.read(path, sha256=sha256), path)


def map_tensors(path: Path, *, sha256: str | None = None) -> tuple[Tensors, files.Header]:
    """The same as read-only views on the mapped file; replacing the file does not change them."""
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise ArtifactError(f"cannot map {path} into memory: {error}") from error
    if sha256 is not None:
        files.check_sha256(_hash(content), sha256, path)
    return from_safetensors(content, path)


def from_safetensors(content: bytes | mmap.mmap, path: Path) -> tuple[Tensors, files.Header]:
    """The tensors, as read-only views, and the JSON header in the bytes of a file; `path` is for messages."""
    try:
        stored, metadata = read_header(io.BytesIO(content) if isinstance(content, bytes) else content, len(content))
        tensors = {name: _view(content, name, tensor) for name, tensor in stored.items()}
        needed = max((tensor.end for tensor in stored.values()), default=len(content))
        if needed != len(content):
            raise ValueError(f"{len(content) - needed} bytes belong to no tensor")
        return tensors, json.loads(metadata["ir3de"])
    except DAMAGE as error:
        raise ArtifactError(
            f"{path} is not a file that ir3de wrote, or it is truncated or damaged ({error}). "
            "If ir3de wrote it, copy it again from where it came from"
        ) from error


def _view(content: bytes | mmap.mmap, name: str, tensor: StoredTensor) -> npt.NDArray[Any]:
    dtype, count = np.dtype(_DTYPES[tensor.dtype]), math.prod(tensor.shape)
    if count * dtype.itemsize != tensor.length:
        raise ValueError(f"'{name}' is {tensor.dtype} {list(tensor.shape)} in {tensor.length} bytes")
    return np.frombuffer(content, dtype, count, tensor.begin).reshape(tensor.shape)


def _hash(content: mmap.mmap) -> str:
    sha = hashlib.sha256()
    with memoryview(content) as view:
        for begin in range(0, len(view), PIECE_BYTES):
            sha.update(view[begin : begin + PIECE_BYTES])
    release_pages(content)
    return sha.hexdigest()


def release_pages(array: object) -> None:
    """Return the pages of a mapped file to the system; the next access reads them again."""
    while array is not None and not isinstance(array, mmap.mmap):
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    if array is not None and hasattr(mmap, "MADV_DONTNEED"):
        array.madvise(mmap.MADV_DONTNEED)


class TensorFile:
    """A safetensors file that is written piece by piece, and never whole in memory."""

    def __init__(self, tensors: Mapping[str, Any], header: files.Header) -> None:
        # wide types first, then by name: the order of the `safetensors` package
        order = sorted(tensors, key=lambda name: (_ORDER.index(np.dtype(tensors[name].dtype)), name))
        self._tensors = [tensors[name] for name in order]
        metadata = {"ir3de": json.dumps(header, ensure_ascii=False, sort_keys=True)}
        described: dict[str, Any] = {"__metadata__": metadata}
        end = 0
        for name, tensor in zip(order, self._tensors, strict=True):
            kind, begin = np.dtype(tensor.dtype), end
            end += math.prod(tensor.shape) * kind.itemsize
            described[name] = {"dtype": _NAMES[kind], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        written = json.dumps(described, ensure_ascii=False, separators=(",", ":")).encode()
        written += b" " * (-len(written) % 8)
        self._head = len(written).to_bytes(8, "little") + written
        self.size = len(self._head) + end

    def pieces(self) -> Iterator[bytes]:
        """The file's bytes, one piece after the other."""
        yield self._head
        for tensor in self._tensors:
            yield from iter_row_bytes(tensor)

    @cached_property
    def sha256(self) -> str:
        sha = hashlib.sha256()
        for piece in self.pieces():
            sha.update(piece)
        return sha.hexdigest()

    def write(self, path: Path) -> None:
        with files.open_atomic(path) as file:
            for piece in self.pieces():
                file.write(piece)

    def is_at(self, path: Path) -> bool:
        """Whether the file at a path is this one already."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256


def iter_row_bytes(tensor: Any) -> Iterator[bytes]:
    """The bytes of a tensor, some rows at a time."""
    rows = max(1, PIECE_BYTES // max(1, math.prod(tensor.shape[1:]) * np.dtype(tensor.dtype).itemsize))
    for begin in range(0, tensor.shape[0], rows):
        yield np.ascontiguousarray(tensor[begin : begin + rows]).tobytes()
    release_pages(tensor)


def to_safetensors(tensors: Mapping[str, Any], header: files.Header) -> bytes:
    """The bytes of a safetensors file with these tensors and this JSON header."""
    return b"".join(TensorFile(tensors, header).pieces())


def make_tensor_file(tensors: Mapping[str, Any], header: files.Header) -> bytes | TensorFile:
    """A file to be written: its bytes, or a `TensorFile` that writes it in pieces if it is large."""
    made = TensorFile(tensors, header)
    return b"".join(made.pieces()) if made.size <= LARGE_FILE_BYTES else made


def write_tensors(path: Path, tensors: Mapping[str, Any], header: files.Header) -> None:
    """Write tensors and a header to a file."""
    TensorFile(tensors, header).write(path)
