"""What tests of laws have in common: texts drawn at random, and the router's arithmetic done by hand."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

import tiny
from ir3de import AllTokens, Average, EntropyTopK, PromptRidge, Statistics, TokenRidge, collect
from ir3de.embedding import Embedding
from ir3de.routing.decision import Decision
from ir3de.scorers import Blend, CrossEntropy, KernelRidge, Posterior
from ir3de.statistics.domain import BUCKETS, PromptSums

SCORERS = [
    TokenRidge.paper(),
    TokenRidge.authors(),
    TokenRidge(),
    TokenRidge(strength=3.0, bias=False),
    TokenRidge(strength=0.5, balanced=False),
    PromptRidge(),
    PromptRidge(strength=0.25),
]
SELECTORS = [
    EntropyTopK(1),
    EntropyTopK(3),
    EntropyTopK(10),
    EntropyTopK.authors(4),
    AllTokens(),
    AllTokens(ties="order"),
    Average(),
]
EVERY_SCORER = [
    *SCORERS,
    Posterior(),
    Posterior(0.2, sharpness=30.0),
    Blend(),
    Blend(0.5, 0.5, few=0.0),
    CrossEntropy(),
    CrossEntropy(9.0, bias=False),
    KernelRidge(landmarks=40),
]
scorers, selectors, every_scorer = map(st.sampled_from, (SCORERS, SELECTORS, EVERY_SCORER))

WORDS = [*tiny.COMMON, *(word for own in tiny.DOMAINS.values() for word in own)]
words = st.sampled_from(WORDS)
# drawn as a text with one letter for each word: one choice of hypothesis, and not one for each word
wordy = st.text([chr(0x4E00 + place) for place in range(len(WORDS))], min_size=1, max_size=25).map(
    lambda letters: " ".join(WORDS[ord(letter) - 0x4E00] for letter in letters)
)
texts = st.lists(wordy | st.text(max_size=20), max_size=12)
some_texts = st.lists(wordy, min_size=1, max_size=8)
domains = st.tuples(some_texts, some_texts, some_texts).map(lambda three: dict(zip("xyz", three, strict=True)))
seeds = st.integers(0, 2**32)

STRANGE = ["", " ", "\n", "the", "zzz", "zzz qqq", "the zzz", "字 🙂", "\x00", "\ud800 a", "\U000e01f0", "\u0378 prove"]


def counted(some: Sequence[str], **options: int) -> Statistics:
    return collect(some, embedding=tiny.embedding(), **options)


def shown(decision: Decision) -> tuple[object, ...]:
    """All of a decision, nothing rounded."""
    said = (decision.expert, decision.best, decision.ranking, decision.tokens, decision.counted)
    return (*said, decision.reason, decision.familiarity, decision.in_domain, decision.out_of_domain)


def integer_sums(
    embedding: Embedding, prompts: Sequence[Sequence[int]], window: int, hashes: Sequence[int] = (), sample: int = 1
) -> PromptSums:
    """The prompt sums in Python integers: each prompt cut into windows, each window's mean rounded half to even."""
    h, unit, weight = embedding.width, embedding.stored.unit, sample
    cut = [[max(-2048, min(2048, round(float(value) / unit))) for value in row] for row in embedding.matrix]
    windows, vector, gram = 0, [0] * h, [[0] * h for _ in range(h)]
    for ids, content in zip(prompts, hashes or [0] * len(prompts), strict=True):
        T = len(ids)
        m = max(1, (2 * T + window) // (2 * window)) if T else 0  # round half up
        for i in range(m):
            if (content + i) % sample and sample > 1:
                continue
            part = ids[i * T // m : (i + 1) * T // m]
            mean = [round_half_even(256 * sum(cut[token][j] for token in part), len(part)) for j in range(h)]
            windows += weight
            for j in range(h):
                vector[j] += weight * mean[j]
                for k in range(j, h):
                    gram[j][k] += weight * mean[j] * mean[k]
    triangle = [gram[j][k] for j in range(h) for k in range(j, h)]
    return PromptSums(
        window, unit / 256, windows, np.array(vector, np.int64), np.array(triangle, np.int64), integer_pairs(prompts)
    )


def integer_pairs(prompts: Sequence[Sequence[int]]) -> np.ndarray:
    """How often each bucket of neighbours occurs, hashed in Python integers of 32 bits."""
    counts = np.zeros(BUCKETS, np.int64)
    for ids in prompts:
        for left, right in pairwise(ids):
            hashed = (left * 0x9E3779B1 + right * 0x85EBCA77) % 2**32
            hashed = (hashed ^ (hashed >> 15)) * 0x2C1B3C6D % 2**32
            counts[hashed >> 16] += 1
    return counts


def round_half_even(numerator: int, denominator: int) -> int:
    whole, rest = divmod(numerator, denominator)
    return whole + (2 * rest > denominator or (2 * rest == denominator and whole % 2 == 1))


def ids_of(some: Sequence[str], embedding: Embedding | None = None) -> list[list[int]]:
    return [(embedding or tiny.embedding()).encode(text).tolist() for text in some]


def ridge_by_loop(scorer: TokenRidge, E: np.ndarray, prompts: Sequence[Sequence[Sequence[int]]]) -> np.ndarray:
    """W token by token, each token weighed by its domain: (h [+ 1], C)."""
    h, C = E.shape[1] + scorer.bias, len(prompts)
    A, B, penalty = np.zeros((h, h)), np.zeros((h, C)), 0.0
    for c, domain in enumerate(prompts):
        w = 1.0 / sum(map(len, domain)) if scorer.balanced else 1.0
        penalty += scorer.strength * w if scorer.balanced else scorer.strength / C
        for ids in domain:
            for token in ids:
                x = np.append(E[token].astype(np.float64), [1.0] * scorer.bias)
                A += w * np.outer(x, x)
                B[:, c] += w * x
    W = np.linalg.inv(A + penalty * np.eye(h)) @ B
    return W / np.linalg.norm(W[: E.shape[1]], axis=0) if scorer.unit_columns else W


def ridge_on_windows(scorer: PromptRidge, sums: Sequence[PromptSums], h: int) -> np.ndarray:
    """W of the ridge on rows [x̄, 1], each domain's rows weighing one together: (h + 1, C)."""
    A, B = np.zeros((h + 1, h + 1)), np.zeros((h + 1, len(sums)))
    for c, own in enumerate(sums):
        upper = np.zeros((h, h))
        upper[np.triu_indices(h)] = own.gram.astype(float) * own.unit**2
        gram = upper + np.triu(upper, 1).T
        mean = own.vector * own.unit / own.windows
        A += np.block([[gram / own.windows, mean[:, None]], [mean[None, :], np.ones((1, 1))]])
        B[:, c] = np.append(mean, 1.0)
    energy = np.trace(A[:h, :h]) / (h * len(sums))
    penalty = scorer.strength * sum(1.0 / own.windows for own in sums) * energy
    return np.linalg.inv(A + penalty * np.eye(h + 1)) @ B


def weights(scorer: TokenRidge | PromptRidge, embedding: Embedding, texts_of: dict[str, list[str]]) -> np.ndarray:
    prompts = [ids_of(some, embedding) for some in texts_of.values()]
    if isinstance(scorer, TokenRidge):
        return ridge_by_loop(scorer, embedding.matrix, prompts)
    sums = [integer_sums(embedding, own, 128) for own in prompts]
    return ridge_on_windows(scorer, sums, embedding.width)


def matrix_scores(E: np.ndarray, W: np.ndarray) -> np.ndarray:
    extended = np.hstack([E.astype(np.float64), np.ones((len(E), len(W) - E.shape[1]))])
    return extended @ W
