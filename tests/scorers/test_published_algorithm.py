"""The presets against the published algorithm, transcribed literally: token by token, no counting, no table.

The transcription takes token ids and embedding rows and knows nothing of ir3de. Where its own numbers are equal up to
rounding, two correct programs may differ; it then answers `None`, and the tests see to it that this stays rare.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de import AllTokens, Average, EntropyTopK, Router, TokenRidge
from ir3de.embedding import Matrix
from ir3de.routing.compiled import CompiledRouter, decide
from ir3de.routing.rules import DecisionRules
from ir3de.scorers.table import Table
from ir3de.statistics.counting import collect

Prompt = Sequence[int]
KS = (1, 2, 5, 10, 50)
ROUNDING = 1e-11  # of float64 sums taken in another order
TABLE_ROUNDING = 1e-6  # of scores and probabilities kept in float32 or fixed point


# the transcription ----------------------------------------------------------------------------------------------


@dataclass
class Published:
    """The algorithm as printed, or with what the authors' code does besides."""

    embedding: np.ndarray  # (V, h)
    W: np.ndarray  # (h, C), or (h + 1, C) with the bias last
    bias: bool
    log_offset: float
    ties: str  # "order", or "probability" before the order

    def scores(self, token: int) -> list[float]:
        x = [float(value) for value in self.embedding[token]] + [1.0] * self.bias
        return [sum(x[i] * self.W[i, c] for i in range(len(x))) for c in range(self.W.shape[1])]

    def softmax(self, token: int) -> list[float]:
        powers = [math.exp(score) for score in self.scores(token)]
        return [power / sum(powers) for power in powers]

    def entropy(self, s: Sequence[float]) -> float:
        return -sum(p * math.log(p + self.log_offset) for p in s)

    def top_k(self, prompt: Prompt, k: int) -> int | None:
        """The min(k, T) tokens of smallest entropy vote; equal entropies in the order of the token ids."""
        s = {token: self.softmax(token) for token in set(prompt)}
        e = {token: self.entropy(s[token]) for token in s}
        order = sorted(prompt, key=lambda token: (e[token], token))
        kept, left = order[:k], order[k:]
        if left and kept[-1] != left[0] and 0 < abs(e[kept[-1]] - e[left[0]]) < ROUNDING:
            return None
        return self.majority([s[token] for token in kept])

    def all_tokens(self, prompt: Prompt) -> int | None:
        return self.majority([self.softmax(token) for token in prompt])

    def average(self, prompt: Prompt) -> int | None:
        """argmax of the softmax of the mean embedding's scores."""
        x = np.zeros(self.W.shape[0])
        for token in prompt:
            x[: self.embedding.shape[1]] += self.embedding[token].astype(np.float64)
            x[self.embedding.shape[1] :] += 1.0
        scores = (x / len(prompt)) @ self.W
        return clear_winner(list(scores), TABLE_ROUNDING * max(1.0, float(np.abs(self.W).sum(axis=0).max())))

    def majority(self, s: Sequence[Sequence[float]]) -> int | None:
        votes = [0] * self.W.shape[1]
        for row in s:
            winner = clear_winner(row, ROUNDING)
            if winner is None:
                return None
            votes[winner] += 1
        tied = [c for c, count in enumerate(votes) if count == max(votes)]
        if len(tied) == 1 or self.ties == "order":
            return tied[0]
        summed = [sum(row[c] for row in s) for c in tied]
        best = clear_winner(summed, TABLE_ROUNDING * len(s) + 2**-19 * len(s))
        return None if best is None else tied[best]


def clear_winner(values: Sequence[float], rounding: float) -> int | None:
    """The index of the largest value, the lowest of equal ones; None when another is as large but for rounding."""
    best = max(range(len(values)), key=lambda c: (values[c], -c))
    return None if any(0 < values[best] - value < rounding for value in values) else best


def published_weights(
    E: np.ndarray, datasets: Sequence[Sequence[Prompt]], *, strength: float, bias: bool, unit_columns: bool, batch: int
) -> np.ndarray:
    """A and B collected batch by batch and token by token; W = (A + λI)⁻¹B."""
    h, C = E.shape[1] + bias, len(datasets)
    stream = [(token, d) for d, dataset in enumerate(datasets) for prompt in dataset for token in prompt]
    A, B = np.zeros((h, h)), np.zeros((h, C))
    for j in range(0, len(stream), batch):
        A_j, B_j = np.zeros((h, h)), np.zeros((h, C))
        for token, d in stream[j : j + batch]:
            x = np.append(E[token].astype(np.float64), [1.0] * bias)
            y = np.array([1.0 if c == d else 0.0 for c in range(C)])
            A_j += np.outer(x, x)
            B_j += np.outer(x, y)
        A += A_j
        B += B_j
    W = np.linalg.inv(A + strength * np.eye(h)) @ B
    if unit_columns:
        for c in range(C):
            W[:, c] /= math.sqrt(sum(W[i, c] ** 2 for i in range(E.shape[1])))
    return W


def as_printed(E: np.ndarray, datasets: Sequence[Sequence[Prompt]], batch: int = 64) -> Published:
    W = published_weights(E, datasets, strength=1e-2, bias=False, unit_columns=False, batch=batch)
    return Published(E, W, bias=False, log_offset=0.0, ties="probability")


def as_the_authors_do(E: np.ndarray, datasets: Sequence[Sequence[Prompt]], batch: int = 64) -> Published:
    W = published_weights(E, datasets, strength=1e-2, bias=True, unit_columns=True, batch=batch)
    return Published(E, W, bias=True, log_offset=1e-10, ties="order")


