"""drift: does traffic still look like the fit, and like the traffic before?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ir3de.cli import lib, options
from ir3de.cli.commands.learn import journal_option
from ir3de.cli.formats import FAINT, line, percent, printable
from ir3de.cli.output import Block, Output, Result, count_left_out, heading, hint, split_rows, table
from ir3de.cli.saving import load_router

TICKS = "▁▂▃▄▅▆▇█"
SURELY_STABLE = "no change was found"


@click.command()
@options.router_argument
@journal_option
@options.number_option("--reference", help="Requests at the beginning that are the reference.  [default: 4000]")
@options.output_options
def drift(router_path: Path, journal_path: Path | None, reference: int | None, out: Output) -> None:
    """Show how traffic has changed, against the fit and against the first requests of the journal.

    Words, experts, abstentions, scores, scripts, confidence, P(in domain) and length are looked at after every request.
    On average there is at most one false alarm in 100,000 requests, however often the command runs. Words need a
    journal that keeps text; with token ids, tokens take their place.

    \b
    Example:
      ir3de drift router --from feedback
      ir3de drift router --from feedback --json
    """
    if journal_path is None:
        raise click.UsageError("--from names the feedback folder, or the state folder of the gateway")
    router = load_router(router_path)
    wanted = {} if reference is None else {"reference_prompts": reference}
    monitor = lib.traffic.DriftMonitor(**wanted)
    with lib.journal.Journal.open(journal_path) as journal, out.spinner("looking at the requests"):
        report = lib.drift_report.measure_drift(router, journal.read(), monitor).to_dict()
    out.show(report, _view(report, monitor.reference_prompts))


def _view(report: Mapping[str, Any], wanted: int) -> Iterator[Block]:
    windows = len(report["rows"][0]["windows"]) if report["rows"] else 0
    yield heading("Traffic", f"{report['prompts']:,} requests in {windows} windows")
    experts, others = _split(report["rows"])
    shown, left_out = split_rows(experts)
    columns = ("fit", "reference", "now")
    body = table("", *columns, " ", right=columns, rows=[_row(row) for row in (*shown, *others)])
    yield Result(count_left_out(body, left_out))
    if report["is_learning"]:
        many = f"{report['reference_prompts']:,} of {wanted:,}"
        yield line(("the reference is not complete: ", "yellow"), (f"{many} requests; --reference takes fewer", ""))
    elif not report["changes"]:
        yield Result(line((SURELY_STABLE, "green")))
    for change in report["changes"]:
        yield Result(line(("● ", "red"), (printable(change["summary"]), "")))
    if report["changes"]:
        yield line((f"at most one false alarm in {report['prompts_per_false_alarm']:,.0f} requests, on average", FAINT))
        yield hint("ir3de label ROUTER --from FOLDER", "which prompts to label:")


def _split(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """The experts, those that changed most first; and the rest."""
    first_other = next((place for place, row in enumerate(rows) if row["name"] == "abstained"), len(rows))
    experts = sorted(rows[:first_other], key=lambda row: -abs((row["now"] or 0) - (row["reference"] or 0)))
    return experts, list(rows[first_other:])


def _row(row: Mapping[str, Any]) -> list[Block]:
    cells = [_cell(row[name], row["unit"], row["name"]) for name in ("fit", "reference", "now")]
    return [printable(row["name"]), *cells, line((draw_sparkline(row["windows"]), "cyan"))]


def _cell(value: float | None, unit: str, name: str) -> str:
    if value is None or unit == "share":
        return percent(value)
    return f"{value:.1f}" if name == "length" else f"{value:.3f}"


def draw_sparkline(values: Sequence[float | None]) -> str:
    """The values as small bars, from the least to the largest; a space where there is none.

    >>> draw_sparkline([0.0, 1.0, None, 0.5])
    '▁█ ▄'
    """
    known = [one for one in values if one is not None]
    low, span = min(known, default=0.0), max(known, default=0.0) - min(known, default=0.0)
    steps = len(TICKS) - 1
    return "".join(" " if one is None else TICKS[int((one - low) / span * steps) if span else 0] for one in values)
