"""The read side of a router as one object: rules, table and ballots. It turns token ids into decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ir3de import kernel
from ir3de.errors import InputError
from ir3de.policies import Costs
from ir3de.routing.decision import (
    Decision,
    abstain,
    make_decision,
    make_plain_decision,
    make_unsure_decision,
    require_content,
)
from ir3de.routing.messages import BARE_GENERIC_WORDS, MAX_GENERIC_CHARS
from ir3de.routing.rules import DecisionRules
from ir3de.routing.valuation import Probabilities
from ir3de.scorers.table import Table
from ir3de.selectors import Ballots, EntropyTopK, Ids, Selector, Tally
from ir3de.statistics.sample import positions
from ir3de.statistics.texts import refuse_table

if TYPE_CHECKING:
    from ir3de.kernel import Route, Tables
    from ir3de.kernel.interfaces import Quick


@dataclass(frozen=True, eq=False)
class CompiledRouter:
    """What routing reads: rules, table and ballots. A change swaps the whole object, so no reader sees half of it."""

    rules: DecisionRules
    table: Table
    ballots: Ballots

    def __reduce__(self) -> tuple[type[CompiledRouter], tuple[DecisionRules, Table, Ballots]]:
        return CompiledRouter, (self.rules, self.table, self.ballots)  # without the function that was made of them

    @property
    def experts(self) -> tuple[str, ...]:
        return self.rules.experts

    @property
    def selector(self) -> Selector:
        return self.rules.selector

    @property
    def default(self) -> int | None:
        return self.rules.default

    @cached_property
    def cap(self) -> int:
        """Tokens beyond this many in a prompt are ignored, so they need not be read."""
        return self.rules.selector.cap

    @cached_property
    def decide_one(self) -> Callable[[Ids, int | None, Costs | None], Decision]:
        """The function behind `decide`: everything that is the same for all prompts is looked up once."""
        if self.ballots.native is not None and isinstance(self.rules.valuation, Probabilities):
            return self._decide_natively(self.ballots.native)
        rules, sum_ballots, limit = self.rules, self.ballots.tally, self.ballots.limit
        cap, experts, standing_penalties = rules.selector.cap, len(rules.experts), rules.standing_penalties
        reduce = None if isinstance(rules.valuation, Probabilities) else rules.valuation.reduce

        def decide_one(ids: Ids, unknown: int | None, weights: Costs | None) -> Decision:
            length = len(ids)
            if length > cap:
                ids, length = ids[:cap], cap
            counted = length
            # of a prompt without a known token, the first token is unknown too: comparing all of them takes longer
            if not length or (unknown is not None and ids.item(0) == unknown and bool((ids == unknown).all())):
                return abstain(rules, length)
            if counted > limit:
                counted = limit
            tally = sum_ballots(ids)
            if reduce is not None:
                tally = reduce(rules.selector, tally, counted)
            best = int(tally.argmax())
            if best >= experts:  # the column of the familiarities, or one of the subjects
                best = int(tally[:experts].argmax())
            penalties = standing_penalties if weights is None else rules.penalties(weights)
            return make_decision(rules, tally, length, counted, best, penalties)

        return decide_one

    def _decide_natively(self, tables: Tables) -> Callable[[Ids, int | None, Costs | None], Decision]:
        """The same function by the native kernel, which sums, compares, and looks whether the prompt is in domain."""
        rules, limit, columns, find_best = self.rules, self.ballots.limit, self.ballots.columns, tables.decide
        cap, experts, look, empty = rules.selector.cap, len(rules.experts), rules.look, np.empty
        standing_penalties, make_plain = rules.standing_penalties, make_plain_decision
        has_no_policy = look is not None and not (standing_penalties or rules.policy.threshold or rules.strong_weak)

        def decide_one(ids: Ids, unknown: int | None, weights: Costs | None) -> Decision:
            length = len(ids)
            if length > cap:
                ids, length = ids[:cap], cap
            if not length or (unknown is not None and ids.item(0) == unknown and bool((ids == unknown).all())):
                return abstain(rules, length)
            tally = empty(columns)
            try:
                best = find_best(ids, tally, experts, look)
            except (TypeError, ValueError):  # ids in another type of number, or with gaps
                best = find_best(np.ascontiguousarray(ids, np.uint32), tally, experts, look)
            counted = limit if length > limit else length
            if best >= 0 and has_no_policy and weights is None:  # nearly always: the prompt is surely in domain
                return make_plain(rules, tally, length, counted, best)
            penalties = standing_penalties if weights is None else rules.penalties(weights)
            return make_decision(rules, tally, length, counted, best if best >= 0 else ~best, penalties)

        return decide_one

    def make_quick_route(self, quick: Quick) -> Callable[[str], Decision | None] | None:
        """A function from a text to its decision by the native kernel, which calls the tokenizer itself.

        It gives None for texts that must be examined first. There is no such function where the policy has a say.
        """
        rules, tables, limit, look = self.rules, self.ballots.native, self.ballots.limit, self.rules.look
        if tables is None or look is None or not isinstance(rules.valuation, Probabilities):
            return None
        if rules.standing_penalties or rules.policy.threshold or rules.strong_weak or rules.opinion is not None:
            return None
        assert rules.membership is not None  # or there would be nothing to look at
        check = require_content if rules.membership.needs_content else None

        def finish(tally: bytes, tokens: int, best: int) -> Decision:
            return make_unsure_decision(rules, tally, tokens, min(tokens, limit), best)

        route: Route = kernel.native.Route(
            *(tables, look, quick.reader, quick.encode),
            *(Decision, rules, finish, BARE_GENERIC_WORDS, check),
            *(len(rules.experts), self.cap, limit, MAX_GENERIC_CHARS),
        )
        return route.decide

    @classmethod
    def build(cls, rules: DecisionRules, table: Table) -> CompiledRouter:
        return cls(rules, table, rules.selector.ballots(table))

    def with_selector(self, selector: Selector) -> CompiledRouter:
        """The same scores, read by another selector."""
        rules, table, own = replace(self.rules, selector=selector), self.table, self.selector
        if not rules.valuation.accepts(selector):
            raise InputError(
                f"a router from outcomes reads the average of its tokens' scores, found {selector!r}: use Average()"
            )
        if selector.log_offset != own.log_offset:
            compiled = Table.compile(table.scores, log_offset=selector.log_offset)
            table = replace(compiled, familiarity=table.familiarity, pairs=table.pairs, subjects=table.subjects)
        if isinstance(rules.valuation, Probabilities) and type(selector) is not type(own):
            rules = replace(rules, valuation=Probabilities(), membership=None)  # votes are other evidence
        if isinstance(selector, EntropyTopK) and isinstance(own, EntropyTopK) and own == replace(selector, k=own.k):
            # what each token gives does not depend on k
            return CompiledRouter(rules, table, replace(self.ballots, limit=selector.k))
        return CompiledRouter.build(rules, table)


def decide(compiled: CompiledRouter, ids: Ids, unknown: int | None, weights: Costs | None = None) -> Decision:
    """Route one prompt by its token ids."""
    return compiled.decide_one(ids, unknown, weights)


def decide_batch(
    compiled: CompiledRouter,
    flat: Ids,
    lengths: npt.NDArray[np.int64],
    unknown: int | None,
    weights: Costs | None = None,
) -> list[Decision]:
    """Route many prompts, their ids end to end: the same decisions as one by one."""
    starts, rules, ballots = np.cumsum(lengths) - lengths, compiled.rules, compiled.ballots
    read = np.minimum(lengths, rules.selector.cap)
    known = lengths > 0
    if unknown is not None and len(flat):
        known[known] = np.add.reduceat(flat != unknown, starts[known], dtype=np.int64) > 0
        for place in np.flatnonzero(lengths > read).tolist():  # the first token that is known may not be read
            known[place] = bool((flat[starts[place] : starts[place] + read[place]] != unknown).any())
    decisions = [abstain(rules, length) for length in read.tolist()] if not known.all() else []
    if not known.any():
        return decisions
    starts, read = starts[known], read[known]
    counted = np.minimum(read, ballots.limit).tolist()
    if ballots.native is None or not isinstance(rules.valuation, Probabilities):
        if len(flat) != read.sum():
            flat = flat[positions(starts, read)]
        tallies = ballots.tallies(flat, np.cumsum(read) - read)
        made = read_tallies(rules, tallies, read.tolist(), counted, weights)
    else:
        tallies, bests = ballots.decide_many(flat, starts, read, len(rules.experts), rules.look)
        made = _read_decided(rules, tallies, bests.tolist(), read.tolist(), counted, weights)
    for index, decision in zip(np.flatnonzero(known).tolist() if decisions else (), made, strict=False):
        decisions[index] = decision
    return decisions or made


def read_tallies(
    rules: DecisionRules, tallies: Tally, tokens: Sequence[int], counted: Sequence[int], weights: Costs | None = None
) -> list[Decision]:
    """The decisions of prompts with known tokens, from their tallies: one row each."""
    penalties = rules.penalties(weights)
    tallies = rules.valuation.reduce_all(rules.selector, tallies, counted)
    best = tallies[:, : len(rules.experts)].argmax(axis=1).tolist()
    return [
        make_decision(rules, tally, length, number, place, penalties)
        for tally, place, length, number in zip(tallies, best, tokens, counted, strict=True)
    ]


def _read_decided(
    rules: DecisionRules,
    tallies: Tally,
    bests: Sequence[int],
    tokens: Sequence[int],
    counted: Sequence[int],
    weights: Costs | None,
) -> list[Decision]:
    """The same from the kernel's choices: the place of the best expert, or ~place if it may be out of domain."""
    penalties = rules.penalties(weights)
    is_plain = rules.look is not None and not (penalties or rules.policy.threshold or rules.strong_weak)
    return [
        make_plain_decision(rules, tally, length, number, best)
        if is_plain and best >= 0
        else make_decision(rules, tally, length, number, best if best >= 0 else ~best, penalties)
        for tally, length, number, best in zip(tallies, tokens, counted, bests, strict=True)
    ]


