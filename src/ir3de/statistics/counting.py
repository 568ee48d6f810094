"""Count texts in this process: tokenise them, count tokens, and sum windows exactly, on every core.

The corpus is read once, in chunks of a few megabytes, so memory does not grow with it. Each chunk becomes a
`Statistics` of its own, and these are added up. They are integers, so neither chunks nor threads change a bit.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de import kernel
from ir3de.embedding import Embedding
from ir3de.embedding.matrix import FixedPointRows
from ir3de.errors import InputError
from ir3de.files.atomic import count_cores
from ir3de.statistics.compact import WindowRows, freeze, triangle_indices, triangle_size
from ir3de.statistics.defaults import DEFAULT_WINDOW
from ir3de.statistics.domain import BUCKETS, PromptSums, Statistics, check_threshold, count_pairs
from ir3de.statistics.sample import Sample, hash_text
from ir3de.statistics.texts import hash_sources, read_text, refuse_table

CHUNK_CHARACTERS = 2_000_000
GRAM_WINDOWS = 1_024  # windows multiplied at a time
MEAN_PARTS = 256  # a mean is kept in units this much finer than those of the embedding
EXACT_TOKENS = 1 << 13  # float32 sums so many rows exactly, because each entry is at most 2¹¹

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Recipe:
    """How statistics are collected.

    - `window`: longer prompts enter the prompt sums as several windows of about this many tokens.
    - `subsample`: only 1 window in `subsample`, chosen by its prompt's content, enters the prompt sums, and counts
      `subsample` times there. The histogram always counts every token.
    - `cap`: tokens of a prompt beyond this many are ignored.
    - `clip`: at most this many occurrences of the same token are counted per prompt.
    - `min_count`: tokens that occur less often in the whole collection are left out.
    - `keep_sample`: keep a bounded sample of the prompts, as token ids.
    """

    window: int = DEFAULT_WINDOW
    subsample: int = 1
    cap: int | None = None
    prompt_sums: bool = True
    keep_sample: bool = False
    clip: int | None = None
    min_count: int = 1
    left_out: bytes = field(default=b"", repr=False)  # one bit per token: set if `count_without_rare_tokens` drops it

    def __post_init__(self) -> None:
        for name, value, limit in (("window", self.window, 8_192), ("subsample", self.subsample, 1 << 20)):
            if not isinstance(value, int) or not 1 <= value <= limit:
                raise InputError(f"{name} must be a whole number between 1 and {limit:,}, found {value!r}")
        for name, most in (("cap", self.cap), ("clip", self.clip)):
            if most is not None and (not isinstance(most, int) or most < 1):
                raise InputError(f"{name} must be a whole number, at least 1, or None for no {name}, found {most!r}")
        check_threshold(self.min_count)
        if self.min_count > 1 and self.keep_sample:
            raise InputError(
                f"min_count={self.min_count} leaves rare tokens out, but keep_sample keeps whole prompts with their "
                "rare tokens: leave one of them out"
            )

    @property
    def passes(self) -> int:
        """How often the texts are read: twice where rare tokens must be known before prompts are summed."""
        return 2 if self.min_count > 1 and self.prompt_sums else 1

    def to_dict(self) -> dict[str, Any]:
        """The settings that are written into a contribution's file."""
        return {name: getattr(self, name) for name in ("window", "subsample", "cap", "clip", "min_count")}


def collect(
    texts: Iterable[str | Mapping[str, Any]],
    *,
    embedding: Embedding | None = None,
    window: int = DEFAULT_WINDOW,
    subsample: int = 1,
    cap: int | None = None,
    prompt_sums: bool = True,
    keep_sample: bool = False,
    clip: int | None = None,
    min_count: int = 1,
) -> Statistics:
    """Count a domain's texts: one pass, constant memory, the same bits in any order.

    `subsample=16` makes a corpus of gigabytes several times faster: only 1 window in 16, chosen by a hash of its
    prompt, enters the prompt sums; every token still enters the histogram. `prompt_sums=False` leaves them out.
    `keep_sample=True` keeps up to 1,024 of the prompts, as token ids, for tuning and calibration: anyone who has the
    statistics can then read those prompts.

    A text may also be a row with its source: {"text": …, "source": "forum"}. The sample then holds a hash of the
    source's name. Counts and sums do not depend on sources.

    To share statistics with less detail: `clip=1` counts a token at most once per prompt, and `min_count=5` leaves out
    tokens that occur fewer than five times in all these texts. The latter reads the texts twice, unless only the
    histogram is counted.

    >>> import ir3de
    >>> ir3de.collect(["What is 2 + 2?", "Solve x² = 9."])
    Statistics(2 prompts, 16 tokens, 2 windows, embedding e11eb7e3cada)
    >>> ir3de.collect(["What is 2 + 2?", "Solve x² = 9."], clip=1, min_count=2)
    Statistics(2 prompts, 2 tokens, 2 windows, embedding e11eb7e3cada)
    """
    recipe = Recipe(window, subsample, cap, prompt_sums, keep_sample, clip, min_count)
    refuse_table(texts, "texts", "; ir3de.corpora.read_labelled(table, label=…) gives {expert: texts}")
    if isinstance(texts, (str, bytes, Mapping)) or not isinstance(texts, Iterable):
        raise InputError(f"texts must be an iterable of str, found one {type(texts).__name__}: put texts in a list")
    if recipe.passes > 1 and isinstance(texts, Iterator):
        raise InputError(
            f"min_count={min_count} reads the texts twice, but a {type(texts).__name__} can be read only once: put the "
            "texts in a list, or count the histogram alone with prompt_sums=False"
        )
    embedding = embedding or Embedding.default()
    return count_without_rare_tokens(lambda recipe: count_chunks(split_chunks(texts), embedding, recipe), recipe)


