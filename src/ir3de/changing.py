"""Experts come and go: a router's parts as they would be, had it been fitted so from the beginning.

Routers from texts have statistics of domains, routers from outcomes sums of scores: here is asked which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from ir3de.building import checked, counted, fitted
from ir3de.errors import InputError
from ir3de.expectations import Shrinkage
from ir3de.outcome_router import OutcomeRows, changed_parts, collected, of_model, sums_of
from ir3de.statistics import Statistics
from ir3de.storage import RouterParts

# an expert's texts, or what was counted from them; for a router from outcomes, rows with its scores
Domain: TypeAlias = "Iterable[str] | Statistics | OutcomeRows"


def with_more(parts: RouterParts, name: str, domain: Domain, keep_sample: bool | None) -> RouterParts:
    """With a new expert, or with more of one that is there."""
    if parts.outcomes is not None:
        return changed_parts(parts, sums_of(parts) + of_model(name, domain, parts.embedding()))
    known = parts.statistics()
    more = _counted_alike(parts, name, domain, keep_sample)
    return _refitted(parts, {**known, name: known[name] + more if name in known else more})


def without(parts: RouterParts, name: str) -> RouterParts:
    """Without that expert, as if it had never been there."""
    if len(parts.compiled.experts) == 1:
        raise InputError(f"'{name}' is the only expert: a router needs at least one")
    if parts.outcomes is not None:
        return changed_parts(parts, sums_of(parts).without(name))
    return _refitted(parts, {other: kept for other, kept in parts.statistics().items() if other != name})


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
    return changed_parts(parts, before + more)


def _counted_alike(parts: RouterParts, name: str, domain: Domain, keep_sample: bool | None) -> Statistics:
    """What is to be added, counted like what is there; no sample is kept where the router has none."""
    known = parts.statistics()
    if keep_sample is None:
        keep_sample = any(own.sample is not None for own in known.values())
    sums = known.get(name, next(iter(known.values()))).sums
    window = 128 if sums is None else sums.window
    return counted(name, domain, parts.embedding(), keep_sample=keep_sample, window=window)


def _refitted(parts: RouterParts, statistics: Mapping[str, Statistics]) -> RouterParts:
    terms, experts = parts.compiled.terms, tuple(statistics)
    default = terms.experts[terms.default]
    changed = replace(
        terms,
        experts=experts,
        default=experts.index(default) if default in experts else 0,
        policy=terms.policy.among(experts),
    )
    assert not isinstance(parts.scorer, Shrinkage)  # those have outcomes, not statistics
    return fitted(statistics, parts.embedding(), parts.scorer, changed, parts.trials)
