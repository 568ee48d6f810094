"""Ridge regression of domains on embeddings, token by token or prompt by prompt, in closed form."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import ref

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.scorers.arithmetic import current, stage
from ir3de.scorers.registry import Embeddings, Floats, check_strength
from ir3de.statistics.compact import Integers, pack_triangle, triangle_size, unpack_triangle
from ir3de.statistics.defaults import PROMPT_STRENGTH
from ir3de.statistics.domain import PromptSums, Statistics

MIN_REMEMBERED_WIDTH = 1_024  # of the embedding: for narrower ones the product is cheap
GRAM_BLOCK = 1 << 14  # entries added at a time: they stay in the cache,
GRAMS_AT_ONCE = 16  # of so many domains
KEPT_BYTES = 1 << 29  # of all domains' Gram matrices: larger ones are computed again when they are needed
MIN_DIVIDED, PARTS = 64, 16  # domains that are added up in parts, and how many parts
PART, PARTS_KEPT = "_part", 2  # where the sums of a part are kept, and how many: of a fit, and of its fold
GRAM, WHOLE = "gram", "whole"  # keys of `Statistics.derived`


@dataclass(frozen=True)
class TokenRidge:
    """Ridge regression of one-hot domains on token embeddings: W = (A + λI)⁻¹B, S = Ẽ W.

    `strength` is λ. `bias` appends a constant column to E (regularised with the rest). `balanced` gives every
    domain the same weight whatever its size; λ is then per domain. `unit_columns` divides each column of W by
    the norm of its part without the bias.

    >>> TokenRidge.paper()
    TokenRidge(strength=0.01, bias=False, balanced=False, unit_columns=False)
    >>> TokenRidge.authors()
    TokenRidge(strength=0.01, bias=True, balanced=False, unit_columns=True)
    """

    strength: float = 1e-2
    bias: bool = True
    balanced: bool = True
    unit_columns: bool = False

    def __post_init__(self) -> None:
        check_strength(self.strength)

    @classmethod
    def paper(cls) -> TokenRidge:
        """The formula as printed in the paper: no bias, no normalisation."""
        return cls(bias=False, balanced=False)

    @classmethod
    def authors(cls) -> TokenRidge:
        """The formula in the authors' published code: with a bias, and columns of unit norm."""
        return cls(bias=True, balanced=False, unit_columns=True)

    def scores(self, domains: Sequence[Statistics], embeddings: Embeddings) -> Floats:
        return current().apply(self.weights(domains, embeddings), embeddings)

    def weights(self, domains: Sequence[Statistics], embeddings: Embeddings) -> Floats:
        """W: (h, C), with a bias (h + 1, C)."""
        weights = [1.0 / max(1, domain.tokens) if self.balanced else 1.0 for domain in domains]
        penalty = self.strength * (sum(weights) if self.balanced else 1.0)
        W = current().solve(*self.system(domains, weights, embeddings), penalty)
        if self.unit_columns:
            norms = np.linalg.norm(W[: embeddings.shape[1]], axis=0)
            W = W / np.where(norms > 0, norms, 1.0)
        return W

    def needs_grams(self, domains: Sequence[Statistics]) -> bool:
        return True

    def system(
        self, domains: Sequence[Statistics], weights: Sequence[float], embeddings: Embeddings
    ) -> tuple[Floats, Floats]:
        """A = Ẽᵀ diag(Σ w_c n_c) Ẽ and B_c = w_c Ẽᵀ n_c: in one product, or from the Gram matrices if E is wide."""
        width = embeddings.shape[1] + self.bias
        if remembers_grams(embeddings.shape[1]):
            A, B = ridge_system(domains, weights, embeddings)
            return A[:width, :width], B[:width]
        counts = np.stack([w * domain.histogram for w, domain in zip(weights, domains, strict=True)], axis=1)
        G = current().product(embeddings, counts, bias=self.bias)
        return G[:width, :width], G[:width, width:]


@dataclass(frozen=True)
class PromptRidge:
    """Ridge regression of one-hot domains on the mean embedding of each prompt.

    A = Σ_c w_c Σ x̃x̃ᵀ and B_c = w_c Σ x̃ with x̃ = [x̄, 1] and w_c = 1 / windows(c), so that large domains have no
    advantage. A prompt's score is the mean of its tokens' rows of S = Ẽ W, so it compiles to the same table.

    `strength` counts windows. It acts like that many more windows per domain, of average size and in all directions.
    So it limits a domain of thirty prompts, but hardly one of thousands.
    """

    strength: float = PROMPT_STRENGTH

    def __post_init__(self) -> None:
        check_strength(self.strength)

    def scores(self, domains: Sequence[Statistics], embeddings: Embeddings) -> Floats:
        return current().apply(self.weights(domains), embeddings)

    def weights(self, domains: Sequence[Statistics]) -> Floats:
        """W: (h + 1, C)."""
        sums = require_prompt_sums(domains)
        w = 1.0 / np.array([own.windows for own in sums], np.float64)
        gram = unpack_triangle(add_grams(sums, w[None])[0], sums[0].width)
        vectors = np.stack([own.unit * own.vector for own in sums], axis=1)
        return self.solve(gram, vectors * w, w)

    def solve(self, gram: Floats, vectors: Floats, weights: Floats) -> Floats:
        """W from Σ_c w_c Σ x̄x̄ᵀ (h, h), the columns w_c Σ x̄ (h, C), and w (C,)."""
        h, C = vectors.shape
        A, B = np.empty((h + 1, h + 1)), np.ones((h + 1, C))
        A[:h, :h], B[:h] = gram, vectors
        A[:h, h] = A[h, :h] = vectors.sum(axis=1)
        A[h, h] = C
        energy = np.trace(gram) / (h * C)  # mean square of an entry of x̄
        penalty = self.strength * float(weights.sum()) * (float(energy) or 1.0)
        return current().solve(A, B, penalty)


