"""The tables beside the main one: what routers take, the paper's own figures, groups, experts that come and go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ir3de_lab.experiments import published
from ir3de_lab.experiments.cells import ABSENT, Cell, Row, Table, counted, gap, number, span, three_digits
from ir3de_lab.experiments.choices import LOAD, SHARED, Choices
from ir3de_lab.experiments.metrics import Judge, Performance, normalised_difference, score_difference
from ir3de_lab.experiments.results import CHOICES, DECENTRALISED, DYNAMIC, OUTCOMES, Results, shown_name, step_name
from ir3de_lab.experiments.standings import (
    DEFAULT,
    RIVALS,
    Standing,
    default_of,
    expert_name,
    extra_name,
    on_other_embedding,
)

YES, NO = "yes", "no"
ON_ACCELERATOR, ON_BUSY = "¹", "²"
MOST_LOAD = 1.5  # waiting programs a core, up to which times are good


def needs_table(results: Results, rows: Sequence[Standing]) -> Table:
    """What each router takes to fit, to ask and to have."""
    body, devices = [], dict.fromkeys("")
    for row in rows:
        if row.choices is not None:
            device = accelerator(row.choices)
            devices |= {device: None} if device else {}
            mark = (ON_ACCELERATOR if device else "") + (ON_BUSY if was_busy(row.choices) else "")
            body.append(Row(row.name, tuple(_needs(row.choices, mark)), row.group))
    words = ("central data", "language model", "adds an expert")
    columns = ("fit, s", "µs per prompt", "parameters", "size", *words)
    caption = [
        "Central data: whether a fit needs the texts of all domains in one place.",
        "Language model: whether one runs at every prompt.",
        "Adds an expert: whether it can do so without fitting the others again.",
        *(
            [f"{ON_ACCELERATOR} Measured on {', '.join(devices)}; all other times on processor cores."]
            if devices
            else []
        ),
        *(
            [f"{ON_BUSY} Measured while other programs kept the machine busy: several times too long."]
            if any(ON_BUSY in row.cells[0].text for row in body)
            else []
        ),
    ]
    title = f"{results.title}: what each router needs"
    return Table("needs", title, "router", columns, tuple(body), tuple(caption), (CHOICES,), words=words)


def with_left_out(table: Table, reasons: Mapping[str, str]) -> Table:
    """The table with a row for every router that was not run, after the other rivals, and the reasons below it."""
    rows = tuple(Row(name, (Cell(ABSENT),) * len(table.columns), RIVALS) for name in reasons)
    last = max((place for place, row in enumerate(table.rows, start=1) if row.group == RIVALS), default=len(table.rows))
    by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        by_reason.setdefault(reason, []).append(name)
    caption = [f"{ABSENT}, {'; '.join(names)}: {reason}." for reason, names in by_reason.items()]
    return replace(table, rows=(*table.rows[:last], *rows, *table.rows[last:]), caption=(*table.caption, *caption))


def was_busy(choices: Choices) -> bool:
    """Whether a router's times were measured on a machine with more to do than it has cores or accelerators."""
    load = choices.about.get(LOAD)
    return bool(choices.about.get(SHARED)) or (isinstance(load, (int, float)) and load > MOST_LOAD)


def accelerator(choices: Choices) -> str | None:
    """The accelerator that a router's times were measured on."""
    found = choices.about.get("accelerator")
    return str(found) if found else None


def beside_table(results: Results, rows: Sequence[Standing]) -> Table:
    """The paper's averages and ours."""
    paper = published.PUBLISHED[results.setting]
    home = default_of(rows)
    compared = [f"difference to {DEFAULT}"] if home is not None else []
    columns = ("paper, as printed", "paper, mean of its row", "here", "95 % interval", *compared, "row here")
    body = [row for name in paper.rows for row in _beside(paper, name, rows, home)]
    body += [Row(home.name, (Cell(ABSENT), Cell(ABSENT), *_here(home, home)))] if home is not None else []
    caption = (
        "Averages over the domains, in percent of their own experts.",
        f"Paper: {published.SOURCE}, {paper.label}, with k={paper.k} and {paper.neighbours} neighbours.",
        "Experts and texts differ from the paper's, so only the order of the routers can be compared.",
        *paper.notes,
    )
    title = f"{results.title}: next to the paper's figures"
    sources = (OUTCOMES, CHOICES) if results.choices else (OUTCOMES,)
    return Table("beside", title, "the paper's row", columns, tuple(body), caption, sources, words=("row here",))