# texts, and how many tokens of each are read; ids end to end, and lengths
EncodeBatch = Callable[[Sequence[str], int], tuple[npt.NDArray[Any], npt.NDArray[Any]]]
BATCH_CHARACTERS = 500_000  # what is worth a thread of its own


def decide_texts(
    compiled: CompiledRouter,
    encode: EncodeBatch,
    unknown: int | None,
    texts: Iterable[str],
    weights: Costs | None,
    *,
    threads: int,
) -> list[Decision]:
    """Route many texts, in stretches that are shared out among threads."""
    refuse_table(texts, "texts")
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise InputError(f"texts must be an iterable of str, found one {type(texts).__name__}: use route for one")

    def decide_stretch(stretch: Sequence[str]) -> list[Decision]:
        flat, lengths = encode(stretch, compiled.cap)
        found = decide_batch(compiled, flat, lengths.astype(np.int64), unknown, weights)
        if (member := compiled.rules.membership) is None or not member.needs_content:
            return found
        return [
            decision if len(text) > MAX_GENERIC_CHARS else require_content(decision, text)
            for decision, text in zip(found, stretch, strict=True)
        ]

    stretches = list(_split(list(texts)))
    if len(stretches) < 2:
        return [decision for stretch in stretches for decision in decide_stretch(stretch)]
    with ThreadPoolExecutor(threads, thread_name_prefix="ir3de-route") as pool:
        return list(chain.from_iterable(pool.map(decide_stretch, stretches)))


