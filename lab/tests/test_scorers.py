"""What holds of the scorers that are not ridge on the embedding itself: cross-entropy and kernel ridge."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import tiny
from ir3de import Statistics, TokenRidge
from ir3de.errors import InputError
from ir3de_lab.scorers import CrossEntropy, KernelRidge, cross_entropy, kernel_ridge

TOKENS, WIDTH, EXPERTS = 20, 3, 3
E = np.random.default_rng(5).standard_normal((TOKENS, WIDTH)).astype(np.float32)

histograms = arrays.arrays(np.int64, (EXPERTS, TOKENS), elements=st.integers(0, 30)).filter(
    lambda counts: counts.any(axis=1).all()
)
entropies = st.builds(CrossEntropy, st.sampled_from([0.1, 1.0, 20.0]), st.booleans(), st.booleans())
kernels = st.builds(KernelRidge, st.sampled_from([0.1, 1.0]), st.sampled_from([1, 5, 32]), st.sampled_from([None, 0.3]))


def domains(counts: np.ndarray) -> list[Statistics]:
    return [Statistics("tiny", 1, own) for own in counts]


@pytest.fixture(autouse=True, scope="module")
def to_the_last_digit() -> Iterator[None]:
    """The laws are about the minimum itself, not about where the steps may end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cross_entropy, "TOLERANCE", 1e-10)
        yield


def extended(scorer: CrossEntropy) -> np.ndarray:
    return np.hstack([E.astype(np.float64), np.ones((TOKENS, int(scorer.bias)))])


