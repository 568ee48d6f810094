"""Experts come and go: a router's parts as they would be, had it been fitted so from the beginning.

Routers from texts have statistics of domains, routers from outcomes sums of scores: here is asked which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ir3de.embedding import Embedding
from ir3de.engines.domains import Files
from ir3de.engines.engine import Counting, check_counting
from ir3de.errors import InputError
from ir3de.fitting.building import (
    checked,
    counted,
    counted_statistics,
    fit_tuned,
    fitted,
    parted,
    summed,
    with_holdings,
)
from ir3de.fitting.outcome_router import OutcomeRows, changed_parts, collected, of_model, refuse, sums_of
from ir3de.fitting.parts import RouterParts
from ir3de.outcomes.expectation import Shrinkage
from ir3de.routing.decision import Terms
from ir3de.scorers import Blend, Scorer
from ir3de.selectors import Average
from ir3de.statistics.contributions import Contribution, Holding
from ir3de.statistics.domain import Statistics
from ir3de.storage.ledger import Action, Change, Given

if TYPE_CHECKING:
    from ir3de.tuning import Trial

Counted: TypeAlias = "Statistics | Contribution"
# an expert's texts, or what was counted from them; for a router from outcomes, rows with its scores
Domain: TypeAlias = "Iterable[str] | Files | Counted | Sequence[Counted] | OutcomeRows"


def built(
    domains: Mapping[str, Domain],
    embedding: Embedding,
    scorer: Scorer,
    terms: Terms,
    *,
    tune: bool,
    keep_sample: bool,
    counting: Counting,
) -> RouterParts:
    """Count, fit and compile a new router."""
    check_counting(counting)
    statistics, held, changes = {}, {}, []
    for name, domain in domains.items():
        take = partial(counted, name, embedding=embedding, keep_sample=keep_sample, counting=counting)
        gift = _taken(name, domain, take, embedding, keep_sample=keep_sample)
        statistics[name] = gift.total
        held[name] = Holding(gift.own, ()).with_more(gift.contributions, name)
        after = gift.total.digest
        changes += [Change.now("fit", expert=name, given=one, after=after) for one in gift.told]
    held = {name: holding for name, holding in held.items() if holding.contributions}
    if tune:
        parts = fit_tuned(statistics, embedding, terms, windows=not held)[0]
        changes.append(Change.now("tune"))
    else:
        parts = fitted(statistics, embedding, scorer, terms)
    return replace(with_holdings(parts, held), changes=tuple(changes))


def retuned(parts: RouterParts) -> tuple[RouterParts, tuple[Trial, ...]]:
    """With scorer and selector chosen anew; and what was tried."""
    held = parts.holdings()
    changed, trials = fit_tuned(counted_statistics(parts), parts.embedding(), parts.compiled.terms, windows=not held)
    return noted(parts, with_holdings(changed, held), [Change.now("tune")]), trials


def with_more(
    parts: RouterParts, name: str, domain: Domain, keep_sample: bool | None, counting: Counting
) -> RouterParts:
    """With a new expert, or with more of one that is there."""
    check_counting(counting)
    action: Action = "merge" if name in parts.compiled.experts else "add"
    if parts.outcomes is not None:
        changed = changed_parts(parts, sums_of(parts) + of_model(name, domain, parts.embedding()))
        return noted(parts, changed, [Change.now(action, expert=name)])
    known = counted_statistics(parts)
    held = parts.holdings().get(name, Holding(known.get(name), ()))
    take = partial(_counted_alike, known, parts.embedding(), name, keep_sample=keep_sample, counting=counting)
    gift = _taken(name, domain, take, parts.embedding(), keep_sample=keep_sample is not False, held=held)
    own = held.own if gift.own is None else gift.own if held.own is None else held.own + gift.own
    held = Holding(own, held.contributions).with_more(gift.contributions, name)
    total = known[name] + gift.total if name in known else gift.total
    before, after = known[name].digest if name in known else None, total.digest
    changes = [Change.now(action, expert=name, given=one, before=before, after=after) for one in gift.told]
    return noted(parts, _refitted(parts, {**known, name: total}, {name: held}), changes)


def without(parts: RouterParts, name: str) -> RouterParts:
    """Without that expert, as if it had never been there."""
    if len(parts.compiled.experts) == 1:
        raise InputError(f"'{name}' is the only expert: a router needs at least one")
    if parts.outcomes is not None:
        return noted(parts, changed_parts(parts, sums_of(parts).without(name)), [Change.now("remove", expert=name)])
    known = counted_statistics(parts)
    given = [one.given for one in _contributions(parts, name)]  # each with an entry of its own, for their owners
    gone = [
        Change.now("remove", expert=name, given=one, before=known[name].digest) for one in (*given, _given(known[name]))
    ]
    rest = {other: kept for other, kept in known.items() if other != name}
    return noted(parts, _refitted(parts, rest, {}), gone)


def without_contribution(parts: RouterParts, name: str, contribution: str) -> RouterParts:
    """Without what one owner gave that expert, as if it had never been given.

    Sums are integers, so the difference is the sum of the others; a sample of prompts is drawn again from theirs.
    """
    refuse(parts, "it has no contributions; remove the model, and add it again from other rows")
    known, holdings = counted_statistics(parts), parts.holdings()
    if name not in holdings:
        raise InputError(f"'{name}' has no contributions: its texts were counted here and cannot be told apart")
    gone, left = holdings[name].without(contribution, name)
    before, taken = known[name], gone.statistics()
    rest = before.without_sample() - taken.without_sample()
    after = replace(rest, sample=left.sample() if gone.kept else before.sample)
    change = Change.now("remove", expert=name, given=gone.given, before=before.digest, after=after.digest)
    return noted(parts, _refitted(parts, {**known, name: after}, {name: left}), [change])


def with_rows(parts: RouterParts, rows: OutcomeRows, field: str, *, merge: bool) -> RouterParts:
    """With the models of these rows; those that are there already have more rows, where `merge` allows it."""
    before = sums_of(parts)
    more = collected(rows, parts.embedding(), field)
    known = [model for model in map(checked, more.models) if model in parts.compiled.experts]
    if known and not merge:
        raise InputError(
            f"'{known[0]}' is an expert already: merge=True (--merge on the command line) gives it more rows, "
            "remove(name) (`ir3de remove`) takes it out"
        )
    changes = [Change.now("merge" if model in known else "add", expert=model) for model in more.models]
    return noted(parts, changed_parts(parts, before + more), changes)


def noted(old: RouterParts, new: RouterParts, changes: Sequence[Change]) -> RouterParts:
    """The new parts, with the history of the old ones and these changes."""
    return replace(new, history=old.history, changes=(*old.changes, *changes), saved=old.saved)


@dataclass(frozen=True)
class _Gift:
    """What an expert is given at once: texts counted here, and contributions."""

    own: Statistics | None
    contributions: Sequence[Contribution]
    total: Statistics

    @property
    def told(self) -> list[Given]:
        """As the ledger tells of it."""
        own = [] if self.own is None else [_given(self.own)]
        return [*own, *(one.given for one in self.contributions)]


def _taken(
    name: str,
    domain: Domain,
    count: Callable[[Any], Statistics],
    embedding: Embedding,
    *,
    keep_sample: bool,
    held: Holding | None = None,
) -> _Gift:
    """What a domain gives an expert, refused before it is read if the expert has it already.

    `count` turns texts, files or statistics into the expert's own. Contributions bring their samples of prompts along
    unless `keep_sample` is false.
    """
    given = parted(domain)
    if given is None:
        texts = count(domain)
        return _Gift(texts, (), texts)
    statistics, contributions = given
    (held or Holding(None, ())).with_more(contributions, name)
    kept = contributions if keep_sample else [one.without_sample() for one in contributions]
    counted_here = [count(one) for one in statistics]
    own = sum(counted_here[1:], counted_here[0]) if counted_here else None
    if not kept:
        assert own is not None
        return _Gift(own, (), own)
    theirs = summed(name, kept, embedding)
    return _Gift(own, kept, theirs if own is None else own + theirs)


def _contributions(parts: RouterParts, name: str) -> tuple[Contribution, ...]:
    held = parts.holdings().get(name)
    return () if held is None else held.contributions


def _given(statistics: Statistics) -> Given:
    return Given(statistics.digest, statistics.prompts, statistics.tokens)


def _counted_alike(
    known: Mapping[str, Statistics],
    embedding: Embedding,
    name: str,
    domain: Domain,
    *,
    keep_sample: bool | None,
    counting: Counting,
) -> Statistics:
    """What is to be added, counted like what is there; no sample is kept where the router has none."""
    if keep_sample is None:
        keep_sample = any(own.sample is not None for own in known.values())
    sums = known.get(name, next(iter(known.values()))).sums
    window = 128 if sums is None else sums.window
    return counted(name, domain, embedding, keep_sample=keep_sample, window=window, counting=counting)


def _refitted(parts: RouterParts, statistics: Mapping[str, Statistics], held: Mapping[str, Holding]) -> RouterParts:
    """The router of these statistics, with the scorer and selector of `parts`, or chosen again where it is tuned."""
    terms, experts = parts.compiled.terms, tuple(statistics)
    default = terms.experts[terms.default]
    changed = replace(
        terms,
        experts=experts,
        default=experts.index(default) if default in experts else 0,
        policy=terms.policy.among(experts),
    )
    holdings = {name: one for name, one in {**parts.holdings(), **held}.items() if name in statistics}
    assert not isinstance(parts.scorer, Shrinkage)  # those have outcomes, not statistics
    if parts.is_tuned:
        has_contributions = any(one.contributions for one in holdings.values())
        fit = _choose_again(statistics, parts.embedding(), changed, windows=not has_contributions)
    else:
        fit = fitted(statistics, parts.embedding(), parts.scorer, changed)
    return with_holdings(fit, holdings)


def _choose_again(
    statistics: Mapping[str, Statistics], embedding: Embedding, terms: Terms, *, windows: bool
) -> RouterParts:
    """Tuned as a new router of these statistics would be; with the default scorer where too few prompts are kept."""
    try:
        return fit_tuned(statistics, embedding, terms, windows=windows)[0]
    except InputError:
        default = replace(terms, selector=Average(terms.selector.cap))
        return replace(fitted(statistics, embedding, Blend(), default), is_tuned=True)