def count_without_rare_tokens(count_all: Callable[[Recipe], Statistics], recipe: Recipe) -> Statistics:
    """Count all texts with `count_all`, then leave out the tokens that occur fewer than `min_count` times.

    Which tokens are rare depends on all texts together. A token cannot be taken out of prompt sums afterwards. So with
    prompt sums there are two passes: the first counts the histogram, the second everything except the rare tokens.
    """
    if recipe.passes == 1:
        return count_all(replace(recipe, min_count=1)).at_least(recipe.min_count)
    wanted = count_all(replace(recipe, min_count=1, prompt_sums=False)).at_least(recipe.min_count)
    second = count_all(replace(recipe, min_count=1, left_out=np.packbits(wanted.histogram == 0).tobytes()))
    if second.histogram_only() != wanted:
        raise InputError("the texts changed between the two passes that min_count takes: collect them again")
    assert second.sums is not None
    return replace(second, sums=second.sums.pairs_at_least(recipe.min_count))


def count_chunks(chunks: Iterable[Sequence[str]], embedding: Embedding, recipe: Recipe) -> Statistics:
    """Add up the statistics of all chunks, one per core at a time. `recipe.min_count` is not applied here."""
    workers = count_cores()
    pending: deque[Future[Statistics]] = deque()
    total = count([], embedding, recipe)
    with ThreadPoolExecutor(workers, thread_name_prefix="ir3de-count") as pool:
        for chunk in chunks:
            if len(pending) > workers:  # read ahead no further than the cores can follow
                total += pending.popleft().result()
            pending.append(pool.submit(count, chunk, embedding, recipe))
        for future in pending:
            total += future.result()
    return total


def count(texts: Sequence[str], embedding: Embedding, recipe: Recipe) -> Statistics:
    """The statistics of texts that are all in memory."""
    flat, counted = embedding.tokenizer.encode_batch(texts)
    needs_hashes = recipe.subsample > 1 or recipe.keep_sample
    hashes = np.array([hash_text(text) if needs_hashes else 0 for text in texts], np.uint32)
    sources = hash_sources(texts) if recipe.keep_sample else None
    return _count_flat(flat, counted.astype(np.int64), hashes, sources, embedding, recipe)


def count_ids(prompts: Sequence[npt.NDArray[np.uint32]], embedding: Embedding, recipe: Recipe) -> Statistics:
    """The statistics of prompts whose token ids are known, in their order. Equal ids have equal hashes."""
    flat, lengths = _lay_out(prompts)
    hashes = np.array([zlib.crc32(ids.astype("<u4").tobytes()) for ids in prompts], np.uint32)
    return _count_flat(flat, lengths, hashes, None, embedding, recipe)


def count_unordered_ids(prompts: Sequence[npt.NDArray[np.uint32]], embedding: Embedding, window: int) -> Statistics:
    """The same where the order of the ids is not known: a prompt is one window, without pairs and without a sample."""
    flat, lengths = _lay_out(prompts)
    starts, some = np.cumsum(lengths) - lengths, lengths > 0
    none = np.zeros(BUCKETS, np.int64)
    sums = _sum_windows(flat, [(1, starts[some], lengths[some])], none, embedding, window)
    return _build(len(prompts), flat, sums, None, embedding)


def _lay_out(prompts: Sequence[npt.NDArray[np.uint32]]) -> tuple[npt.NDArray[np.uint32], Indices]:
    """The ids of all prompts end to end, and their lengths."""
    lengths = np.array([len(ids) for ids in prompts], np.int64)
    return np.concatenate([np.zeros(0, np.uint32), *prompts]).astype(np.uint32, copy=False), lengths


