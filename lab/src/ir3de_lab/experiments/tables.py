"""A setting's tables as values, from its raw files alone.

`rendering` makes Markdown and LaTeX of them, the command line a table for the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ir3de_lab.experiments import published
from ir3de_lab.experiments.cells import ABSENT, Cell, Row, Table, gap, marked, normalised_cells, number, signed, span
from ir3de_lab.experiments.clusters import FEW
from ir3de_lab.experiments.complexity_tables import complexity_tables
from ir3de_lab.experiments.curve_tables import curve_tables
from ir3de_lab.experiments.matrix import Matrix
from ir3de_lab.experiments.metrics import (
    accuracy_difference,
    normalised_difference,
    perplexity_difference,
    score_difference,
)
from ir3de_lab.experiments.reachable_tables import reachable_table
from ir3de_lab.experiments.results import CHOICES, DRAWN, OUTCOMES, REFERENCE, Results, shown_name
from ir3de_lab.experiments.side_tables import (
    beside_table,
    dynamic_table,
    facts_table,
    group_tables,
    needs_table,
    response_tables,
    with_left_out,
)
from ir3de_lab.experiments.spending_tables import spending_tables
from ir3de_lab.experiments.standings import (
    BEST_OF,
    DEFAULT,
    EXTRAS,
    RANDOM,
    VALIDATION,
    Standing,
    default_of,
    standings,
)
from ir3de_lab.experiments.truncated import truncated_tables

NO_ACCURACY = f"{ABSENT}, Routing accuracy: no router can choose this model."
WHY_ABSENT = {  # by table; a table of routers that were left out says more
    "main": NO_ACCURACY,
    "reference": NO_ACCURACY,
    "needs": f"{ABSENT}: this was not measured for the router.",
    "beside": f"{ABSENT}: the paper has no such row, or there is none here.",
    "dynamic": f"{ABSENT}: this was not measured at the step.",
    "prompts": f"{ABSENT}: there is one draw, or {DEFAULT} was not drawn as often.",
}
LISTING = ("main", "raw", "reference", "needs")  # tables with a row for every router
DIFFERENCE = f"Difference to {DEFAULT}"
PAIRED = (
    f"{DIFFERENCE}: with the 95 % interval of the paired difference. ▲ or ▼: surely above or below {DEFAULT}, by "
    "Holm's rule over the rows of the table, so that the chance of any false sign in a column is at most 5 %. △ or ▽: "
    "the row's own interval excludes zero, but among so many rows that may be chance."
)
SIGNED = ("main", "raw", "reference", "drawn", "strengths")  # and those whose names begin with responses or truncated


def tables(results: Results) -> list[Table]:
    """Every table that the raw files of a setting allow."""
    rows = standings(results)
    made = [main_table(results, rows), raw_table(results, rows)]
    made += [needs_table(results, rows)] if results.choices else []
    made += [beside_table(results, rows)] if results.setting in published.PUBLISHED else []
    made += truncated_tables(results)
    made += spending_tables(results)
    made += [reference_table(results)] if results.reference is not None else []
    made += [drawn_table(results)] if results.drawn is not None else []
    made += [reachable_table(results)] if results.draws is not None else []
    made += response_tables(results, rows)
    made += group_tables(results)
    made += curve_tables(results, rows)
    made += complexity_tables(results)
    made += [dynamic_table(results)] if results.dynamic else []
    made += [facts_table(results)] if results.decentralised else []
    made = [replace(table, rows=signed(table.rows, DEFAULT)) if _is_signed(table.name) else table for table in made]
    made = [_explained(table) for table in made]
    made = [with_left_out(table, results.left_out) if table.name in LISTING else table for table in made]
    return [replace(table, setting=results.setting) for table in made]


def _is_signed(name: str) -> bool:
    return name in SIGNED or name.startswith(("responses-", "truncated-"))


def _explained(table: Table) -> Table:
    """The table with the reason below it, where a cell has no figure."""
    absent = any(cell.text == ABSENT for row in table.rows for cell in row.cells)
    why = WHY_ABSENT.get(table.name, f"{ABSENT}: there is no figure.")
    return replace(table, caption=(*table.caption, why)) if absent else table


def main_table(results: Results, rows: Sequence[Standing]) -> Table:
    """Figures in percent of each domain's own expert, as in the paper's tables."""
    title = f"{results.title}: performance in percent of the own expert"
    return _normalised(results, results.matrix, rows, "main", title)


def reference_table(results: Results) -> Table:
    """The same rows by the likelihood of the reference answers, a metric with little noise."""
    assert results.reference is not None
    title = f"{results.title}: perplexity of the reference answers, in percent of the own expert"
    rows = standings(results, results.reference)
    made = _normalised(results, results.reference, rows, "reference", title)
    return replace(made, sources=(REFERENCE, *made.sources[1:]))


def drawn_table(results: Results) -> Table:
    """The same rows by answers that were drawn at a temperature, several to a prompt."""
    assert results.drawn is not None
    asked = results.drawn.about.get("evaluation", {})
    how = f"{asked.get('draws')} draws a prompt at temperature {asked.get('draw_temperature')}"
    rows = standings(results, results.drawn)
    made = _normalised(results, results.drawn, rows, "drawn", f"{results.title}: {how}, in percent of the own expert")
    return replace(made, sources=(DRAWN, *made.sources[1:]))


def raw_table(results: Results, rows: Sequence[Standing]) -> Table:
    """The same rows before they are divided by the own expert's; scores, unlike perplexities, have a mean."""
    matrix, home = results.matrix, default_of(rows)
    perplexity = matrix.metric == "perplexity"
    what = "perplexity, lower is better" if perplexity else "score in percent, higher is better"
    parts = {} if perplexity else {**part_domains(results, matrix), "Mean": list(range(len(matrix.domains)))}
    form = "{:.2f}" if perplexity else "{:.1f}"
    difference = perplexity_difference if perplexity else score_difference
    body = []
    for row in rows:
        raw = row.performance.raw
        figures = (*raw, *(float(np.mean([raw[place] for place in part])) for part in parts.values()))
        cells = [number(figure, form) for figure in figures]
        if home is not None:
            cells.append(gap(difference(row.performance, home.performance, list(range(len(raw))))))
        body.append(Row(row.name, tuple(cells), row.group))
    unit = "of the geometric mean, %" if perplexity else "of the mean"
    columns = (*map(shown_name, matrix.domains), *parts, *([f"{DIFFERENCE}, {unit}"] if home is not None else []))
    caption = (PAIRED,) if home is not None else ()
    return Table("raw", f"{results.title}: {what}", "model or router", columns, tuple(body), caption, _sources(results))


