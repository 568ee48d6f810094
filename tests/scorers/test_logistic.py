"""The discriminative scorer: a minimum of its loss, compiled to tables, the same to the bit however it came about."""

from __future__ import annotations

import numpy as np
import pytest

import tiny
from ir3de import Router, collect
from ir3de.corpora import examples
from ir3de.errors import InputError
from ir3de.scorers import Blend, Logistic, prompt_features, solver, sparse
from ir3de.scorers.logistic import LogisticParts
from ir3de.scorers.prompt_features import LONGEST, MIN_HALVED, SHORT, Features, Prompts
from ir3de.statistics import Statistics
from ir3de.statistics.domain import pair_buckets


def collect_tiny(number: int = 20, seed: int = 0) -> list[Statistics]:
    texts = tiny.domain_texts(number, seed=seed)
    return [collect(some, embedding=tiny.embedding(), keep_sample=True) for some in texts.values()]


def build_features(domains: list[Statistics], *, pairs: float = 1.0) -> Features:
    return LogisticParts(domains, tiny.embedding().rows).features(2.0, pairs)


def measure_loss(features: Features, W: np.ndarray, strength: float) -> float:
    Z = features.project(W).astype(np.float64)
    sizes = np.bincount(features.experts)
    weights = 1.0 / (sizes[features.experts] * len(sizes))
    per_prompt = np.log(np.exp(Z).sum(axis=1)) - Z[np.arange(len(Z)), features.experts]
    return float(weights @ per_prompt + strength / (2 * len(features)) * (W.astype(np.float64) ** 2).sum())


@pytest.mark.parametrize("pairs", [0.0, 1.0])
@pytest.mark.parametrize("number", [4, 40])  # fewer prompts than columns of the embedding, and more
def test_it_finds_the_minimum(number: int, pairs: float) -> None:
    features = build_features(collect_tiny(number), pairs=pairs)
    W = solver.fit_logistic(features, 3, 2.0, tolerance=1e-4)
    least, random = measure_loss(features, W, 2.0), np.random.default_rng(0)
    for _ in range(20):
        other = W + 0.01 * random.standard_normal(W.shape).astype(np.float32)
        assert measure_loss(features, other, 2.0) > least


def test_the_table_says_what_the_features_say() -> None:
    domains = collect_tiny()
    parts = LogisticParts(domains, tiny.embedding().rows)
    features, W = parts.features(2.0, 1.0), solver.fit_logistic(parts.features(2.0, 1.0), 3, 5.0)
    tokens, pairs = features.score_tokens(W, tiny.embedding().rows), features.score_pairs(W)
    Z = features.project(W)
    prompts = parts.prompts
    for row in range(0, len(prompts), 7):
        ids = prompts.ids[prompts.starts[row] :][: prompts.lengths[row]]
        assert pairs is not None
        total = tokens[ids].sum(axis=0) + pairs[pair_buckets(ids)].sum(axis=0)
        assert np.allclose(total / np.sqrt(len(ids)), Z[row], atol=1e-3)