def _count_flat(
    flat: npt.NDArray[np.uint32],
    lengths: Indices,
    hashes: npt.NDArray[np.uint32],
    sources: npt.NDArray[np.uint32] | None,
    embedding: Embedding,
    recipe: Recipe,
) -> Statistics:
    prompts, starts = len(lengths), np.cumsum(lengths) - lengths
    if recipe.cap is not None:
        inside = np.arange(len(flat)) - np.repeat(starts, lengths) < recipe.cap
        flat, starts, lengths = _keep_tokens(inside, flat, lengths)
    if recipe.clip is not None:
        flat, starts, lengths = _keep_tokens(_find_first_occurrences(flat, lengths, recipe.clip), flat, lengths)
    if recipe.left_out:
        kept = np.unpackbits(np.frombuffer(recipe.left_out, np.uint8), count=embedding.vocabulary_size) == 0
        flat, starts, lengths = _keep_tokens(kept[flat], flat, lengths)
    sums = sample = None
    if recipe.keep_sample:
        sample = Sample.draw(hashes, flat, starts, lengths, recipe.subsample, sources)
    if recipe.prompt_sums:
        first, size, _ = draw_windows(hashes, starts, lengths, lengths, recipe.window, recipe.subsample)
        pairs = count_pairs(flat, starts, lengths)
        sums = _sum_windows(flat, [(recipe.subsample, first, size)], pairs, embedding, recipe.window)
    return _build(prompts, flat, sums, sample, embedding)


def recount(sample: Sample, embedding: Embedding, window: int, *, prompt_sums: bool = True) -> Statistics:
    """Count what the prompts of a sample contributed to their domain's statistics. Subtracting it leaves them out.

    If only the beginning of a long prompt was kept, only that is counted.
    """
    starts, sums = sample.starts, None
    if prompt_sums:
        groups = []
        for every in np.unique(sample.every).tolist():
            of = sample.every == every
            first, size, _ = draw_windows(
                sample.hashes[of], starts[of], sample.lengths[of], sample.kept[of], window, every
            )
            groups.append((every, first, size))
        sums = _sum_windows(sample.ids, groups, count_pairs(sample.ids, starts, sample.kept), embedding, window)
    return _build(len(sample), sample.ids, sums, sample, embedding)


def _build(
    prompts: int, ids: npt.NDArray[np.uint32], sums: PromptSums | None, sample: Sample | None, embedding: Embedding
) -> Statistics:
    histogram = freeze(np.bincount(ids, minlength=embedding.vocabulary_size).astype(np.int64, copy=False))
    return Statistics(embedding.fingerprint, prompts, histogram, sums, sample, embedding.default_version)


