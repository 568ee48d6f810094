"""Compact copies, their 4-bit blocks, and embeddings that are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir3de import files
from ir3de.embedding import Embedding, Matrix
from ir3de.errors import ArtifactError, EmbeddingError, VersionError

KINDS = ("byte-level BPE", "WordPiece", "Unigram")


# --- compact copies ---


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compact", [True, False])
def test_a_copy_is_the_same_embedding(
    kind: str, compact: bool, tiny_embeddings: dict[str, Embedding], tmp_path: Path
) -> None:
    embedding = tiny_embeddings[kind]
    again = Embedding.load(embedding.save(tmp_path / "copy", compact=compact))
    stored = embedding.stored.compact() if compact else embedding.stored
    assert again.stored.sha256 == stored.sha256
    assert (again.name, again.width, again.vocabulary_size) == (embedding.name, 40, embedding.vocabulary_size)
    assert again.tokenizer.proof == embedding.tokenizer.proof
    assert (again.fingerprint == embedding.fingerprint) is not compact
    np.testing.assert_array_equal(again.matrix, stored.values)
    assert again.encode("Hello there").tolist() == embedding.encode("Hello there").tolist()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 100), st.integers(1, 6), st.floats(0.1, 1e3), st.integers(0, 2**32 - 1))
def test_four_bit_blocks_are_never_far_off(width: int, rows: int, scale: float, seed: int) -> None:
    values = (np.random.default_rng(seed).normal(size=(rows, width)) * scale).astype(np.float32)
    stored = Matrix.plain(values).compact()
    padded = np.zeros((rows, -(-width // 32) * 32), np.float32)
    padded[:, :width] = values
    blocks = padded.reshape(-1, 32)
    miss = np.zeros_like(padded)
    miss[:, :width] = stored.values - values
    # no choice of step does worse than the extreme at level −8, whose other values are off by half a step at most;
    # on the far side the highest level is 7, so there one whole step
    allowed = 32 * (np.abs(blocks).max(axis=1) / 8 * 1.01) ** 2
    assert ((miss.reshape(-1, 32) ** 2).sum(axis=1) <= allowed).all()
    assert stored.compact() is stored
    assert stored.nbytes == rows * -(-width // 32) * 18


def test_four_bit_blocks_of_a_usual_matrix_are_within_a_tenth() -> None:
    values = np.random.default_rng(0).normal(size=(500, 96)).astype(np.float32)
    error = np.linalg.norm(Matrix.plain(values).compact().values - values) / np.linalg.norm(values)
    assert 0.05 < error < 0.1


def test_zeros_stay_zeros() -> None:
    assert not Matrix.plain(np.zeros((3, 33), np.float32)).compact().values.any()


@pytest.fixture
def copy(tiny_embeddings: dict[str, Embedding], tmp_path: Path) -> Path:
    return tiny_embeddings["WordPiece"].save(tmp_path / "copy")


def change_header(folder: Path, **changes: object) -> None:
    header = json.loads((folder / "embedding.json").read_text())
    (folder / "embedding.json").write_text(json.dumps({**header, **changes}))


def flip_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def drop_header_key(folder: Path) -> None:
    header = json.loads((folder / "embedding.json").read_text())
    del header["fingerprint"]
    (folder / "embedding.json").write_text(json.dumps(header))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "error", "said"),
    [
        (lambda copy: flip_last_byte(copy / "matrix.safetensors"), ArtifactError, "does not match its header"),
        (lambda copy: flip_last_byte(copy / "tokenizer.json"), ArtifactError, "SHA-256"),
        (lambda copy: (copy / "matrix.safetensors").write_bytes(b"short"), ArtifactError, "truncated"),
        (lambda copy: (copy / "matrix.safetensors").unlink(), ArtifactError, "cannot read"),
        (lambda copy: (copy / "embedding.json").write_text("{"), ArtifactError, "not JSON"),
        (lambda copy: change_header(copy, kind="other"), ArtifactError, "its kind is 'other'"),
        (lambda copy: change_header(copy, fast_engine=3), ArtifactError, "damaged"),
        (drop_header_key, ArtifactError, "fingerprint"),
        (lambda copy: change_header(copy, version=2), VersionError, "install a newer ir3de"),
    ],
)
def test_a_damaged_copy_is_refused(
    damage: Callable[[Path], None], error: type[Exception], said: str, copy: Path
) -> None:
    damage(copy)
    with pytest.raises(error, match=said):
        Embedding.load(copy)


def test_another_tokenizer_can_be_named_for_a_copy(copy: Path, tiny_definitions: dict[str, bytes]) -> None:
    named = copy.parent / "named.json"
    named.write_bytes(tiny_definitions["Unigram"])
    loaded = Embedding.load(copy, tokenizer=named)  # once: a tokenizer without a kept proof is proven anew
    assert loaded.vocabulary_size == Embedding.load(copy).vocabulary_size
    assert json.loads(loaded.tokenizer.definition)["model"]["type"] == "Unigram"


# --- what is refused ---


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_matrix_that_is_not_finite_is_refused(value: float) -> None:
    values = np.ones((5, 4), np.float32)
    values[3, 1] = value
    with pytest.raises(EmbeddingError, match="1 of 5 rows hold NaN or infinity, the first is row 3"):
        _ = Matrix.plain(values).values


def test_a_tokenizer_larger_than_the_matrix_is_refused(tiny_definitions: dict[str, bytes]) -> None:
    with pytest.raises(EmbeddingError, match=r"ids up to 799, the matrix only 799 rows"):
        Embedding.from_definition(
            tiny_definitions["WordPiece"], Matrix.plain(np.ones((799, 4), np.float32)), name="small"
        )


def test_an_empty_matrix_is_refused(tiny_embeddings: dict[str, Embedding]) -> None:
    with pytest.raises(EmbeddingError, match="is empty: its matrix is 3 × 0"):
        Embedding(tiny_embeddings["Unigram"].tokenizer, Matrix.plain(np.ones((3, 0), np.float32)), name="none")


@pytest.mark.parametrize("definition", [b"", b"[]", b"{}", b"\xff", b'{"version": "1.0"}'])
def test_a_tokenizer_that_is_none_is_refused(definition: bytes) -> None:
    with pytest.raises(EmbeddingError, match=r"not a Hugging Face tokenizer\.json"):
        Embedding.from_definition(definition, Matrix.plain(np.ones((3, 4), np.float32)), name="none")


def test_a_tokenizer_of_an_unknown_model_is_refused(tiny_definitions: dict[str, bytes]) -> None:
    content = json.loads(tiny_definitions["WordPiece"])
    content["model"] = {"type": "Nonesuch"}
    with pytest.raises(EmbeddingError, match="the tokenizer cannot be read"):
        Embedding.from_definition(json.dumps(content).encode(), Matrix.plain(np.ones((3, 4), np.float32)), name="none")


@pytest.mark.parametrize(("source", "said"), [("nowhere", "no embedding at"), ("a/b/c", "neither a file")])
def test_a_source_that_is_nothing_is_refused(
    source: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EmbeddingError, match=said):
        Embedding.load(source)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(EmbeddingError, match=r"expected a \.gguf file or a folder, found '\.bin'"):
        Embedding.load(tmp_path / "model.bin")


@pytest.mark.slow
def test_a_copy_stays_until_the_one_that_replaces_it_is_whole(
    tiny_embeddings: dict[str, Embedding], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tiny_embeddings["WordPiece"], tiny_embeddings["Unigram"]
    folder = first.save(tmp_path / "copy", compact=False)
    real = files.write

    def failing(path: Path, content: bytes) -> None:
        if path.name == "embedding.json":
            raise ArtifactError("no space")
        real(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write", failing)
        with pytest.raises(ArtifactError, match="no space"):
            second.save(folder, compact=False)
    assert Embedding.load(folder).fingerprint == first.fingerprint
    second.save(folder, compact=False)
    assert Embedding.load(folder).fingerprint == second.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy"]


def test_a_few_wild_rows_do_not_coarsen_the_others() -> None:
    matrix = np.random.default_rng(0).normal(size=(50, 12))
    wild = np.array(matrix, np.float32)
    wild[3] *= 1_000
    tame = Matrix.plain(np.array(matrix, np.float32))
    assert Matrix.plain(wild).unit == tame.unit
    others = np.arange(len(wild)) != 3
    assert np.array_equal(Matrix.plain(wild).fixed_point[others], tame.fixed_point[others])
    assert np.abs(Matrix.plain(wild).fixed_point).max() <= 1 << 11
