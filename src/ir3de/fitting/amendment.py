"""What a change does to the experts' statistics and contributions, and what the ledger records of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ir3de.engines.engine import Counting, check_counting
from ir3de.errors import InputError
from ir3de.fitting.domains import count_domain, describe_given, read_addition
from ir3de.fitting.parts import Domain, RouterParts
from ir3de.statistics.contributions import Holding
from ir3de.statistics.domain import Statistics
from ir3de.storage.ledger import Action, Change


@dataclass(frozen=True)
class Amendment:
    """Everything that the experts have after a change, as it was counted, and the entries of the ledger."""

    statistics: Mapping[str, Statistics]
    holdings: Mapping[str, Holding]
    entries: Sequence[Change]


def give(
    parts: RouterParts,
    name: str,
    domain: Domain,
    keep_sample: bool | None,
    counting: Counting,
) -> Amendment:
    """A new expert, or more for one that is there."""
    check_counting(counting)
    action: Action = "merge" if name in parts.compiled.experts else "add"
    embedding, training = parts.embedding(), parts.training
    recipe = training.recipe(name)
    known, holdings = training.counted_statistics(embedding), training.holdings()
    holding = holdings.get(name, Holding(known.get(name), ()))
    count = partial(
        count_domain,
        name,
        embedding=embedding,
        keep_sample=recipe.keep_sample if keep_sample is None else keep_sample,
        window=recipe.window,
        counting=counting,
    )
    given = read_addition(name, domain, count, embedding, keep_sample=keep_sample is not False, holding=holding)
    own = holding.own if given.own is None else given.own if holding.own is None else holding.own + given.own
    holding = Holding(own, holding.contributions).with_more(given.contributions, name)
    total = known[name] + given.total if name in known else given.total
    before, after = known[name].digest if name in known else None, total.digest
    entries = [Change.now(action, expert=name, given=one, before=before, after=after) for one in given.entries]
    return Amendment({**known, name: total}, {**holdings, name: holding}, entries)


def remove_experts(parts: RouterParts, names: Sequence[str]) -> Amendment:
    """Experts are taken out. Each of their contributions has an entry of its own, for its owner."""
    known, entries = dict(parts.training.counted_statistics(parts.embedding())), []
    holdings = parts.training.holdings()
    for name in names:
        gone = known.pop(name)
        contributions = holdings.get(name, Holding(None, ())).contributions
        given = [one.given for one in contributions]
        entries += [
            Change.now("remove", expert=name, given=one, before=gone.digest) for one in (*given, describe_given(gone))
        ]
    return Amendment(known, holdings, entries)


def remove_part(parts: RouterParts, name: str, contribution: str) -> Amendment:
    """A contribution is taken out: the difference of integers is the sum of the others; their sample is drawn again."""
    known, holdings = parts.training.counted_statistics(parts.embedding()), parts.training.holdings()
    if name not in holdings:
        raise InputError(f"'{name}' has no contributions: its texts were counted here and cannot be told apart")
    gone, left = holdings[name].without(contribution, name)
    before, taken = known[name], gone.statistics()
    rest = before.without_sample() - taken.without_sample()
    after = replace(rest, sample=left.sample() if gone.kept else before.sample)
    entry = Change.now("remove", expert=name, given=gone.given, before=before.digest, after=after.digest)
    return Amendment({**known, name: after}, {**holdings, name: left}, [entry])
