"""bench dynamic, decentralised: experts that come and go, and domains counted apart, on a setting's own texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.plugins import FAINT, Output, facts, heading, hint, line, output_options, size, table
from ir3de_lab.cli.experiments import results_option, setting_option
from ir3de_lab.cli.shared import data_option, keep, number

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from ir3de_lab.experiments.dynamic import Step


@click.command()
@setting_option
@data_option
@results_option
@click.option(
    "--rounds", type=click.IntRange(1), default=3, show_default=True, metavar="N", help="Take each time so often."
)
@output_options
def dynamic(name: str, data: Path | None, results: Path, rounds: int, out: Output) -> None:
    """Add a setting's experts one by one, remove them again, and compare each step with a fresh fit.

    After each step: routing accuracy on the domains present, the seconds it took, the seconds rivals need to be fitted
    again from scratch, and whether the router has the bits of one fitted afresh: with the same scorer, and with one
    chosen on the domains present. Some minutes; needs the extra bench.

    \b
    Example:
      ir3de bench dynamic --setting clm --data suites/
    """
    from ir3de_lab.experiments import material, settings
    from ir3de_lab.experiments.dynamic import BEGIN, KIND, VERSION, measure, plan

    setting = settings.load(name)
    found = material.load(setting, data)
    total, steps = 1 + len(plan(setting.known)), measure(found, rounds=rounds)
    rows: list[Step] = []
    while len(rows) < total:
        with out.spinner(f"step {len(rows) + 1} of {total}"):
            rows.append(next(steps)[0])
    document = {
        "kind": KIND,
        "version": VERSION,
        "setting": setting.name,
        "about": _about(),
        "rounds": rounds,
        "rows": [row.to_dict() for row in rows],
    }
    taken = "each taken once" if rounds == 1 else f"medians of {rounds}"
    path = results / setting.name / "dynamic.json"
    keep(path, document)
    out.json(document)
    out.result(heading(f"{setting.title}: from {BEGIN} experts to {len(setting.known)} and back"), _steps(rows))
    out.result(
        _verdict(
            all(row.identical for row in rows), "after every step the bits of a router fitted afresh with its scorer"
        )
    )
    out.note(line((f"accuracy in percent; seconds, {taken}: ir3de from texts, rivals fitted again", FAINT)))
    _kept(out, path, name)


@click.command()
@setting_option
@data_option
@results_option
@output_options
def decentralised(name: str, data: Path | None, results: Path, out: Output) -> None:
    """Count each domain in a process of its own and compare the router with one fitted centrally.

    A process sees the texts of its domain alone and hands over a statistics file. One domain is counted in four
    shards as well, which are added up in every order. Statistics, table and every decision are compared.

    \b
    Example:
      ir3de bench decentralised --setting clm --data suites/
    """
    from ir3de_lab.experiments import material, settings
    from ir3de_lab.experiments.decentralised import KIND, VERSION, measure

    setting = settings.load(name)
    found = measure(material.load(setting, data), say=lambda doing: out.note(line((doing, FAINT))))
    head = {"kind": KIND, "version": VERSION, "setting": setting.name, "about": _about()}
    path = results / setting.name / "decentralised.json"
    keep(path, {**head, **found})
    out.json({**head, **found})
    out.result(heading(f"{setting.title}: every domain counted in a process of its own"), _files(found))
    out.result("", _comparison(found))
    out.result(_verdict(found["identical"], "the bits of the router fitted where all the texts are"))
    _kept(out, path, name)


def _about() -> dict[str, Any]:
    import os

    from ir3de_lab.benchmarks.measurement import package_version
    from ir3de_lab.experiments.provenance import this_process

    found = {**this_process(), "scikit-learn": package_version("scikit-learn")}
    if hasattr(os, "getloadavg"):
        found["load"] = round(os.getloadavg()[1], 2)  # of the last five minutes: times say little where others worked
    found["threads of matrix products"] = os.environ.get("OMP_NUM_THREADS", "as many as cores")
    return found


def _steps(rows: Sequence[Step]) -> Table:
    rivals = [rival.replace("logistic regression", "LR") for rival in rows[0].rivals]
    right = ("experts", "accuracy", "ir3de", "solve alone", *rivals)
    shown = table("step", *right, "a fresh fit", "chosen anew", right=right)
    for row in rows:
        shown.add_row(
            _step_name(row),
            str(len(row.experts)),
            f"{row.accuracy:.1f}",
            line((number(row.seconds), "bold green")),
            number(row.solve_seconds),
            *(number(seconds) for seconds in row.rivals.values()),
            _yes(row.identical),
            _yes(row.chosen),
        )
    return shown


def _step_name(row: Step) -> Text:
    if row.action == "begin":
        return line((", ".join(row.experts), "bold"))
    sign, style = ("+", "green") if row.action == "add" else ("−", "red")
    return line((f"{sign} ", style), (row.expert, "bold"))


def _files(found: dict[str, Any]) -> Table:
    right = ("texts", "statistics", "of the texts", "with a sample")
    shown = table("domain", *right, right=right)
    for name, texts in found["text_bytes"].items():
        sent = found["bytes"][name]
        shown.add_row(
            name, size(texts), size(sent), f"{100 * sent / texts:.2f} %", size(found["bytes_with_sample"][name])
        )
    return shown


def _comparison(found: dict[str, Any]) -> Table:
    (split, shards), seconds = next(iter(found["split"].items())), found["seconds"]
    return facts(
        [
            ("files", f"{found['files']}, each from a process of its own"),
            ("split", f"{split} in {shards} shards, added up in {found['orders']} orders"),
            ("decisions", f"{found['decisions']:,}"),
            *((f"{part} compared", _yes(same)) for part, same in found["compared"].items()),
            ("seconds", ", ".join(f"{what} {number(value)}" for what, value in seconds.items())),
        ]
    )


def _yes(same: bool) -> Text:
    return line(("the same", "green") if same else ("different", "bold red"))


def _verdict(same: bool, what: str) -> Text:
    return line(("✓ ", "bold green"), (what, "")) if same else line(("✗ not ", "bold red"), (what, ""))


def _kept(out: Output, path: Path, name: str) -> None:
    out.note(line(("kept in ", ""), (str(path), "bold")))
    out.note(hint(f"ir3de bench tables --setting {name}"))
