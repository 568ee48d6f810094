"""Embeddings too large to be in memory as float32: read row by row, they give the same bits as at once.

No matrix here is large; a lower limit makes the same parts think so.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import HfFolder

import tiny
from ir3de import Embedding, Router, TokenRidge, collect
from ir3de.embedding import Matrix, huggingface, matrix
from ir3de.errors import EmbeddingError
from ir3de.files import tensors as tensor_files
from ir3de.files.router_folder import inspect_router
from ir3de.scorers import Blend, CrossEntropy, KernelRidge

VALUES = tiny.random_matrix(330).values


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From when it is called on, everything is large, and pages are given back after every row."""

    def lower() -> None:
        monkeypatch.setattr(matrix, "LARGE_MATRIX_BYTES", 0)
        monkeypatch.setattr(tensor_files, "LARGE_FILE_BYTES", 0)
        monkeypatch.setattr(matrix, "ROWS_AT_ONCE", 100)
        monkeypatch.setattr(tensor_files, "PIECE_BYTES", 1_000)
        monkeypatch.setattr(matrix, "MAX_MAPPED_BYTES", 0)

    return lower


def stored(kind: str) -> Embedding:
    made = Matrix.plain(VALUES.astype(np.float32 if kind == "float32" else np.float16))
    return tiny.with_matrix(made.compact() if kind == "4-bit" else made)


@pytest.mark.parametrize("kind", ["float32", "float16", "4-bit"])
def test_a_large_embedding_gives_the_bits_of_the_same_at_once(
    tmp_path: Path, large: Callable[[], None], kind: str
) -> None:
    texts = tiny.domain_texts()
    expected = tiny.contents(Router.fit(texts, embedding=stored(kind)).save(tmp_path / "small"))
    large()
    embedding = stored(kind)
    router = Router.fit(texts, embedding=embedding)
    assert tiny.contents(router.save(tmp_path / "large")) == expected
    third = router.statistics["cooking"]
    loaded = Router.load(tmp_path / "large")
    loaded.remove("cooking")
    loaded.add("cooking", third)
    assert tiny.contents(loaded.save(tmp_path / "large")) == expected
    assert inspect_router(tmp_path / "large").whole
    for used in (embedding, loaded.embedding):
        assert isinstance(used.rows, matrix.StoredRows) and "values" not in vars(used.stored)


@pytest.mark.parametrize("scorer", [TokenRidge.paper(), Blend(few=0.0), CrossEntropy(), KernelRidge(landmarks=20)])
def test_every_scorer_reads_rows(large: Callable[[], None], scorer: Blend) -> None:
    domains = [collect(some, embedding=stored("float16")) for some in tiny.domain_texts().values()]
    expected = scorer.scores(domains, stored("float16").rows)
    large()
    assert np.array_equal(scorer.scores(domains, stored("float16").rows), expected)


def test_outcomes_are_fitted_by_rows(large: Callable[[], None]) -> None:
    rows = [{"text": text, "scores": {"a": len(text) % 2, "b": 0.5}} for text in tiny.mixed(20)]
    expected = Router.fit_outcomes(rows, embedding=stored("float16")).compiled.table.scores
    large()
    found = Router.fit_outcomes(rows, embedding=stored("float16")).compiled.table.scores
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_a_model_s_weights_stay_in_their_file(
    hf_folder: HfFolder, tmp_path: Path, large: Callable[[], None], dtype: str
) -> None:
    folder = hf_folder(tiny.byte_definition(), {"model.embed_tokens.weight": VALUES}, dtype=dtype)
    at_once = Matrix.plain(tensor(folder))
    expected = tiny.with_matrix(at_once).save(tmp_path / "small", compact=False)
    large()
    mapped = Matrix.plain(tensor(folder))
    assert (mapped.sha256, mapped.encoding, mapped.unit) == (at_once.sha256, at_once.encoding, at_once.unit)
    assert np.array_equal(mapped.by_rows[5:9], at_once.values[5:9])
    assert np.array_equal(mapped.compact().values, at_once.compact().values)
    copy = tiny.with_matrix(mapped).save(tmp_path / "large", compact=False)
    assert tiny.contents(copy) == tiny.contents(expected)
    assert np.array_equal(Embedding.load(copy).rows[:], at_once.values)


def tensor(folder: Path) -> np.ndarray | matrix.BFloat16:
    path = folder / "model.safetensors"
    ((name, where),) = huggingface.list_tensors(path).items()
    return huggingface.read_tensor(path, name, where)


def test_what_is_not_finite_is_found_row_by_row(large: Callable[[], None]) -> None:
    damaged = VALUES.copy()
    damaged[7, 3], damaged[200, 0] = np.nan, -np.inf
    said = []
    for before in (lambda: None, large):
        before()
        with pytest.raises(EmbeddingError, match=r"2 of 330 rows.*first is row 7") as caught:
            len(Matrix.plain(damaged).by_rows)
        said.append(str(caught.value))
    assert said[0] == said[1]
