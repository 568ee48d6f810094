"""Selectors decide which tokens of a prompt count, and what each one gives to each expert.

Every selector compiles the table into *ballots*: one row of integers per token. A prompt's tally is the sum of its
tokens' rows, so it is exact and does not depend on the order of the tokens. Where the table scores pairs, it also
depends on which tokens are neighbours. Ties between experts go to the expert that was added first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from ir3de import kernel
from ir3de.errors import InputError
from ir3de.scorers.arithmetic import softmax
from ir3de.scorers.registry import Registry
from ir3de.scorers.table import Table, row_blocks
from ir3de.statistics.defaults import DEFAULT_CAP
from ir3de.statistics.domain import hash_pairs, pair_buckets, within_prompts

if TYPE_CHECKING:
    from ir3de.kernel import Look, Tables

__all__ = [
    "DEFAULT_CAP",
    "MAX_TOKENS",
    "AllTokens",
    "Average",
    "Ballots",
    "EntropyTopK",
    "Selector",
    "register",
]

Ids = npt.NDArray[np.unsignedinteger]
Values: TypeAlias = "npt.NDArray[np.float64] | npt.NDArray[np.float32]"
Tally = npt.NDArray[np.float64]  # integers below 2⁵³: float64 adds them exactly, and BLAS adds fastest

MAX_TOKENS = 1 << 16  # counted per prompt, so that the sums below stay under 2⁵³
SCORE_UNIT = 1 << 25  # Average: one point of score
MAX_SCORE = 1 << 10
VOTE_UNIT = 1 << 36  # more than the probabilities of all tokens can add up to
PROBABILITY_UNIT = 1 << 19

GATHERED_NUMBERS = 1 << 16  # looked up at a time in a batch: they stay in the cache
SHORT_PROMPT_TOKENS = 256  # up to here a prompt's vector of ones is ready: cutting it is a call to numpy more
LINE_BYTES = 64  # that come from memory at a time
FEW_EXPERTS = 32  # with more, ballots are float32, and prompts of a batch are summed one by one

_ONES, _ONES32 = np.ones(MAX_TOKENS), np.ones(MAX_TOKENS, np.float32)
_SHORT_ONES = [_ONES[:count] for count in range(SHORT_PROMPT_TOKENS)]


@dataclass(frozen=True, eq=False)
class Ballots:
    """What each token gives to each expert. Only the `limit` tokens of lowest rank in a prompt count.

    Where the table has token familiarities, they are summed over all tokens in one more column. Where it has subject
    rows, so are those, in the last columns.
    """

    values: Values  # (V, C or C + 1); by rank instead of by token id when `rank` is there
    rank: npt.NDArray[np.uint32] | None = None
    limit: int = MAX_TOKENS
    familiarity: npt.NDArray[np.float32] | None = None  # (V,)  where it is not a column of `values`
    pairs: Values | None = None  # (BUCKETS, C or C + 1)  what neighbouring tokens give
    # (V, k)  whole numbers; only where there are familiarities
    subjects: npt.NDArray[np.float32] | npt.NDArray[np.int8] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: what the kernel made of them cannot be pickled."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    @cached_property
    def native(self) -> Tables | None:
        """The same numbers as the native kernel reads them, without a copy; None where numpy computes."""
        if kernel.native is None:
            return None
        parts = self.values, self.rank, self.limit, self.familiarity, self.pairs, self.subjects
        try:
            made: Tables = kernel.native.Tables(*parts)
        except (TypeError, ValueError):  # arrays of other types or shapes than a fit makes
            return None
        return made

    @cached_property
    def columns(self) -> int:
        """How many numbers a tally has."""
        more = 0 if self.subjects is None else self.subjects.shape[1]
        return int(self.values.shape[1]) + (self.familiarity is not None) + more

    def tally(self, ids: Ids) -> Tally:
        """Sum of the counted tokens' ballots: (C,), (C + 1,) or (C + 1 + k,)."""
        if (tables := self.native) is None:
            return self.tally_by_numpy(ids)
        tables.decide(np.ascontiguousarray(ids, np.uint32), tally := np.empty(self.columns), 1, None)
        return tally

    def tally_by_numpy(self, ids: Ids) -> Tally:
        """The same sum without the native kernel."""
        chosen = ids if self.rank is None else self._find_lowest_ranks(ids)
        count = len(chosen)
        # column sums as ones · rows: numpy's own sum over the short axis takes twice as long
        ones = _SHORT_ONES[count] if count < SHORT_PROMPT_TOKENS else _ONES[:count]
        total: Tally = ones.dot(self.values.take(chosen, 0))
        if self.pairs is not None and (count := len(ids) - 1) > 0:
            ones = _SHORT_ONES[count] if count < SHORT_PROMPT_TOKENS else _ONES[:count]
            total += ones.dot(self.pairs.take(hash_pairs(ids), 0))
        if self.familiarity is not None:
            total = np.append(total, self.familiarity.take(ids).sum(dtype=np.float64))
        if self.subjects is not None:
            rows = self.subjects.take(ids, 0)
            total = np.concatenate((total, _ONES32[: len(rows)].dot(rows)))
        return total

    def _find_lowest_ranks(self, ids: Ids) -> Ids:
        assert self.rank is not None
        chosen = self.rank.take(ids)
        if len(chosen) > self.limit:
            chosen.partition(self.limit - 1)
            chosen = chosen[: self.limit]
        return chosen

    def tallies(self, flat: Ids, starts: npt.NDArray[np.int64]) -> Tally:
        """The same for many prompts at once, none of them empty: a row for each prompt."""
        if self.native is None:
            return self.tallies_by_numpy(flat, starts)
        return self.decide_many(flat, starts, np.diff(starts, append=len(flat)), 1, None)[0]

    def decide_many(
        self,
        flat: Ids,
        starts: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        experts: int,
        look: Look | None,
    ) -> tuple[Tally, npt.NDArray[np.int64]]:
        """By the native kernel: tallies, and each prompt's best expert, or ~best if it may be out of domain."""
        tables, tallies, bests = self.native, np.empty((len(starts), self.columns)), np.empty(len(starts), np.int64)
        assert tables is not None
        places = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(lengths, np.int64)
        tables.decide_many(np.ascontiguousarray(flat, np.uint32), *places, tallies, bests, experts, look)
        return tallies, bests

    def tallies_by_numpy(self, flat: Ids, starts: npt.NDArray[np.int64]) -> Tally:
        """The same rows without the native kernel."""
        lengths = np.diff(starts, append=len(flat))
        totals = _sum_rows(self.values, *((flat, starts) if self.rank is None else self._select_by_rank(flat, starts)))
        if self.pairs is not None and (several := np.flatnonzero(lengths > 1)).size:
            buckets = pair_buckets(flat)[within_prompts(len(flat), starts, lengths)]
            met = lengths[several] - 1
            totals[several] += _sum_rows(self.pairs, buckets, np.cumsum(met) - met)
        if self.familiarity is not None:
            familiarity = np.add.reduceat(self.familiarity.take(flat), starts, dtype=np.float64)
            totals = np.column_stack((totals, familiarity))
        if self.subjects is not None:
            sums = np.add.reduceat(self.subjects.take(flat, 0), starts, 0, np.float64)
            totals = np.column_stack((totals, sums))
        return totals

    def _select_by_rank(self, flat: Ids, starts: npt.NDArray[np.int64]) -> tuple[Ids, npt.NDArray[np.int64]]:
        assert self.rank is not None
        lengths = np.diff(starts, append=len(flat))
        prompt = np.repeat(np.arange(len(starts), dtype=np.int64), lengths)
        keys = np.sort((prompt << 32) | self.rank.take(flat))  # each prompt's ranks in order, prompt after prompt
        counted = np.arange(len(flat)) - np.repeat(starts, lengths) < self.limit
        kept = np.minimum(lengths, self.limit)
        return (keys[counted] & 0xFFFFFFFF).astype(np.uint32), np.cumsum(kept) - kept