def split_windows(starts: Indices, lengths: Indices, window: int) -> tuple[Indices, Indices, Indices, Indices]:
    """Split prompts into windows: the first token and length of each window, its prompt, and its number there.

    A prompt of T tokens makes max(1, round(T / window)) windows. Their lengths differ by at most one.
    """
    parts = np.maximum(1, (2 * lengths + window) // (2 * window))
    prompt = np.repeat(np.arange(len(lengths)), parts)
    part = np.arange(len(prompt)) - np.repeat(np.cumsum(parts) - parts, parts)
    first = part * lengths[prompt] // parts[prompt]
    last = (part + 1) * lengths[prompt] // parts[prompt]
    return starts[prompt] + first, last - first, prompt, part


def draw_windows(
    hashes: npt.NDArray[np.uint32], starts: Indices, lengths: Indices, kept: Indices, window: int, every: int | Indices
) -> tuple[Indices, Indices, Indices]:
    """Choose the windows that enter the prompt sums: 1 in `every`, if it is kept whole.

    A window is given by its first token, its length and its prompt. The choice depends only on the prompt's text and
    the window's number.
    """
    nonempty = np.flatnonzero(lengths)
    first, size, prompt, part = split_windows(starts[nonempty], lengths[nonempty], window)
    prompt = nonempty[prompt]
    inside = first + size <= starts[prompt] + kept[prompt]
    times = every if isinstance(every, int) else every[prompt]
    drawn = inside & ((hashes[prompt].astype(np.int64) + part) % times == 0)
    return first[drawn], size[drawn], prompt[drawn]


def _sum_windows(
    flat: npt.NDArray[np.uint32],
    groups: Sequence[tuple[int, Indices, Indices]],
    pairs: Indices,
    embedding: Embedding,
    window: int,
) -> PromptSums:
    """Sum groups of windows. A group is (times, first tokens, lengths): each of its windows counts `times` times."""
    positions = flat.astype(np.intp)  # once, not at every lookup
    width, windows = embedding.width, 0
    vector, is_few = np.zeros(width, np.int64), WindowRows.fits(sum(len(first) for _, first, _ in groups), width)
    gram: Any = WindowRows.none(width) if is_few else np.zeros(triangle_size(width), np.int64)
    for times, first, size in groups:
        windows += times * len(first)
        for begin in range(0, len(first), GRAM_WINDOWS):
            block = slice(begin, begin + GRAM_WINDOWS)
            means = window_means(positions, first[block], size[block], embedding.stored.fixed_point)
            vector += times * means.sum(axis=0).astype(np.int64)
            if is_few:
                gram = gram + WindowRows(means.astype(np.int32), np.full(len(means), times))
            else:  # means are integers up to 2¹⁹: sums of 1,024 products stay below 2⁵³, so float64 BLAS is exact
                _add_triangle(means.T @ means, times, gram)
    gram = gram if is_few else freeze(gram)
    return PromptSums(window, embedding.stored.unit / MEAN_PARTS, windows, freeze(vector), gram, freeze(pairs))


def _add_triangle(square: npt.NDArray[np.float64], times: int, packed: Indices) -> None:
    if kernel.native is not None:
        kernel.native.add_triangle(square, times, packed)
    else:
        packed += times * square[triangle_indices(len(square))].astype(np.int64)


def window_means(
    flat: npt.NDArray[np.intp], first: Indices, size: Indices, fixed_point: npt.NDArray[np.float32] | FixedPointRows
) -> npt.NDArray[np.float64]:
    """x̄ of each window in 1/`MEAN_PARTS` of the fixed-point unit, rounded to integers: (windows, h)."""
    sums = sum_rows(flat, first, size, fixed_point)
    sums *= MEAN_PARTS
    sums /= size[:, None]
    return np.rint(sums, out=sums)


def sum_rows(
    flat: npt.NDArray[np.intp], first: Indices, size: Indices, fixed_point: npt.NDArray[np.float32] | FixedPointRows
) -> npt.NDArray[np.float64]:
    """The sum of the fixed-point rows of each stretch of tokens, an integer: (stretches, h)."""
    if kernel.native is not None and isinstance(fixed_point, np.ndarray) and fixed_point.dtype == np.float32:
        sums = np.empty((len(first), fixed_point.shape[1]))
        places = (np.ascontiguousarray(part, np.int64) for part in (flat, first, size))
        kernel.native.sum_rows(fixed_point, *places, sums)
        return sums
    longest = min(EXACT_TOKENS, int(size.max(initial=0)))
    rows = np.empty((longest, fixed_point.shape[1]), np.float32)  # one window's rows of E, in the cache
    ones = np.ones(longest, np.float32)
    sums = np.zeros((len(first), fixed_point.shape[1]))
    for total, begin, tokens in zip(sums, first.tolist(), size.tolist(), strict=True):
        for part in range(begin, begin + tokens, EXACT_TOKENS):  # nearly always one
            count = min(EXACT_TOKENS, begin + tokens - part)
            fixed_point.take(flat[part : part + count], axis=0, out=rows[:count], mode="clip")
            # column sums as ones · rows: integers up to 2²⁴, so float32 is exact in whatever order BLAS adds
            total += np.dot(ones[:count], rows[:count])
    return sums


def _find_first_occurrences(flat: npt.NDArray[np.uint32], lengths: Indices, clip: int) -> npt.NDArray[np.bool_]:
    """Which tokens are among the first `clip` occurrences of their id in their prompt."""
    prompt = np.repeat(np.arange(len(lengths)), lengths)
    shift = np.int64(len(flat).bit_length())
    # sorted by token, then place: equal tokens of a prompt are then neighbours. Plain integers sort fastest.
    ordered = np.sort(flat.astype(np.int64) << shift | np.arange(len(flat)))
    token, place = ordered >> shift, ordered & ((1 << shift) - 1)
    prompt = prompt[place]
    late = (token[clip:] == token[:-clip]) & (prompt[clip:] == prompt[:-clip])
    kept = np.ones(len(flat), bool)
    kept[place[clip:][late]] = False
    return kept


def _keep_tokens(
    kept: npt.NDArray[np.bool_], flat: npt.NDArray[np.uint32], lengths: Indices
) -> tuple[npt.NDArray[np.uint32], Indices, Indices]:
    """Drop all other tokens: the ids that are left, and the prompts' new starts and lengths."""
    before = np.r_[0, np.cumsum(kept)]
    ends = np.cumsum(lengths)
    shorter = before[ends] - before[ends - lengths]
    return flat[kept], np.cumsum(shorter) - shorter, shorter


def split_chunks(texts: Iterable[str | Mapping[str, Any]]) -> Iterator[list[str]]:
    """Split texts into chunks of a few megabytes, which are counted one by one. Rows become texts here."""
    chunk: list[str] = []
    characters = 0
    for number, given in enumerate(texts):
        text = given if isinstance(given, str) else read_text(given, number)
        chunk.append(text)
        characters += len(text)
        if characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