FORMS: dict[str, tuple[Callable[..., Published], TokenRidge, Callable[[int], EntropyTopK], AllTokens]] = {
    "as printed": (as_printed, TokenRidge.paper(), EntropyTopK, AllTokens()),
    "the authors'": (
        as_the_authors_do,
        TokenRidge.authors(),
        EntropyTopK.authors,
        AllTokens(ties="order", log_offset=1e-10),
    ),
}
form = pytest.mark.parametrize("form", FORMS)


# the laws -------------------------------------------------------------------------------------------------------


def token_ids(texts: Sequence[str]) -> list[list[int]]:
    return [tiny.embedding().encode(text).tolist() for text in texts]


def assert_same_decisions(router: Router, published: Callable[[Prompt], int | None], texts: Sequence[str]) -> None:
    unclear = 0
    for text, prompt in zip(texts, token_ids(texts), strict=True):
        expected = published(prompt)
        unclear += expected is None
        if expected is not None:
            assert router.route(text).expert == router.experts[expected], text
    assert unclear <= len(texts) // 20


@form
@tiny.LAW
@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(1, 12), min_size=1, max_size=3), batch=st.integers(1, 99))
def test_scores_are_those_of_the_published_weights(form: str, seed: int, sizes: list[int], batch: int) -> None:
    transcription, scorer, _, _ = FORMS[form]
    texts = [tiny.sentences(name, size, seed=seed) for name, size in zip(tiny.DOMAINS, sizes, strict=False)]
    E = tiny.random_matrix(330, seed=seed).values
    published = transcription(E, [token_ids(own) for own in texts], batch)
    expected = np.array([published.scores(token) for token in range(len(E))])

    found = scorer.scores([collect(own, embedding=tiny.embedding()) for own in texts], E)

    assert found.shape == (330, len(texts))
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


@form
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))])
def test_every_decision_is_the_published_one(form: str, seed: int) -> None:
    transcription, scorer, top_k, all_tokens = FORMS[form]
    domains = tiny.domain_texts(15, seed=seed)
    embedding = tiny.with_matrix(tiny.random_matrix(330, seed=seed))
    published = transcription(embedding.matrix, [token_ids(texts) for texts in domains.values()])
    prompts = [*tiny.mixed(60, seed=seed), *tiny.mixed(30, seed=seed + 100, longest=3)]
    statistics = {name: collect(texts, embedding=embedding) for name, texts in domains.items()}

    def fitted(selector: EntropyTopK | AllTokens | Average) -> Router:
        return Router.fit(statistics, embedding=embedding, scorer=scorer, selector=selector)

    for k in KS:
        assert_same_decisions(fitted(top_k(k)), lambda prompt, k=k: published.top_k(prompt, k), prompts)
    assert_same_decisions(fitted(all_tokens), published.all_tokens, prompts)
    assert_same_decisions(fitted(Average()), published.average, prompts)


def test_the_two_forms_are_not_the_same() -> None:
    """Or the tests above would not tell them apart."""
    domains = [token_ids(texts) for texts in tiny.domain_texts(15).values()]
    printed, authors = (f(tiny.embedding().matrix, domains) for f in (as_printed, as_the_authors_do))
    assert any(printed.top_k(prompt, 5) != authors.top_k(prompt, 5) for prompt in token_ids(tiny.mixed(60)))


def test_equal_entropies_count_in_the_order_of_the_token_ids() -> None:
    """Rows of zeros score nothing for anyone: the surest of them are those with the lowest ids."""
    values = tiny.random_matrix(330).values.copy()
    prompt = "prove the theorem of the contract"
    ids = sorted(set(token_ids([prompt])[0]))
    values[ids] = 0.0
    silent = tiny.with_matrix(Matrix.plain(values))
    router = tiny.router(of=silent, scorer=TokenRidge.paper(), selector=EntropyTopK(3))

    counted = [token.id for token in router.explain(prompt).tokens if token.counted]

    assert {float(router.compiled.table.entropy[token]) for token in ids} == {np.float32(math.log(3))}
    assert sorted(counted) == sorted(token_ids([prompt])[0])[:3]


def test_tied_votes_go_to_the_larger_summed_probability_or_to_the_lowest_index() -> None:
    """One vote each: the second expert's is the surer one, so only the authors' rule prefers the first."""
    table = Table.compile(np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]]))
    for selector, prompt, winner in [
        (EntropyTopK(10), [0, 1], "b"),
        (EntropyTopK(10), [0, 2], "a"),
        (EntropyTopK.authors(10), [0, 1], "a"),
        (EntropyTopK.authors(10), [2, 1], "b"),
        (AllTokens(), [0, 1], "b"),
        (AllTokens(ties="order"), [0, 1], "a"),
    ]:
        compiled = CompiledRouter.build(DecisionRules(tuple("abc"), selector), table)
        assert decide(compiled, np.array(prompt, np.uint32), None).expert == winner


def test_the_prompt_is_cut_at_1024_tokens() -> None:
    published = as_printed(tiny.embedding().matrix, [token_ids(texts) for texts in tiny.domain_texts(15).values()])
    router = tiny.router(15, scorer=TokenRidge.paper(), selector=AllTokens())
    prompts = [" ".join(tiny.mixed(120, seed=seed)) for seed in range(4)]
    assert all(len(prompt) > 2_000 for prompt in token_ids(prompts))
    assert_same_decisions(router, lambda prompt: published.all_tokens(prompt[:1024]), prompts)
