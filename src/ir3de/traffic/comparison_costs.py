"""What two routers cost on the same requests: real token counts, prices, and savings a month."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np

from ir3de.evaluation.intervals import Estimate
from ir3de.traffic import estimates
from ir3de.traffic.columns import SECONDS_PER_DAY, Columns, Floats, Indices, renumber
from ir3de.traffic.comparison_report import CostComparison
from ir3de.traffic.prices import Price, infer_price

DAYS_PER_MONTH = 30.44
LEAST_DAYS = 1.0  # a shorter log does not show what a month costs
DAYS_AS_CLUSTERS = 14  # from so many days on, the requests of one day are one cluster of the costs


def compare_costs(
    columns: Columns, given: Mapping[str, Price], chosen: tuple[Indices, Indices], clusters: Indices
) -> tuple[CostComparison | None, Floats]:
    """The comparison, and for every request how much more the candidate costs; nan if that is not known."""
    tokens, served = np.array(columns.tokens), np.array(columns.served)
    costs, names = np.array(columns.costs), tuple(columns.experts)
    prices, inexact = dict(given), []
    answered = ~np.isnan(tokens[:, 0]) & ~np.isnan(costs)
    for number, name in enumerate(names):
        own = answered & (served == number)
        if name not in prices and (solved := infer_price(tokens[own], costs[own])) is not None:
            prices[name], is_exact = solved
            inexact += [] if is_exact else [name]
    used = {names[number] for one in chosen for number in np.unique(one)}
    prices = {name: price for name, price in prices.items() if name in used}
    table = np.full((len(names), 3), np.nan)
    for name, price in prices.items():
        table[columns.experts[name]] = price.as_row()
    live, candidate = (np.einsum("ij,ij->i", tokens, table[one]) for one in chosen)
    moved = chosen[0] != chosen[1]
    change = np.where(moved, candidate - live, 0.0)
    known, spread = ~np.isnan(change), _find_spread(tokens, table)
    if not np.nansum(table) > 0 or not (known & ~np.isnan(live)).any():
        return None, np.full(len(columns), np.nan)
    days = columns.find_days()
    cluster: Literal["conversation", "day"] = "day" if days.max() + 1 >= DAYS_AS_CLUSTERS else "conversation"
    own = renumber((days if cluster == "day" else clusters)[known])
    mean = estimates.find_mean(-change[known], own, spread)
    assert mean is not None
    span = (max(columns.times) - min(columns.times)) / SECONDS_PER_DAY
    volume = known.sum() / span * DAYS_PER_MONTH if span >= LEAST_DAYS else None
    lacking = moved & ~known
    unpriced = {names[one[place]] for one in chosen for place in np.flatnonzero(lacking)} - set(prices)
    both = known & ~np.isnan(live)
    return CostComparison(
        int(both.sum()),
        math.fsum(live[both]),
        math.fsum(candidate[both]),
        _scale(mean, 1_000.0),
        None if volume is None else _scale(mean, float(volume)),
        cluster,
        int(lacking.sum()),
        tuple(sorted(unpriced)),
        tuple(inexact),
        prices,
    ), change


def _find_spread(tokens: Floats, table: Floats) -> float:
    """How far apart the dearest and the cheapest expert are for a mean request: what one more move could change."""
    mean = np.nanmean(tokens, axis=0) if (~np.isnan(tokens[:, 0])).any() else np.zeros(3)
    costs = table[~np.isnan(table[:, 0])] @ mean
    return float(costs.max() - costs.min()) if len(costs) else 0.0


def _scale(estimate: Estimate, factor: float) -> Estimate:
    return Estimate(*(round(factor * one, 9) + 0.0 for one in (estimate.value, estimate.low, estimate.high)))