def test_prompts_are_read_whole_in_halves_and_shortened() -> None:
    long = " ".join(["contract", "tenant"] * 12)
    sample = collect([long, "void"], embedding=tiny.embedding(), keep_sample=True).sample
    assert sample is not None
    prompts = Prompts.gather([sample])
    kept = int(sample.kept.max())
    assert MIN_HALVED < kept <= LONGEST
    assert sorted(prompts.lengths.tolist()) == sorted(
        [int(sample.kept.min()), kept, kept // 2, kept - kept // 2, SHORT]
    )
    place = int(sample.kept.argmax())
    whole, halves = sample.ids[sample.starts[place] :][:kept], [kept // 2, kept - kept // 2]
    first = np.flatnonzero((prompts.places == place) & (prompts.lengths == halves[0]))[0]
    assert np.array_equal(prompts.ids[prompts.starts[first] :][: halves[0]], whole[: halves[0]])


def test_where_there_is_no_room_parts_go_first_and_then_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [s.sample for s in collect_tiny(40) if s.sample is not None]
    whole = sum(int(sample.kept.sum()) for sample in samples)
    everything = Prompts.gather(samples)
    monkeypatch.setattr(prompt_features, "MAX_NUMBERS", (whole + 100) * len(samples))
    fewer_parts = Prompts.gather(samples)
    assert sum(map(len, samples)) < len(fewer_parts) < len(everything)
    monkeypatch.setattr(prompt_features, "MAX_NUMBERS", whole * len(samples) // 2)
    fewer_prompts = Prompts.gather(samples)
    assert 0 < fewer_prompts.lengths.sum() <= whole // 2
    assert set(fewer_prompts.experts.tolist()) == set(range(len(samples)))


def test_a_large_weight_of_the_closed_form_gives_the_closed_form() -> None:
    domains, rows = collect_tiny(), tiny.embedding().rows
    closed, near = Blend().scores(domains, rows), Logistic(closed=1e4).scores(domains, rows)
    assert np.array_equal(closed.argmax(axis=1), near.argmax(axis=1))
    alone, with_it = Logistic(closed=0.0).scores(domains, rows), Logistic(closed=1.0).scores(domains, rows)
    assert not np.allclose(alone, with_it)


@pytest.mark.nightly
@pytest.mark.skipif(sparse.native is None, reason="the native kernel is not built")
def test_both_engines_find_the_same_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {name: own[:60] for name, own in examples.prompts().items()}
    native = Router.fit(texts)
    again = Router.fit(texts)
    assert np.array_equal(native.compiled.table.scores, again.compiled.table.scores)
    monkeypatch.setattr(sparse, "native", None)
    alone = Router.fit(texts)
    assert native.scorer == alone.scorer and isinstance(alone.scorer, Logistic)
    scores = native.compiled.table.scores
    assert np.allclose(scores, alone.compiled.table.scores, atol=1e-3 * float(np.abs(scores).max()))


def test_it_knows_the_order_of_words() -> None:
    words = ["red", "green", "blue"]
    texts = {
        "up": [f"say {a} then {b}" for a in words for b in words if a < b] * 4,
        "down": [f"say {b} then {a}" for a in words for b in words if a < b] * 4,
    }
    router = Router.fit(texts, scorer=Logistic(strength=0.1, closed=0.0))
    assert all(router.route(text).expert == name for name, some in texts.items() for text in some)


def test_prompts_that_experts_share_do_no_harm() -> None:
    same = tiny.sentences("law", 8)
    router = Router.fit({"one": same, "other": list(same)}, embedding=tiny.embedding(), scorer=Logistic())
    assert np.allclose(router.compiled.table.scores[:, 0], router.compiled.table.scores[:, 1], atol=1e-4)


def test_parameters_follow_the_number_of_prompts() -> None:
    few, some, many = (Logistic.for_prompts(collect_tiny(number)) for number in (4, 40, 400))
    assert few.strength > some.strength > many.strength and few.means > some.means > many.means
    assert few.closed < some.closed < many.closed


def test_without_kept_prompts_it_is_refused() -> None:
    domains = [domain.without_sample() for domain in collect_tiny()]
    with pytest.raises(InputError, match="3 of 3 experts have none: give texts, collect with keep_sample=True"):
        Logistic().scores(domains, tiny.embedding().rows)


@pytest.mark.parametrize("wrong", [{"strength": 0.0}, {"means": -1.0}, {"closed": float("nan")}, {"pairs": "much"}])
def test_wrong_parameters_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="must be a"):
        Logistic(**wrong)


def test_a_fit_without_a_minimum_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "MAX_STEPS", 1)
    with pytest.raises(solver.ConvergenceError, match="did not converge in 1 steps with strength 5: use a larger"):
        Logistic().scores(collect_tiny(), tiny.embedding().rows)


@pytest.mark.parametrize("prompts", [200, 400])
def test_the_preconditioner_is_the_inverse_also_where_prompts_are_alike(prompts: int) -> None:
    """Long prompts of one expert are nearly the same: the matrix is close to singular but for λ."""
    rng, width, penalty = np.random.default_rng(0), 300, 0.005
    rows = (rng.normal(size=(8, width))[np.arange(prompts) % 8] + 0.01 * rng.normal(size=(prompts, width))) / 4
    q = rows.T @ rng.normal(size=(prompts, 3))
    rows, q = rows.astype(np.float32), q.astype(np.float32)
    M = rows.astype(np.float64).T @ rows.astype(np.float64) + penalty * np.eye(width)
    wanted = np.linalg.solve(M, q.astype(np.float64))
    found = solver.DenseInverse.build(rows, penalty).multiply(q)
    assert np.abs(found - wanted).max() <= 0.02 * np.abs(wanted).max()