def response_tables(results: Results, rows: Sequence[Standing]) -> list[Table]:
    """Where an item asks for several things: the share of things that were done, and of items with all of them done."""
    matrix = results.matrix
    several = [d for place, d in enumerate(matrix.domains) if (matrix.weight[matrix.domain == place] > 1).any()]
    return [_responses(results, rows, domain) for domain in several] if matrix.metric == "score" else []


def _responses(results: Results, rows: Sequence[Standing], domain: str) -> Table:
    matrix, home = results.matrix, default_of(rows)
    place = matrix.domains.index(domain)
    whole = (matrix.values == matrix.weight[:, None]).astype(np.float64)
    judge = Judge(replace(matrix, values=whole, weight=np.ones(len(matrix.items))))
    strict = {row.name: found for row in rows if (found := _judged_again(row, judge)) is not None}
    body = []
    for row in rows:
        if row.name in strict:
            cells = [number(found.raw[place]) for found in (row.performance, strict[row.name])]
            cells += [gap(score_difference(strict[row.name], strict[home.name], [place]))] if home is not None else []
            body.append(Row(row.name, tuple(cells), row.group))
    title = f"{results.title}, {shown_name(domain)}: by instruction and by response, in percent"
    caption = (
        "Per instruction: the share of all instructions that were followed, which the other tables show.",
        "Per response: the share of responses that follow every one of theirs.",
    )
    columns = ("per instruction", "per response", *([f"difference to {DEFAULT}, per response"] if home else []))
    sources = (OUTCOMES, CHOICES) if results.choices else (OUTCOMES,)
    return Table(f"responses-{domain}", title, "model or router", columns, tuple(body), caption, sources)


def _judged_again(row: Standing, judge: Judge) -> Performance | None:
    """A row's figures on other outcomes of the same items; what is drawn by lot or known in hindsight has none."""
    if row.choices is not None:
        return judge.of_experts(row.choices.columns)
    if row.expert is not None:
        return judge.of_column(row.expert)
    extra = next((name for name in judge.matrix.extras if extra_name(name) == row.name), None)
    return None if extra is None else judge.of_values(extra)


def group_tables(results: Results) -> list[Table]:
    """Where items of a domain come in groups, languages say: every model's figure in each."""
    matrix = results.matrix
    grouped = [
        place
        for place in range(len(matrix.domains))
        if len({matrix.group[item] for item in np.flatnonzero(matrix.domain == place)}) > 1
    ]
    return [_groups(results, place) for place in grouped]


def dynamic_table(results: Results) -> Table:
    """Experts added and removed one after another: accuracy and seconds, beside fitting a rival anew."""
    body = [
        Row(
            step_name(row),
            (
                Cell(str(len(row["experts"])), len(row["experts"])),
                number(row["accuracy"]),
                Cell(three_digits(row["seconds"]), row["seconds"]),
                _seconds(row.get("solve_seconds")),
                _seconds(row.get("retrain_seconds")),
            ),
        )
        for row in results.dynamic
    ]
    rivals = dict.fromkeys(str(row["retrained"]) for row in results.dynamic if row.get("retrained"))
    anew = f"{', '.join(rivals) or 'a rival'} fitted again, s"
    columns = ("experts", "routing accuracy", "seconds", "solve alone, s", anew)
    caption = (
        "Routing accuracy is in percent, on the test items of the experts that are there after the step.",
        "The seconds of a step include counting the added texts; the solve alone starts from their statistics.",
        *_sameness(results.dynamic),
    )
    title = f"{results.title}: experts added and removed"
    return Table("dynamic", title, "step", columns, tuple(body), caption, (DYNAMIC,))


