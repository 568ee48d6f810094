"""eval --replay: a candidate router beside what a gateway served."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.accuracy_tables import matrix_table
from ir3de.cli.costs import weighted
from ir3de.cli.options import Function
from ir3de.cli.outcomes import check_clashes
from ir3de.cli.output import FAINT, Output, heading, one_line, percent, styled, table

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from ir3de.evaluation.replay import LoggedDecision, ReplayReport
    from ir3de.routing.decision import Decision

ALLOWED = ("router_path", "replayed", "wanted", "weights", "as_json", "quiet")


def or_replay(instead: Callable[..., None]) -> Callable[[Function], Function]:
    """--replay: with it, `instead` runs."""

    def decorate(function: Function) -> Function:
        @click.option(
            "--replay",
            "replayed",
            multiple=True,
            metavar="LOG",
            help="Compare with the decisions log of a gateway instead of NAME=PATH; may be repeated.",
        )
        @wraps(function)
        def command(*args: Any, replayed: Sequence[str], **kwargs: Any) -> Any:
            if not replayed:
                return function(*args, **kwargs)
            check_clashes("--replay", ALLOWED)
            return instead(*args, replayed=replayed, **kwargs)

        return command  # type: ignore[return-value]

    return decorate


def evaluate_replay(
    router_path: Path, replayed: Sequence[str], wanted: int, weights: Mapping[str, float], out: Output, **_: Any
) -> None:
    """Route the log's prompts again and show what would change."""
    from ir3de.cli.progress import reading
    from ir3de.corpora import total_bytes
    from ir3de.evaluation.replay import DamagedLines, read_log, replay_log
    from ir3de.router import Router

    total = total_bytes(replayed)  # a misspelt path is found first
    router = weighted(Router.load(router_path), weights)
    damage, moved = DamagedLines(), list[dict[str, Any]]()

    def hear(row: LoggedDecision, decision: Decision) -> None:
        if len(moved) < wanted:
            then = {"text": row.text, "before": row.expert, "served": row.served, "confidence_before": row.confidence}
            moved.append({**then, **decision.to_dict()})

    with reading(out, "replay", total) as (on_bytes, _count):
        rows = read_log(replayed, damage, on_bytes=on_bytes)
        report = replay_log(router, rows, damage=damage, on_move=hear if wanted else None)
    out.json({**report.to_dict(), "damaged": damage.lines, "moved": moved})
    if damage.lines:
        out.warn(f"{damage.lines:,} lines are damaged or no decisions and were passed over. {damage.first}")
    if not out.as_json:
        _show(out, report, moved)


def _show(out: Output, report: ReplayReport, moved: list[dict[str, Any]]) -> None:
    out.result(_headline(report))
    out.note("", _changes_table(report), heading("Moves"))
    out.note(matrix_table(report.experts, report.matrix, out.console.width, ("decided", "candidate")))
    out.note("", *_remarks(report))
    if moved:
        out.note(heading("Moved"), _moved_table(moved, out.console.width))


def _headline(report: ReplayReport) -> Text:
    rest = f" as decided, {percent(report.served_agreement)} as served, {report.prompts:,} prompts"
    skipped = f", {report.without_text:,} rows without text left out" if report.without_text else ""
    return styled(("agreement ", ""), (percent(report.agreement), "bold"), (rest + skipped, FAINT))


def _changes_table(report: ReplayReport) -> Table:
    columns = ("before", "kept", "lost", "gained", "after")
    shown = table("expert", *columns, right=columns)
    for name, change in report.changes.items():
        shown.add_row(name, *(f"{getattr(change, column):,}" for column in columns))
    return shown


def _remarks(report: ReplayReport) -> Iterator[Text]:
    """Confidence, abstentions and costs, then and now."""
    if report.confidence_before is not None:
        means = f"{percent(report.confidence_before)} → {percent(report.confidence_after)} on average"
        clearly = f"; clearly surer {report.more_confident:,}, clearly less sure {report.less_confident:,}"
        yield styled(("Confidence  ", "bold"), (means, ""), (clearly, FAINT))
    counts = f"{report.abstained_before:,} → {report.abstained_after:,}"
    yield styled(("Abstained  ", "bold"), (counts, ""), (f"; {report.abstained_both:,} of them both times", FAINT))
    if report.costs is not None:
        spent = f"{report.costs.served:.6g} → {report.costs.candidate:.6g}"
        counted = f"{report.costs.prompts:,} of {report.prompts:,} prompts"
        known = f"; {counted}, where the tokens and both experts' prices are known"
        whose = f"{known}; answers as long as they were"
        yield styled(("Cost  ", "bold"), (spent, ""), (whose, FAINT))


def _moved_table(moved: list[dict[str, Any]], width: int) -> Table:
    shown = table("decided", "candidate", "confidence", "prompt", right=("confidence",))
    room = max(20, width - 48)
    for row in moved:
        confidence = "abstained" if row["abstained"] else percent(row["confidence"])
        shown.add_row(row["before"], row["expert"], confidence, one_line(row["text"], room))
    return shown
