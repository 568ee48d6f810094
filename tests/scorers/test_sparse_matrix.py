"""A sparse matrix multiplies as a dense one does."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from ir3de.kernel import native
from ir3de.scorers import sparse
from ir3de.scorers.sparse import SparseMatrix

needs_kernel = pytest.mark.skipif(native is None, reason="the native kernel is not built")


@pytest.fixture(params=["numpy", pytest.param("native", marks=needs_kernel)])
def _engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "native", None if request.param == "numpy" else native)


shapes = st.tuples(
    st.integers(1, 40), st.integers(1, 30), st.sampled_from([1, 3, 7, 8, 9, 14, 16, 17, 23, 64, 70, 90, 300])
)


@pytest.mark.usefixtures("_engine")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shape=shapes, share=st.sampled_from([0.0, 0.02, 0.3, 1.0]), seed=st.integers(0, 99))
def test_it_multiplies_as_a_dense_matrix_does(shape: tuple[int, int, int], share: float, seed: int) -> None:
    n, width, columns = shape
    random = np.random.default_rng(seed)
    dense = (random.integers(-8, 9, (n, width)) * (random.random((n, width)) < share)).astype(np.float32)
    rows, found = np.nonzero(dense)
    starts = np.append(0, np.cumsum((dense != 0).sum(axis=1)))
    matrix = SparseMatrix(starts, found.copy(), dense[rows, found], width)
    W = random.integers(-8, 9, (width, columns)).astype(np.float32)  # whole numbers: every order of adding is exact
    R = random.integers(-8, 9, (n, columns)).astype(np.float32)
    assert np.array_equal(matrix.multiply(W), dense @ W)
    assert np.array_equal(matrix.multiply_transposed(R), dense.T @ R)
    chosen = random.permutation(n)[: n // 2 + 1]
    assert np.array_equal(matrix.take(chosen).multiply(W), dense[chosen] @ W)
    half = width // 2
    assert np.array_equal(matrix.first_columns(half).multiply(W[:half]), dense[:, :half] @ W[:half])
    weights = random.integers(1, 5, n).astype(np.float32)
    assert np.array_equal(matrix.sum_squares(weights), weights @ dense**2)


@needs_kernel
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("starts", "columns", "rows"),
    [([0, 1, 2], [0, 9], 4), ([0, 1, 2], [0, -1], 4), ([0, 2, 1], [0, 1], 4), ([0, 1, 3], [0, 1], 4), ([], [], 4)],
    ids=["beyond the last row", "before the first", "out of order", "beyond the entries", "no rows"],
)
def test_matrices_that_do_not_fit_are_refused(
    transposed: bool, starts: list[int], columns: list[int], rows: int
) -> None:
    whole, values = [np.array(some, np.int64) for some in (starts, columns)], np.ones(len(columns), np.float32)
    shapes = [(rows, 3), (max(0, len(starts) - 1), 3)]
    out, dense = (np.zeros(shape, np.float32) for shape in (shapes if transposed else reversed(shapes)))
    product = native.multiply_transposed if transposed else native.multiply
    with pytest.raises(ValueError, match="do not fit"):
        product(*whole, values, dense, out)
    with pytest.raises(TypeError, match="expected"):
        product(*whole, values.astype(np.float64), dense, out)