def facts_table(results: Results) -> Table:
    """What was found when every domain was counted in a place of its own."""
    body = [
        Row(str(name).replace("_", " "), (Cell(_said(value)),))
        for name, value in results.decentralised.items()
        if name not in ("kind", "version", "setting", "about", "measures")
    ]
    title = f"{results.title}: every domain counted in a separate process"
    return Table("decentralised", title, "", ("found",), tuple(body), (), (DECENTRALISED,), words=("found",))


def _needs(choices: Choices, mark: str) -> Iterator[Cell]:
    for seconds in (choices.fit_seconds, choices.route_us):
        yield Cell(ABSENT) if seconds is None else Cell(three_digits(seconds) + mark, seconds)
    yield counted(choices.parameters)
    yield counted(choices.size_bytes, "B")
    for trait in (choices.traits.central_data, choices.traits.language_model, choices.traits.adds_experts):
        yield Cell(YES if trait else NO)


def _beside(paper: published.Published, name: str, rows: Sequence[Standing], home: Standing | None) -> Iterator[Row]:
    """A line for each row of ours that belongs to one of the paper's."""
    said = (number(paper.average(name)), number(paper.mean(name)))
    starts = published.HERE.get(name, (name,))
    found = [row for row in rows if row.name.startswith(starts) and not on_other_embedding(row)]
    if not found:
        yield Row(name, (*said, *[Cell(ABSENT)] * (2 + (home is not None)), Cell("not measured")))
    for place, row in enumerate(found):
        first = place == 0
        yield Row(name if first else "", (*(said if first else (Cell(""), Cell(""))), *_here(row, home)))


def _here(row: Standing, home: Standing | None) -> Iterator[Cell]:
    found = row.performance
    yield number(found.average)
    yield span(found.average_interval)
    if home is not None:
        yield gap(normalised_difference(found, home.performance, list(range(len(found.normalised)))))
    yield Cell(row.name)


def _groups(results: Results, place: int) -> Table:
    matrix = results.matrix
    items = np.flatnonzero(matrix.domain == place)
    names = np.array([matrix.group[item] for item in items])
    shown = [
        *(expert_name(expert, matrix) for expert in matrix.experts),
        *(extra_name(extra) for extra in matrix.extras),
    ]
    body = []
    for group in sorted(set(names.tolist())):
        part = items[names == group]
        figures = matrix.values[part].sum(axis=0) / matrix.weight[part].sum()
        figures = np.exp(figures) if matrix.metric == "perplexity" else 100 * figures
        body.append(Row(group, (Cell(f"{len(part):,}", len(part)), *(number(value) for value in figures.tolist()))))
    what = "perplexity" if matrix.metric == "perplexity" else "score in percent"
    domain = matrix.domains[place]
    title = f"{results.title}, {shown_name(domain)}: {what} by group"
    return Table(f"groups-{domain}", title, "group", ("items", *shown), tuple(body), (), (OUTCOMES,))


def _seconds(value: float | None) -> Cell:
    return Cell(ABSENT) if value is None else Cell(three_digits(value), value)


def _sameness(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What was found when the router after each step was compared with those fitted afresh."""
    if rows and "chosen" in rows[0]:  # older files compare with another fit
        yield f"After {_count(rows, 'identical')} the router is bit for bit the one that a fit with its scorer gives."
        yield f"After {_count(rows, 'chosen')} it is also the one of a fit that chooses the scorer on these texts."


def _count(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    found = sum(bool(row[name]) for row in rows)
    return "every step" if found == len(rows) else f"{found} of {len(rows)} steps"


def _said(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_said(part)}" for name, part in value.items())
    if isinstance(value, bool):
        return YES if value else NO
    if isinstance(value, (int, float)):
        return f"{value:,}" if isinstance(value, int) else three_digits(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
