"""The table that parts the oracle's lead into signal and luck."""

from __future__ import annotations

from collections.abc import Iterator

from ir3de_lab.experiments.cells import Cell, Row, Table, gap, number
from ir3de_lab.experiments.halves import FROM_OUTCOMES
from ir3de_lab.experiments.reachable import DRAWS, Parted, compare_router, find_drawn, part_lead
from ir3de_lab.experiments.resampling import RESAMPLES
from ir3de_lab.experiments.results import DRAWN, Results, carried_over, shown_name


def reachable_table(results: Results) -> Table:
    """A row a domain, and the means over those whose answers are drawn and over all."""
    assert results.drawn is not None and results.draws is not None
    matrix, draws = results.drawn, results.draws
    drawn, every = list(find_drawn(draws, matrix)), list(range(len(matrix.domains)))
    rows = {shown_name(domain): [place] for place, domain in enumerate(matrix.domains)}
    rows |= {"Mean, drawn answers": drawn} if drawn != every else {}
    rows |= {"Mean, all": every}
    parted = {name: part_lead(matrix, draws, places) for name, places in rows.items()}
    fewer = [f"on {used}" for used in range(1, 1 + len(parted["Mean, all"].fewer))]
    columns = ("own expert", "oracle", "reachable oracle", *fewer, "lead", "signal", "signal ÷ lead, %")
    body = tuple(Row(name, tuple(_cells(one))) for name, one in parted.items())
    fixed = [shown_name(matrix.domains[place]) for place in every if place not in drawn]
    caption = (
        f"Scores in percent. The reachable oracle's expert is chosen on some of the {draws.shape[2]} draws of an item "
        "and scored on the others; a column such as 'on 1' chooses on fewer draws.",
        "Lead: oracle minus own expert. Signal: reachable oracle minus own expert. The rest of the lead is luck.",
        f"95 % intervals: {RESAMPLES:,} resamples of items within domains, with all their draws.",
        *(
            [f"{', '.join(fixed)}: options are chosen and not drawn, so luck cannot be told from signal."]
            if fixed
            else []
        ),
    )
    title = f"{results.title}: how much of the oracle's lead is signal"
    return Table("reachable", title, "domain", columns, body, caption, (DRAWN, DRAWS))


def _cells(one: Parted) -> Iterator[Cell]:
    yield from (number(value) for value in (one.own, one.oracle, one.reachable, *one.fewer))
    yield gap(one.lead)
    yield gap(one.signal)
    value, (low, high) = one.share
    yield Cell(f"{value:.0f} [{low:.0f}, {high:.0f}]".replace("-", "−"), value, (low, high))


def _tell_router(results: Results, places: list[int]) -> Iterator[str]:
    """Whether routing by outcomes reaches some of the signal."""
    found = next((one for one in results.choices if one.router == FROM_OUTCOMES), None)
    if found is not None and results.drawn is not None:
        columns = carried_over(found.columns, results.matrix, results.drawn)
        shown = gap(compare_router(results.drawn, columns, places))
        yield f"Drawn answers, '{FROM_OUTCOMES}' minus own expert: {shown.text}."