def _sum_rows(values: Values, flat: Ids, starts: npt.NDArray[np.int64]) -> Tally:
    """The sum of the rows in each stretch of `flat`. No stretch is empty."""
    totals = np.empty((len(starts), values.shape[1]))
    bounds = [*starts.tolist(), len(flat)]
    if totals.shape[1] > FEW_EXPERTS:  # for long rows the product is faster than the sum, even prompt by prompt
        for total, (first, last) in zip(totals, pairwise(bounds), strict=True):
            np.dot(_ONES[: last - first], values.take(flat[first:last], axis=0), out=total)
        return totals
    gathered = GATHERED_NUMBERS // totals.shape[1]
    edges = [*np.flatnonzero(np.diff(starts // gathered, prepend=-1)).tolist(), len(starts)]
    for first, last in pairwise(edges):
        rows = values.take(flat[bounds[first] : bounds[last]], axis=0)
        np.add.reduceat(rows, starts[first:last] - bounds[first], axis=0, out=totals[first:last])
    return totals


@runtime_checkable
class Selector(Protocol):
    """Turns a table into ballots, and a tally into evidence and shares of the votes."""

    @property
    def cap(self) -> int:
        """Tokens beyond this many in a prompt are ignored."""

    @property
    def log_offset(self) -> float:
        """Added inside the logarithm of the entropy when the table is compiled."""

    def ballots(self, table: Table) -> Ballots:
        """The table as integers that are summed."""

    def evidence(self, tally: Sequence[float], counted: int) -> list[float]:
        """One number per expert that does not grow with the prompt: a mean score, or a share of votes."""

    def shares(self, tally: Sequence[float], counted: int) -> list[float]:
        """One share per expert. They add up to one, and stand for probabilities where there is no calibration."""


Ties = Literal["probability", "order"]


class _Votes:
    """Evidence and shares of selectors that count votes."""

    def evidence(self, tally: Sequence[float], counted: int) -> list[float]:
        return self.shares(tally, counted)

    def shares(self, tally: Sequence[float], counted: int) -> list[float]:
        votes = [total // VOTE_UNIT for total in tally]
        total_votes = sum(votes)
        return [vote / total_votes for vote in votes]


@dataclass(frozen=True)
class EntropyTopK(_Votes):
    """The k tokens of lowest entropy vote for their best expert: the paper's Sample Route Selector.

    Ties between experts go to the larger summed probability; with `ties="order"` straight to the order of the
    experts, as in the authors' code.

    >>> EntropyTopK(10)
    EntropyTopK(k=10, cap=1024, ties='probability', log_offset=0.0)
    >>> EntropyTopK.authors(10)
    EntropyTopK(k=10, cap=1024, ties='order', log_offset=1e-10)
    """

    k: int = 10
    cap: int = DEFAULT_CAP
    ties: Ties = "probability"
    log_offset: float = 0.0

    def __post_init__(self) -> None:
        _check_range("k", self.k)
        _check_range("cap", self.cap)
        _check_ties(self.ties)

    @classmethod
    def authors(cls, k: int = 10) -> EntropyTopK:
        """As in the authors' code: log(p + 1e-10), ties to the lowest index."""
        return cls(k, ties="order", log_offset=1e-10)

    def ballots(self, table: Table) -> Ballots:
        votes = _compile_votes(table, self.ties, table.by_rank)
        return Ballots(votes, table.rank, self.k, table.familiarity, subjects=_to_float(table.subjects))


@dataclass(frozen=True)
class AllTokens(_Votes):
    """Every token votes for its best expert: the paper's variant -all, without the entropy filter."""

    cap: int = DEFAULT_CAP
    ties: Ties = "probability"
    log_offset: float = 0.0

    def __post_init__(self) -> None:
        _check_range("cap", self.cap)
        _check_ties(self.ties)

    def ballots(self, table: Table) -> Ballots:
        votes = _compile_votes(table, self.ties, np.arange(len(table.vote)))
        return Ballots(votes, familiarity=table.familiarity, subjects=_to_float(table.subjects))


@dataclass(frozen=True)
class Average:
    """The mean of the tokens' scores decides: the paper's variant -avg, for which prompt ridge is fitted.

    The mean of the score rows is the score of the mean embedding, because the router is linear. `sharpness` turns
    mean scores into shares, softmax(sharpness · score); it does not change which expert wins.
    """

    cap: int = DEFAULT_CAP
    sharpness: float = 10.0
    log_offset: float = 0.0

    def __post_init__(self) -> None:
        _check_range("cap", self.cap)
        if not (math.isfinite(self.sharpness) and self.sharpness > 0):
            raise InputError(f"sharpness must be a positive number, found {self.sharpness}: try 10")

    def ballots(self, table: Table) -> Ballots:
        familiarity = table.familiarity
        pairs = None if table.pairs is None else _to_integers(table.pairs, None if familiarity is None else 0.0)
        values, subjects = _to_integers(table.scores, familiarity), _to_float(table.subjects)
        if kernel.native is not None and table.subjects is not None:
            values, subjects, pairs = _lay_side_by_side(values, table.subjects, pairs)
        return Ballots(values, pairs=pairs, subjects=subjects)

    def evidence(self, tally: Sequence[float], counted: int) -> list[float]:
        unit = 1.0 / (SCORE_UNIT * counted)
        return [total * unit for total in tally]

    def shares(self, tally: Sequence[float], counted: int) -> list[float]:
        best, scale = max(tally), self.sharpness / (SCORE_UNIT * counted)
        powers = [math.exp((total - best) * scale) for total in tally]
        whole = math.fsum(powers)
        return [power / whole for power in powers]


def find_unit(selector: Selector) -> int:
    """What one point of score, or one vote, is in the ballots of a selector; 1 for selectors of other packages."""
    return SCORE_UNIT if isinstance(selector, Average) else VOTE_UNIT if isinstance(selector, _Votes) else 1


def _to_integers(scores: npt.NDArray[np.float32], last: npt.NDArray[np.float32] | float | None) -> Values:
    """Scores as integers, and `last` as one more column."""
    rows, columns = scores.shape
    ballots = np.zeros((rows, columns + (last is not None)), np.float32)
    np.clip(scores, -MAX_SCORE, MAX_SCORE, out=ballots[:, :columns])
    ballots *= SCORE_UNIT  # a power of two: float32 holds the results exactly
    np.rint(ballots, out=ballots)
    if last is not None:
        ballots[:, columns] = last
    is_narrow = columns > FEW_EXPERTS or kernel.native is not None  # half as much to fetch from memory
    return ballots if is_narrow else ballots.astype(np.float64)


def _to_float(rows: npt.NDArray[np.int8] | None) -> npt.NDArray[np.float32] | npt.NDArray[np.int8] | None:
    """Rows that BLAS can add. Their sums over a prompt are whole numbers below 2²⁴, which float32 holds exactly."""
    return rows if rows is None or kernel.native is not None else rows.astype(np.float32)


def _lay_side_by_side(
    values: Values, subjects: npt.NDArray[np.int8], pairs: Values | None
) -> tuple[Values, npt.NDArray[np.int8], Values | None]:
    """The same rows, those of a token in as few lines of memory as possible, and all in one large block.

    A prompt reads hundreds of rows that are in no cache. Of a large block the system keeps track in large pages.
    """
    own, more, of_pairs = values.itemsize * values.shape[1], subjects.shape[1], 0
    row = -(own + more) % LINE_BYTES + own + more
    if pairs is not None:
        of_pairs = max(1 << (own - 1).bit_length(), LINE_BYTES // 4) if own <= LINE_BYTES else -own % LINE_BYTES + own
    block = np.zeros(LINE_BYTES + len(values) * row + (0 if pairs is None else len(pairs) * of_pairs), np.uint8)
    begin = -block.ctypes.data % LINE_BYTES
    rows, rest = np.split(block[begin : len(block) - LINE_BYTES + begin], [len(values) * row])
    both = rows.reshape(-1, row)
    tokens, about = both[:, :own].view(values.dtype), both[:, own : own + more].view(np.int8)
    tokens[:], about[:] = values, subjects
    if pairs is None:
        return tokens, about, None
    neighbours = rest.reshape(-1, of_pairs)[:, :own].view(pairs.dtype)
    neighbours[:] = pairs
    return tokens, about, neighbours


def _compile_votes(table: Table, ties: Ties, order: npt.NDArray[np.intp]) -> Tally:
    """One vote per token, plus its probabilities in a unit so small that they only break ties. Rows are in `order`."""
    votes = np.zeros(table.scores.shape)
    if ties == "probability":
        for block in row_blocks(votes.shape):
            votes[block] = np.rint(softmax(table.scores[order[block]].astype(np.float64)) * PROBABILITY_UNIT)
    votes[np.arange(len(votes)), table.vote[order]] += VOTE_UNIT
    return votes


def _check_range(name: str, value: int) -> None:
    if not isinstance(value, int) or not 1 <= value <= MAX_TOKENS:
        raise InputError(f"{name} must be a whole number of tokens between 1 and {MAX_TOKENS:,}, found {value!r}")


def _check_ties(ties: str) -> None:
    if ties not in get_args(Ties):
        raise InputError(f"ties must be one of {', '.join(get_args(Ties))}, found {ties!r}")


SELECTORS = Registry(
    "selector",
    "ir3de.selectors",
    dict.fromkeys(("EntropyTopK", "AllTokens", "Average"), __name__),
    ("ballots", "evidence", "shares"),
)

register = SELECTORS.register
