"""The authors' evaluation of perplexity: of the items that are sent to an expert, only the first ones are scored.

Their code routes the first items of each domain, puts what each expert is sent into one list, domain after domain, and
scores as many of each list as it routed of a domain. An expert that is sent more leaves the rest out. What is left out
is missing from the figure of its domain, while the own expert's figure is that of all routed items: so a figure can
pass 100 by the items that are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ir3de_lab.experiments import settings
from ir3de_lab.experiments.cells import Cell, Row, Table, gap, marked, normalised_cells, number, span
from ir3de_lab.experiments.matrix import Matrix, Places
from ir3de_lab.experiments.metrics import Flags, Judge, Performance, normalised_difference
from ir3de_lab.experiments.results import CHOICES, OUTCOMES, Results, carried_over, shown_name
from ir3de_lab.experiments.settings import Protocol
from ir3de_lab.experiments.standings import DEFAULT, Standing, default_of, judged


def first_items(matrix: Matrix, number: int) -> Matrix:
    """The matrix of the first so many items of each domain."""
    chosen = np.sort(np.concatenate([np.flatnonzero(matrix.domain == d)[:number] for d in range(len(matrix.domains))]))
    return replace(
        matrix,
        items=tuple(matrix.items[place] for place in chosen),
        domain=matrix.domain[chosen],
        group=tuple(matrix.group[place] for place in chosen),
        weight=matrix.weight[chosen],
        values=matrix.values[chosen],
        clusters=matrix.cluster[chosen],
    )


def kept(columns: Places, number: int) -> Flags:
    """Which items are among the first so many that were sent to their expert.

    >>> kept(np.array([0, 1, 0, 0, 1]), 2).tolist()
    [True, True, True, False, True]
    """
    found = np.zeros(len(columns), bool)
    for column in np.unique(columns):
        found[np.flatnonzero(columns == column)[:number]] = True
    return found


@dataclass(frozen=True, eq=False)
class TruncatedJudge(Judge):
    """A judge who scores the first so many items of each expert."""

    number: int = 0

    def of_experts(self, columns: Places, kept_items: Flags | None = None) -> Performance:
        return super().of_experts(columns, kept(columns, self.number) if kept_items is None else kept_items)


@lru_cache(maxsize=16)
def truncated_standings(results: Results, number: int) -> tuple[Standing, ...]:
    """The routers of a setting by that evaluation; of a series the best by it, as in the paper."""
    return judged(results, TruncatedJudge(first_items(results.matrix, number), number=number))


def truncated_tables(results: Results) -> list[Table]:
    """A table for each protocol of the setting that scores some items only."""
    if results.setting not in settings.SHIPPED or not results.choices:
        return []
    protocols = settings.load(results.setting).protocol
    return [_table(results, name, protocol) for name, protocol in protocols.items() if protocol.scored]


def _table(results: Results, name: str, protocol: Protocol) -> Table:
    rows = truncated_standings(results, protocol.scored)
    part, home = first_items(results.matrix, protocol.scored), default_of(rows)
    honest = Judge(part)
    counted = [place for place, domain in enumerate(part.domains) if domain not in protocol.average_without]
    averages = {"Average": list(range(len(part.domains)))}
    if protocol.average_without:
        averages[f"Average without {' and '.join(map(shown_name, protocol.average_without))}"] = counted
    body = []
    for row in rows:
        assert row.choices is not None
        columns = carried_over(row.choices.columns, results.matrix, part)
        cells = [*_cells(row, list(averages.values()), home)]
        cells += [number(honest.of_experts(columns).average), _lost(columns, protocol.scored)]
        ranked = (*[row.ranked] * (len(part.domains) + len(averages)), *[False] * (len(cells) - len(part.domains)))
        body.append(Row(row.name, tuple(cells), row.group, ranked))
    compared = [f"Difference to {DEFAULT}"] if home is not None else []
    figures = (*map(shown_name, part.domains), *averages, "95 % interval", *compared)
    columns_shown = (*figures, "Average, all scored", "Not scored")
    title = f"{results.title}: by the evaluation of the protocol '{name}'"
    caption = tuple(_caption(protocol, part, rows))
    done = marked(body, DEFAULT)
    return Table(f"truncated-{name}", title, "router", columns_shown, done, caption, (OUTCOMES, CHOICES))


def _cells(row: Standing, averages: list[list[int]], home: Standing | None) -> Iterator[Cell]:
    found = row.performance
    yield from normalised_cells(found, None if home is None else home.performance, averages)
    yield span(found.average_interval)
    if home is not None:
        yield gap(normalised_difference(found, home.performance, averages[0]))


def _lost(columns: Places, number_scored: int) -> Cell:
    lost = int((~kept(columns, number_scored)).sum())
    return Cell(f"{lost:,}", lost)


def _caption(protocol: Protocol, part: Matrix, rows: Sequence[Standing]) -> Iterator[str]:
    yield (
        f"As in the authors' code: the first {protocol.scored} items of each domain are routed, {len(part.items):,} in "
        f"all, and of the items that an expert is sent, domain after domain, the first {protocol.scored} are scored."
    )
    yield (
        "An expert that is sent more leaves the rest out. A domain's figure is then that of the items that are left, "
        "divided by what its own expert reaches on all of them: so cells pass 100, though nothing here is drawn by lot."
    )
    if any(0.0 in row.performance.normalised for row in rows):
        yield "0.0: every item of the domain is left out."
    yield "Average, all scored: the same items and choices with none left out. Not scored: the items that are left out."
    if protocol.average_without:
        names = " and ".join(map(shown_name, protocol.average_without))
        yield f"The average that the paper prints for this setting leaves {names} out."
    yield f"Bold: the best of its column, if the interval of its difference to {DEFAULT} is above zero."