def require_prompt_sums(domains: Sequence[Statistics]) -> list[PromptSums]:
    """Each domain's prompt sums. Raises an error for a domain without a window."""
    found = [domain.sums for domain in domains if domain.sums is not None and domain.sums.windows]
    if len(found) < len(domains):
        raise InputError(
            "prompt ridge needs prompt sums, and a domain has none: collect at least one text with "
            "prompt_sums=True (on the command line without --histogram-only) and a smaller subsample, or use "
            "TokenRidge (--scorer token-ridge)"
        )
    return found


@dataclass(frozen=True, eq=False)
class HeldWindows:
    """Windows of held-out prompts, whose products are subtracted from the sums of all windows."""

    rows: Floats  # (k, h)  √w_c x̄, expert after expert
    experts: npt.NDArray[np.int64]  # (k,)
    hashes: npt.NDArray[np.integer]  # (k,)  of their prompts, by which windows are recognised

    def select(self, chosen: npt.NDArray[np.intp]) -> HeldWindows:
        """Those of some experts."""
        some = np.isin(self.experts, chosen)
        return HeldWindows(self.rows[some], np.searchsorted(chosen, self.experts[some]), self.hashes[some])

    @property
    def name(self) -> bytes:
        return self.experts.tobytes() + self.hashes.tobytes()

    def sum_products(self) -> Floats:
        """Σ w_c x̄x̄ᵀ, as an upper triangle."""
        return pack_triangle(self.rows.T @ self.rows)


def keep_gram(sums: PromptSums, domains: int) -> None:
    """Keep a Gram matrix as it is, if those of so many domains take little memory: then it is computed once."""
    if 8 * triangle_size(sums.width) * domains <= KEPT_BYTES:
        sums.keep_whole("gram")


def add_grams(sums: Sequence[PromptSums], weights: Floats, held: Sequence[HeldWindows] = ()) -> Floats:
    """Σ_c w_c Σ x̄x̄ᵀ for each row of `weights` (k, C), as upper triangles: (k, h(h+1)/2).

    With `held`, each row is without those windows. Many domains are added up in parts, and the sums of the parts are
    kept. A change then adds up one part again.
    """
    size = triangle_size(sums[0].width)
    for own in sums:
        keep_gram(own, len(sums))
    if len(sums) < MIN_DIVIDED or 2 * PARTS * 8 * size > KEPT_BYTES:
        return _add_part(sums, weights, held)
    total = np.zeros((len(weights), size))
    # which part a domain is in depends on its content alone, so that the others stay as they are
    parts = np.array([zlib.crc32(own.vector.astype("<i8").tobytes()) % PARTS for own in sums])
    for part in np.unique(parts).tolist():
        chosen = np.flatnonzero(parts == part)
        own_held = [one.select(chosen) for one in held]
        summed = _recall_part([sums[c] for c in chosen.tolist()], weights[:, chosen], own_held)
        for row, more in zip(total, summed, strict=True):
            row += more
    return total


def _recall_part(sums: Sequence[PromptSums], weights: Floats, held: Sequence[HeldWindows]) -> list[Floats]:
    """The sums of a part, kept with its first domain: those of the last `PARTS_KEPT` rows of weights."""
    kept = vars(sums[0]).get(PART)
    if kept is None or len(kept[0]) != len(sums) or any(a() is not b for a, b in zip(kept[0], sums, strict=True)):
        kept = vars(sums[0])[PART] = ([ref(own) for own in sums], {})
    known: dict[bytes, Floats] = kept[1]
    names = [row.tobytes() + (held[place].name if held else b"") for place, row in enumerate(weights)]
    missing = [place for place, name in enumerate(names) if name not in known]
    if missing:
        found = _add_part(sums, weights[missing], [held[place] for place in missing] if held else ())
        known.update((names[place], row) for place, row in zip(missing, found, strict=True))
    rows = [known[name] for name in names]
    for name in [name for name in known if name not in names][: max(0, len(known) - PARTS_KEPT)]:
        del known[name]
    return rows


