"""Routers from outcomes: models' scores on prompts, instead of prompts of domains, say who is best at what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de.fitting.building import embedding_mismatch
from ir3de.fitting.parts import RouterParts
from ir3de.outcomes.files import OutcomeParts
from ir3de.outcomes.sums import Outcomes
from ir3de.routing.decision import Compiled, Terms
from ir3de.scorers.table import check_experts
from ir3de.selectors import Average, Selector
from ir3de.statistics.domain import Statistics

if TYPE_CHECKING:  # a process that only routes never pays for it
    from ir3de.outcomes.quality import Quality

OutcomeRows: TypeAlias = "Iterable[Mapping[str, Any]] | Outcomes"  # rows, or what was summed up from them


def collected(rows: OutcomeRows, embedding: Embedding, field: str) -> Outcomes:
    """The sums of rows, or sums made elsewhere with the same embedding."""
    if not isinstance(rows, Outcomes):
        from ir3de.outcomes.rows import collect_outcomes

        return collect_outcomes(rows, embedding=embedding, field=field)
    return _of_embedding(rows, embedding)


def _of_embedding(outcomes: Outcomes, embedding: Embedding) -> Outcomes:
    if outcomes.fingerprint != embedding.fingerprint:
        raise embedding_mismatch("the outcomes", outcomes, embedding)
    return outcomes


def of_model(name: str, rows: object, embedding: Embedding) -> Outcomes:
    """One model's outcomes, whoever else has scores in those rows."""
    if isinstance(rows, Outcomes):
        if name not in rows.models:
            raise InputError(f"the outcomes have no score of '{name}': they are of {', '.join(rows.models)}")
        return _of_embedding(rows, embedding).only(name)
    if isinstance(rows, (str, bytes, Mapping, Statistics)) or not isinstance(rows, Iterable):
        raise InputError(
            f"this router was fitted from outcomes: '{name}' needs rows with its scores, found {type(rows).__name__}"
        )
    from ir3de.outcomes.rows import collect_outcomes

    return collect_outcomes(rows, embedding=embedding, models=(name,))


def fit_parts(outcomes: Outcomes, embedding: Embedding, terms: Terms, *, default: str | None) -> RouterParts:
    """Fit, and compile; `terms` brings selector and policy along, `default` None takes the model of the best mean."""
    if not outcomes.cells:
        raise InputError("a router needs at least one model with a score")
    check_experts(len(outcomes.models))
    outcomes = outcomes.shared()
    from ir3de.outcomes.quality import fit_quality
    from ir3de.outcomes.table import outcome_table

    quality = fit_quality(outcomes, embedding.rows)
    models = outcomes.models
    terms = replace(
        terms,
        experts=models,
        default=best_on_average(quality) if default is None else models.index(default),
        expectation=quality.expectation,
    )
    return RouterParts(
        Compiled.build(replace(terms, policy=terms.policy.among(models)), outcome_table(quality)),
        embedding.tokenizer,
        quality.expectation.shrinkage,
        embedding.fingerprint,
        lambda: embedding,
        _no_statistics,
        outcomes=OutcomeParts(lambda: outcomes, quality.tried, default is not None),
    )


def changed_parts(parts: RouterParts, outcomes: Outcomes) -> RouterParts:
    """The router as if it had been fitted from these outcomes; a default that was given stays while its model does."""
    assert parts.outcomes is not None
    terms = parts.compiled.terms
    now, usual = terms.experts[terms.default], terms.experts[int(_at_rest(terms).argmax())]
    given = now in outcomes.models and (parts.outcomes.default_given or now != usual)
    return fit_parts(outcomes, parts.embedding(), terms, default=now if given else None)


def best_on_average(quality: Quality) -> int:
    """The model of the best mean over the tasks; ties go to the first."""
    return int(quality.expectation.at_rest.argmax())


def sums_of(parts: RouterParts) -> Outcomes:
    """A router's outcomes; an error for one that has none."""
    if parts.outcomes is None:
        raise InputError(
            "this router was fitted from texts, not from outcomes: Router.fit_outcomes(rows) makes such a one"
        )
    return parts.outcomes.sums()


def check_selector(selector: Selector) -> None:
    """Expected quality is read from mean scores and from nothing else."""
    if not isinstance(selector, Average) or selector.log_offset:
        raise InputError(
            f"a router from outcomes reads the average of its tokens' scores, found {selector!r}: use Average()"
        )


def refuse(parts: RouterParts, what: str) -> None:
    """Refuse what makes no sense for a router from outcomes."""
    if parts.outcomes is not None:
        raise InputError(f"this router was fitted from outcomes: {what}")


def _at_rest(terms: Terms) -> np.ndarray[Any, np.dtype[np.float64]]:
    assert terms.expectation is not None
    return terms.expectation.at_rest


def _no_statistics() -> Mapping[str, Statistics]:
    raise InputError("this router was fitted from outcomes: it has no statistics of domains, but router.outcomes")