def every_token(counts: np.ndarray, scorer: CrossEntropy) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Each occurrence of a token as a row of its own: its vector, its domain one-hot, its weight; and λ."""
    X, domain, weight = [], [], []
    for c, own in enumerate(counts):
        for token, times in enumerate(own):
            X += [extended(scorer)[token]] * times
            domain += [np.eye(EXPERTS)[c]] * times
            weight += [1.0 / own.sum() if scorer.balanced else 1.0] * times
    penalty = scorer.strength * (sum(1.0 / own.sum() for own in counts) if scorer.balanced else 1.0)
    return np.array(X), np.array(domain), np.array(weight)[:, None], penalty


def slope(W: np.ndarray, X: np.ndarray, domain: np.ndarray, weight: np.ndarray, penalty: float) -> np.ndarray:
    powers = np.exp(X @ W)
    return X.T @ (weight * (powers / powers.sum(axis=1, keepdims=True) - domain)) + penalty * W


@tiny.LAW
@given(histograms, entropies)
def test_at_the_solution_the_loss_is_level(counts: np.ndarray, scorer: CrossEntropy) -> None:
    S = scorer.scores(domains(counts), E)
    W = np.linalg.lstsq(extended(scorer), S, rcond=None)[0]
    np.testing.assert_allclose(extended(scorer) @ W, S, atol=1e-9)
    data = every_token(counts, scorer)
    at_the_start = np.abs(slope(np.zeros_like(W), *data)).max()
    assert np.abs(slope(W, *data)).max() <= 1e-7 * max(at_the_start, data[2].sum())


@pytest.mark.parametrize("scorer", [CrossEntropy(), CrossEntropy(2.0, bias=False), CrossEntropy(5.0, balanced=False)])
def test_steps_downhill_token_by_token_end_at_the_same_scores(scorer: CrossEntropy) -> None:
    counts = np.random.default_rng(1).integers(0, 4, (EXPERTS, TOKENS))
    X, domain, weight, penalty = every_token(counts, scorer)
    W = np.zeros((X.shape[1], EXPERTS))
    steepest = penalty + np.linalg.eigvalsh(X.T @ (weight * X)).max() / 2
    for _ in range(4_000):
        W -= slope(W, X, domain, weight, penalty) / steepest
    np.testing.assert_allclose(scorer.scores(domains(counts), E), extended(scorer) @ W, atol=1e-7)


@tiny.LAW
@given(histograms, entropies, st.integers(2, 1_000))
def test_counts_times_t_with_strength_times_t_is_the_same_fit(counts: np.ndarray, scorer: CrossEntropy, t: int) -> None:
    stronger = replace(scorer, strength=scorer.strength * t)
    np.testing.assert_allclose(
        stronger.scores(domains(counts * t), E), scorer.scores(domains(counts), E), atol=1e-6, rtol=1e-6
    )


@tiny.LAW
@given(histograms, entropies | kernels, st.permutations(range(EXPERTS)))
def test_the_order_of_the_domains_is_that_of_the_columns(
    counts: np.ndarray, scorer: CrossEntropy | KernelRidge, order: list[int]
) -> None:
    found = scorer.scores(domains(counts[order]), E)
    np.testing.assert_allclose(found, scorer.scores(domains(counts), E)[:, order], atol=1e-6, rtol=1e-6)


@tiny.LAW
@given(histograms, entropies, st.integers(0, TOKENS - 1))
def test_a_token_that_was_never_seen_has_no_say(counts: np.ndarray, scorer: CrossEntropy, token: int) -> None:
    counts[:, token] = 0
    counts[:, token - 1] += 1
    moved = E.copy()
    moved[token] = 7.0
    seen = np.arange(TOKENS) != token
    before, after = scorer.scores(domains(counts), E), scorer.scores(domains(counts), moved)
    assert np.array_equal(before[seen], after[seen])


@tiny.LAW
@given(histograms, entropies)
def test_domains_that_do_not_differ_are_scored_alike(counts: np.ndarray, scorer: CrossEntropy) -> None:
    S = scorer.scores(domains(np.stack([counts[0]] * EXPERTS)), E)
    np.testing.assert_allclose(S, np.zeros_like(S), atol=1e-8)


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("strength", [1e-9, 1e-3, 1e9])
def test_it_settles_on_what_is_hard(strength: float, balanced: bool) -> None:
    """Domains without a token in common, one with nothing at all, counts that are far apart."""
    apart = np.zeros((EXPERTS, TOKENS), np.int64)
    apart[0, :9], apart[1, 9:] = 10_000_000, 1
    for counts in (apart, apart[::-1].copy(), np.zeros_like(apart)):
        S = CrossEntropy(strength, balanced=balanced).scores(domains(counts), E)
        assert np.isfinite(S).all()
        assert np.abs(S.sum(axis=1)).max() <= 1e-6 * max(1.0, np.abs(S).max())


def test_steps_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "MAX_STEPS", 2)
    counts = np.random.default_rng(1).integers(0, 4, (EXPERTS, TOKENS))
    with pytest.raises(InputError, match=r"did not converge in 2 steps .* larger strength"):
        CrossEntropy().scores(domains(counts), E)


# kernel ridge ---------------------------------------------------------------------------------------------------


def by_loop(gamma: float) -> np.ndarray:
    """The kernel, and the constant that stands for the bias."""
    return np.array([[np.exp(-gamma * ((x - y) ** 2).sum()) + 1 for y in E.astype(float)] for x in E.astype(float)])


@pytest.mark.slow
@tiny.LAW
@given(histograms, st.sampled_from([0.1, 1.0, 20.0]), st.sampled_from([0.05, 0.3]))
def test_with_every_token_a_landmark_it_is_kernel_ridge_on_every_token(
    counts: np.ndarray, strength: float, gamma: float
) -> None:
    """The dual form, one row for each occurrence: S = K̃ (K̃ + λ diag(1/w))⁻¹ Y."""
    ids = [token for own in counts for token, times in enumerate(own) for _ in range(times)]
    Y = np.repeat(np.eye(EXPERTS), counts.sum(axis=1), axis=0)
    each = np.repeat(counts.sum(axis=1), counts.sum(axis=1))  # 1/w
    penalty = strength * (1.0 / counts.sum(axis=1)).sum()
    K = by_loop(gamma)
    expected = K[:, ids] @ np.linalg.solve(K[np.ix_(ids, ids)] + penalty * np.diag(each), Y)
    found = KernelRidge(strength, TOKENS, gamma).scores(domains(counts), E)
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_landmarks_are_the_tokens_that_weigh_most() -> None:
    counts = np.array([[0.1, 0.0], [0.0, 0.4], [0.2, 0.2], [0.0, 0.0], [0.7, 0.0]])
    assert kernel_ridge.find_landmarks(counts, 3).tolist() == [4, 1, 2]
    assert kernel_ridge.find_landmarks(counts, 9).tolist() == [4, 1, 2, 0]


@tiny.LAW
@given(histograms, kernels, st.integers(1, TOKENS))
def test_blocks_change_nothing_but_rounding(counts: np.ndarray, scorer: KernelRidge, rows: int) -> None:
    expected = scorer.scores(domains(counts), E)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_ridge, "BLOCK_ROWS", rows)
        np.testing.assert_allclose(scorer.scores(domains(counts), E), expected, atol=1e-4)


def test_the_width_of_the_kernel_is_the_median_distance() -> None:
    apart = [((E[i].astype(float) - E[j]) ** 2).sum() for i in range(TOKENS) for j in range(i)]
    assert kernel_ridge.choose_gamma(E) == pytest.approx(1 / np.median(apart))
    assert kernel_ridge.choose_gamma(np.ones((4, 2), np.float32)) == 1.0
    assert kernel_ridge.choose_gamma(E[:1]) == 1.0


@pytest.mark.parametrize("landmarks", [1, 4, 64])
def test_tokens_with_one_vector_have_one_score(landmarks: int) -> None:
    """Landmarks on top of each other, and domains with nothing in them, leave something to solve."""
    twins = np.repeat(E[:5], 4, axis=0)
    counts = np.random.default_rng(1).integers(0, 4, (EXPERTS, TOKENS))
    for some in (counts, counts * [[1], [1], [0]], counts * 0):
        S = KernelRidge(landmarks=landmarks).scores(domains(some), twins)
        assert np.isfinite(S).all()
        np.testing.assert_allclose(S, np.repeat(S[::4], 4, axis=0), atol=1e-6)


def test_it_tells_apart_what_no_plane_does() -> None:
    """Corners of a square, opposite ones of one domain."""
    corners = np.array([[1, 1], [-1, -1], [1, -1], [-1, 1]], np.float32)
    counts = np.array([[5, 5, 0, 0], [0, 0, 5, 5]])
    assert KernelRidge().scores(domains(counts), corners).argmax(axis=1).tolist() == [0, 0, 1, 1]
    flat = TokenRidge().scores(domains(counts), corners)
    np.testing.assert_allclose(flat[:, 0], flat[:, 1], atol=1e-9)


@pytest.mark.parametrize(
    ("option", "values"),
    [("landmarks", [0, -1, 1.5, "64", 1 << 20]), ("gamma", [0, -1.0, float("nan"), float("inf"), "wide"])],
)
def test_parameters_have_limits(option: str, values: list[object]) -> None:
    for value in values:
        with pytest.raises(InputError, match=option) as refused:
            KernelRidge(**{option: value})
        assert f"found {value!r}" in str(refused.value)