def _add_part(sums: Sequence[PromptSums], weights: Floats, held: Sequence[HeldWindows]) -> Floats:
    """Add a block of entries at a time, each in the order of the domains."""
    size = triangle_size(sums[0].width)
    total, scaled = np.zeros((len(weights), size)), np.empty(GRAM_BLOCK)
    for first in range(0, len(sums), GRAMS_AT_ONCE):
        some = sums[first : first + GRAMS_AT_ONCE]
        grams = [own.gram for own in some]
        scales = weights[:, first : first + len(some)] * np.array([own.unit**2 for own in some])
        for begin in range(0, size, GRAM_BLOCK):
            block = slice(begin, begin + GRAM_BLOCK)
            for gram, factors in zip(grams, scales.T.tolist(), strict=True):
                part = gram[block]
                for row, factor in zip(total, factors, strict=True):
                    row[block] += np.multiply(part, factor, out=scaled[: len(part)])
    for row, gone in zip(total, held, strict=False):
        row -= gone.sum_products()
    return total


@dataclass(frozen=True, eq=False)
class Gram:
    """The upper triangle of G_c = Ẽᵀ diag(n_c) Ẽ, row by row, and the arithmetic that made it.

    It is cached, so that a change computes only what changed. G_c depends only on the expert's counts, and
    A = Σ_c w_c G_c is added up in the experts' order. So a change gives the bits of a fresh fit.
    """

    packed: Floats  # ((h+1)(h+2)/2,)
    made_by: str


def remembers_grams(width: int) -> bool:
    """Whether Gram matrices of an embedding of this width are kept."""
    return width >= MIN_REMEMBERED_WIDTH


def needs_remembered_grams(scorer: object, domains: Sequence[Statistics], width: int) -> bool:
    """Whether a fit leaves Gram matrices that are worth keeping. This depends on the fit, never on earlier ones."""
    needs = getattr(scorer, "needs_grams", None)  # of scorers that are fitted from Gram matrices
    return remembers_grams(width) and needs is not None and bool(needs(domains))


def remember(domain: Statistics, gram: Gram | Callable[[], Gram | None]) -> None:
    """Give a domain its Gram matrix, or a function that loads it at first use."""
    domain.derived[GRAM] = gram


def recall(domain: Statistics) -> Gram | None:
    """The Gram matrix of these counts, if it is cached."""
    found = domain.derived.get(GRAM)
    if callable(found):
        found = domain.derived[GRAM] = found()
    assert found is None or isinstance(found, Gram)
    return found


def mark_part(rest: Statistics, whole: Statistics) -> Statistics:
    """Mark a domain as `whole` minus held-out prompts: its Gram matrix is then computed by subtraction."""
    if rest.derived is not whole.derived:
        rest.derived[WHOLE] = whole
    return rest


def is_part(domain: Statistics) -> bool:
    """Whether a domain is marked as part of a whole. Both must then have rows for the same tokens."""
    return WHOLE in domain.derived


def ridge_system(
    domains: Sequence[Statistics], weights: Sequence[float], embeddings: Embeddings
) -> tuple[Floats, Floats]:
    """A = Σ_c w_c G_c and B with the columns w_c Ẽᵀ n_c, Ẽ = [E, 1]."""
    width = embeddings.shape[1] + 1
    total, B = np.zeros(triangle_size(width)), np.empty((width, len(domains)))
    ends = np.cumsum(np.arange(width, 0, -1)) - 1  # the last entry of each row of the triangle: the column of ones
    with stage("product", sum(_count_rows(domain, width) for domain in domains)):
        for c, (weight, domain) in enumerate(zip(weights, domains, strict=True)):
            G = _gram(domain, embeddings)
            B[:, c] = weight * G[ends]
            total += weight * G
    return unpack_triangle(total, width), B


def _gram(domain: Statistics, embeddings: Embeddings) -> Floats:
    whole: Statistics | None = domain.derived.get(WHOLE)
    if whole is not None:  # not cached: there is one for every fold
        return _gram(whole, embeddings) - _product(whole.histogram - domain.histogram, embeddings)
    if (found := _recall_usable(domain, embeddings.shape[1] + 1)) is None:
        found = Gram(_product(domain.histogram, embeddings), current().name)
        found.packed.flags.writeable = False
        remember(domain, found)
    return found.packed


def _recall_usable(domain: Statistics, width: int) -> Gram | None:
    """The cached Gram matrix, unless another arithmetic made it: its last bits may differ."""
    found = recall(domain)
    fits = found is not None and found.made_by == current().name and found.packed.shape == (triangle_size(width),)
    return found if fits else None


def _product(counts: Integers, embeddings: Embeddings) -> Floats:
    return pack_triangle(current().product(embeddings, counts[:, None].astype(np.float64), targets=False))


def _count_rows(domain: Statistics, width: int) -> int:
    whole: Statistics | None = domain.derived.get(WHOLE)
    if whole is not None:
        return _count_rows(whole, width) + int(np.count_nonzero(whole.histogram - domain.histogram))
    return 0 if _recall_usable(domain, width) is not None else int(np.count_nonzero(domain.histogram))
