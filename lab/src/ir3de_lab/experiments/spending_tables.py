"""Tables of quality against money: APGR and CPT with a strong and a weak model, AIQ where answers have costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ir3de_lab.experiments import settings
from ir3de_lab.experiments.cells import ABSENT, Cell, Row, Table, marked, number
from ir3de_lab.experiments.expectations import Expectations
from ir3de_lab.experiments.matrix import Matrix, Places
from ir3de_lab.experiments.resampling import Difference
from ir3de_lab.experiments.results import EXPECTATIONS, OUTCOMES, Results, shown_name
from ir3de_lab.experiments.spending import (
    REFERENCE,
    Purchases,
    buy,
    buy_single,
    compare_aiq,
    compare_calls,
    measure_aiq,
    measure_calls,
)
from ir3de_lab.experiments.standings import BOUND, OURS, RIVALS

PUBLISHED = "Published by others"
# the best of each column among RouteLLM's routers that were trained with labels of MMLU: Ong et al., arXiv:2406.18665
ROUTELLM_MMLU = ("RouteLLM's best, each column by itself", 0.603, 35.4, 70.3)
SOURCES = (OUTCOMES, EXPECTATIONS)
BOLD = (
    f"A figure is bold where it is the best and surely better than that of '{REFERENCE}', by Holm's rule over the "
    "rows of the table."
)
LEFT_OUT = f"Intervals are of {{}} minus that of '{REFERENCE}'; clusters of items are left out, one or a few at a time."
BEHIND = "minus ir3de, 95 %"


def spending_tables(results: Results) -> list[Table]:
    """The tables that a setting allows: none where no router says what it expects."""
    if not results.expectations or not settings.is_shipped(results.setting):
        return []
    pair = settings.load(results.setting).pair
    return [_calls_table(results, (pair.strong, pair.weak)) if pair is not None else _costs_table(results)]


def _calls_table(results: Results, pair: tuple[str, str]) -> Table:
    matrix = results.matrix
    rows = [_calls_row(results, found, pair) for found in _order(results.expectations)]
    places = range(len(matrix.domains))
    random = (number(0.5, "{:.3f}"), Cell(ABSENT), number(50.0), number(80.0))
    rows.append(Row("a random order", random * len(places), BOUND))
    name, apgr, *calls = ROUTELLM_MMLU
    told = [Cell(ABSENT) for _ in places for _ in range(4)]
    at = 4 * matrix.domains.index("mmlu") if "mmlu" in matrix.domains else None
    if at is not None:
        told[at : at + 4] = [number(apgr, "{:.3f}"), Cell(ABSENT), *map(number, calls)]
        rows.append(Row(name, tuple(told), PUBLISHED))
    columns = [
        f"{shown_name(domain)} {what}" for domain in matrix.domains for what in ("APGR", BEHIND, "CPT(50)", "CPT(80)")
    ]
    caption = (
        f"{len(matrix.items):,} items; strong is {pair[0]}, weak is {pair[1]}.",
        "APGR: the share of the gap between the two that is recovered, on average over all shares of strong calls.",
        "CPT(x): the percentage of strong calls that recovers x % of the gap. Lower is better.",
        "A router that was fitted on each domain by itself must be told the domain of a prompt.",
        LEFT_OUT.format("APGR"),
        BOLD,
        "The published figures are of other training data, and of all prompts that RouteLLM tests on. Its figures on "
        "GSM8K are n/a here: none could be checked.",
    )
    words = tuple(name for name in columns if name.endswith(BEHIND))
    title = f"{results.title}: what strong calls recover"
    return Table("spending", title, "router", tuple(columns), marked(rows, REFERENCE), caption, SOURCES, words=words)


def _calls_row(results: Results, found: Expectations, pair: tuple[str, str]) -> Row:
    cells: list[Cell] = []
    reference = _find_reference(results.expectations)
    for place in range(len(results.matrix.domains)):
        made = measure_calls(results.matrix, found, pair, place)
        if made is None:
            cells += [Cell(ABSENT)] * 4
            continue
        gap = None
        if reference is not None and found.router != REFERENCE:
            gap = compare_calls(results.matrix, found, reference, pair, place)
        cells += [*_compare(number(made.apgr, "{:.3f}"), gap, "{:+.3f}"), number(made.cpt_50), number(made.cpt_80)]
    ranked = tuple(place % 4 == 0 for place in range(len(cells)))
    return Row(found.router, tuple(cells), OURS if found.family == "ours" else RIVALS, ranked)


def _costs_table(results: Results) -> Table:
    matrix = results.matrix
    setting = settings.load(results.setting)
    parts = part_items(matrix, setting.unseen)
    spans = {name: find_span(matrix, places) for name, places in parts.items()}
    reference = _find_reference(results.expectations)
    others = {} if reference is None else {part: _buy(results, reference, parts[part]) for part in parts}
    rows = []
    for name, group, bought in list_purchases(results, parts):
        cells: list[Cell] = []
        for part in parts:
            other = None if name == REFERENCE else others.get(part)
            gap = None if other is None else compare_aiq(bought[part], other, spans[part])
            cells += _compare(number(measure_aiq(bought[part], spans[part])), gap, "{:+.1f}")
        rows.append(Row(name, tuple(cells), group, tuple(group != BOUND and i % 2 == 0 for i in range(len(cells)))))
    columns = tuple(column for part in parts for column in (f"{part} AIQ", BEHIND))
    caption = (
        f"{len(matrix.items):,} items, {len(matrix.experts)} models.",
        "AIQ: the mean score in percent over all budgets from the cheapest to the dearest single model.",
        "The zero router mixes single models and knows nothing of the prompt. The oracle knows every score and cost.",
        _explain_sizes(setting.data.sizes)
        if setting.data.sizes
        else "A router that was fitted on each domain by itself must be told the domain of a prompt.",
        LEFT_OUT.format("AIQ"),
        BOLD,
    )
    title = f"{results.title}: quality over all budgets"
    return Table("spending", title, "router", columns, marked(rows, REFERENCE), caption, SOURCES, words=(BEHIND,))


def _explain_sizes(sizes: Mapping[str, float]) -> str:
    least, most = min(sizes.values()), max(sizes.values())
    return f"No costs are known: the models' sizes, from {least} to {most} billion parameters, take their place."


def list_purchases(results: Results, parts: dict[str, Places]) -> Iterator[tuple[str, str, dict[str, Purchases]]]:
    """Every router, the zero router and the oracle: name, group, and what each buys of each part of the items."""
    matrix = results.matrix
    for found in _order(results.expectations):
        group = OURS if found.family == "ours" else RIVALS
        yield found.router, group, {name: _buy(results, found, places) for name, places in parts.items()}
    yield "zero router", RIVALS, {name: buy_single(matrix, places) for name, places in parts.items()}
    if matrix.costs is not None:
        values, costs = matrix.values[:, : len(matrix.experts)], matrix.costs
        oracle = {name: buy(matrix, values, costs[places], places) for name, places in parts.items()}
        yield "oracle", BOUND, oracle


def part_items(matrix: Matrix, unseen: Sequence[str] = ()) -> dict[str, Places]:
    """The places of each domain's items, or of those with training rows and of those without, and of all."""
    parts = {shown_name(domain): np.flatnonzero(matrix.domain == at) for at, domain in enumerate(matrix.domains)}
    if unseen:
        new = np.isin(matrix.domain, [matrix.domains.index(domain) for domain in unseen])
        parts = {"Tasks fitted on": np.flatnonzero(~new), "Unseen tasks": np.flatnonzero(new)}
    return {**parts, "All": np.arange(len(matrix.items))}


def find_span(matrix: Matrix, places: Places) -> tuple[float, float]:
    """What the cheapest and the dearest single model cost on average."""
    assert matrix.costs is not None
    means = matrix.costs[places].mean(axis=0)
    return float(means.min()), float(means.max())


def _buy(results: Results, found: Expectations, places: Places) -> Purchases:
    assert found.costs is not None
    return buy(results.matrix, found.scores, found.costs, places)


def _find_reference(found: Sequence[Expectations]) -> Expectations | None:
    return next((one for one in found if one.router == REFERENCE), None)


def _order(found: Sequence[Expectations]) -> list[Expectations]:
    """This package's routers first, then its rivals, by name."""
    return sorted(found, key=lambda one: (one.family != "ours", one.router != REFERENCE, one.router))


def _compare(cell: Cell, difference: Difference | None, form: str) -> tuple[Cell, Cell]:
    """A figure, and the interval of its difference to that of the reference beside it."""
    if difference is None:
        return cell, Cell(ABSENT)
    low, high = difference.interval
    told = f"{form.format(low)} to {form.format(high)}"
    return replace(cell, difference=difference), Cell(told, interval=difference.interval)