def decide_ids(
    compiled: CompiledRouter, prompts: Iterable[npt.ArrayLike], unknown: int | None, weights: Costs | None = None
) -> list[Decision]:
    """Route prompts given as token ids, which are checked first."""
    ids = [np.asarray(prompt, np.int64) for prompt in prompts]
    flat, size = np.concatenate([np.empty(0, np.int64), *ids]), len(compiled.table.vote)
    if len(flat) and not 0 <= flat.min() <= flat.max() < size:
        raise InputError(
            f"token ids are 0 to {size - 1}, found {flat.min()} to {flat.max()}: use the router's tokenizer"
        )
    lengths = np.array([len(prompt) for prompt in ids], np.int64)
    return decide_batch(compiled, flat.astype(np.uint32), lengths, unknown, weights)


def _split(texts: Sequence[str]) -> Iterable[Sequence[str]]:
    sizes = [len(text) for text in texts if isinstance(text, str)]
    if len(sizes) < len(texts):  # the tokenizer refuses what is not a text
        return [texts]
    ends = np.flatnonzero(np.diff(np.cumsum(sizes) // BATCH_CHARACTERS, prepend=0)) + 1
    bounds = [0, *ends.tolist(), len(texts)]
    return [texts[begin:end] for begin, end in pairwise(bounds) if begin < end]


def list_probabilities(decisions: Sequence[Decision], experts: Sequence[str]) -> npt.NDArray[np.float64]:
    """P(expert | in domain) of each decision: (decisions, experts). Rows add up to one.

    Of equal probabilities the first by the ranking is larger by one bit, so that it is the largest of its row.
    """
    rows = np.array([decision._find_values() for decision in decisions], np.float64).reshape(-1, len(experts))
    for row, decision in zip(rows, decisions, strict=True):
        if row.argmax() != (first := decision._order[0]):
            row[first] = np.nextafter(row.max(), 1.0)
    return rows
