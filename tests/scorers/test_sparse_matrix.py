"""A sparse matrix multiplies as a dense one does."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from ir3de.scorers.sparse import SparseMatrix

shapes = st.tuples(st.integers(1, 40), st.integers(1, 30), st.integers(1, 9))


@given(shape=shapes, share=st.sampled_from([0.0, 0.02, 0.3, 1.0]), seed=st.integers(0, 99))
def test_it_multiplies_as_a_dense_matrix_does(shape: tuple[int, int, int], share: float, seed: int) -> None:
    n, width, columns = shape
    random = np.random.default_rng(seed)
    dense = (random.integers(-8, 9, (n, width)) * (random.random((n, width)) < share)).astype(np.float32)
    rows, found = np.nonzero(dense)
    starts = np.append(0, np.cumsum((dense != 0).sum(axis=1)))
    matrix = SparseMatrix(starts, found, dense[rows, found], width)
    W = random.integers(-8, 9, (width, columns)).astype(np.float32)  # whole numbers: every order of adding is exact
    R = random.integers(-8, 9, (n, columns)).astype(np.float32)
    assert np.array_equal(matrix.multiply(W), dense @ W)
    assert np.array_equal(matrix.transposed.multiply(R), dense.T @ R)
    chosen = random.permutation(n)[: n // 2 + 1]
    assert np.array_equal(matrix.take(chosen).multiply(W), dense[chosen] @ W)
    half = width // 2
    assert np.array_equal(matrix.first_columns(half).multiply(W[:half]), dense[:, :half] @ W[:half])
    weights = random.integers(1, 5, n).astype(np.float32)
    assert np.array_equal(matrix.sum_squares(weights), weights @ dense**2)