def _normalised(results: Results, matrix: Matrix, rows: Sequence[Standing], name: str, title: str) -> Table:
    parts, home = part_domains(results, matrix), default_of(rows)
    compared = [DIFFERENCE] if home is not None else []
    columns = (*map(shown_name, matrix.domains), *parts, "Average", "95 % interval", *compared, "Routing accuracy")
    body = []
    for row in rows:
        # a domain's own expert is what the others are measured against, and no rival of theirs
        domains = [row.ranked and matrix.own[domain] != row.expert for domain in matrix.domains]
        ranked = (*domains, *[row.ranked] * (len(columns) - len(domains)))
        body.append(Row(row.name, tuple(_cells(row, list(parts.values()), home)), row.group, ranked))
    caption = tuple(_caption(rows, matrix))
    return Table(name, title, "model or router", columns, marked(body, DEFAULT), caption, _sources(results))


def part_domains(results: Results, matrix: Matrix) -> dict[str, list[int]]:
    """Where some domains were never fitted on: the places of those that were and of those that were not."""
    places = range(len(matrix.domains))
    unseen = [place for place in places if matrix.domains[place] in results.unseen]
    return {"Known": [place for place in places if place not in unseen], "Unseen": unseen} if unseen else {}


def _cells(row: Standing, parts: Sequence[list[int]], home: Standing | None) -> Iterator[Cell]:
    found, every = row.performance, list(range(len(row.performance.normalised)))
    difference = None if home is None else normalised_difference(found, home.performance, every)
    yield from normalised_cells(found, None if home is None else home.performance, parts)
    yield Cell(f"{found.average:.1f}", found.average, found.average_interval, difference=difference)
    yield span(found.average_interval)
    if home is not None:
        yield gap(difference)
        yield replace(number(found.accuracy), difference=accuracy_difference(found, home.performance))
    else:
        yield number(found.accuracy)


def _caption(rows: Sequence[Standing], matrix: Matrix) -> Iterator[str]:
    yield f"{len(matrix.items):,} items. Every figure is in percent of what the domain's own expert reaches."
    yield count_clusters(matrix)
    if default_of(rows) is not None:
        yield PAIRED
        yield (
            f"Bold: the best of its column, if the interval of its difference to {DEFAULT} is above zero; {DEFAULT} "
            "itself, if those of all routers and models that are not of this package are below zero."
        )
        yield "A domain's own expert, the oracle and protocols other than the clean one are never bold."
    drawn = next((row for row in rows if row.deviation is not None), None)
    if drawn is not None:
        yield f"{RANDOM}: mean and interval of 100 draws; standard deviation of its average: {drawn.deviation:.2f}."
    if any(row.choices is not None and row.choices.axis in BEST_OF for row in rows):
        yield "Where a row says best, k or the learning rate was chosen on the test items, as in the paper."
    if any(row.choices is not None and VALIDATION in row.choices.about for row in rows):
        yield "Where it says chosen, it was chosen on a tenth of the training texts that was held out."
    yield from _encoders(rows)
    if set(matrix.own.values()) - set(matrix.domains):
        yield "Here a domain's own expert is the model that scored best on its test items, known only in hindsight."
    if any(row.name == EXTRAS["average"] for row in rows):
        yield f"{EXTRAS['average']}: one model whose weights are the mean of the experts'."


def count_clusters(matrix: Matrix) -> str:
    """What intervals rest on: how many clusters each domain has."""
    names = [shown_name(domain) for domain in matrix.domains]
    counts = [len(np.unique(matrix.cluster[matrix.domain == place])) for place in range(len(matrix.domains))]
    told = ", ".join(f"{name} {count:,}" for name, count in zip(names, counts, strict=True))
    few = [name for name, count in zip(names, counts, strict=True) if count < FEW]
    rough = f" Fewer than {FEW} make a rough interval: {', '.join(few)}." if few else ""
    return (
        "The 95 % intervals come from leaving out the clusters of each domain one by one; items of one document or "
        f"question are one cluster. Clusters: {told}.{rough}"
    )


def _encoders(rows: Sequence[Standing]) -> Iterator[str]:
    """Which encoders read more of a text here than their vectors were trained on."""
    facts = [row.choices.about for row in rows if row.choices is not None]
    found = ((fact.get("encoder"), fact.get("encoder_trained_on_tokens"), fact.get("encoder_tokens")) for fact in facts)
    for name, trained, reads in dict.fromkeys(found):
        if trained and reads and trained < reads:
            yield f"{name} reads {reads} tokens of a text here; its makers trained its vectors on {trained}."


def _sources(results: Results) -> tuple[str, ...]:
    return (OUTCOMES, CHOICES) if results.choices else (OUTCOMES,)
