"""eval --replay: a candidate router beside what a gateway served."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ir3de.cli.accuracy_tables import matrix_table, prompts_table
from ir3de.cli.costs import weighted
from ir3de.cli.outcomes import check_clashes
from ir3de.cli.output import FAINT, Output, heading, percent, styled, table

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from ir3de.evaluation.replay import LoggedDecision, ReplayReport
    from ir3de.routing.decision import Decision

ALLOWED = ("router_path", "logs", "wanted", "weights", "as_json", "quiet")


def evaluate_replay(
    router_path: Path, logs: Sequence[str], wanted: int, weights: Mapping[str, float], out: Output
) -> None:
    """Route the prompts of the logs again and show what would change."""
    from ir3de.cli.progress import reading
    from ir3de.corpora import total_bytes
    from ir3de.evaluation.replay import DamagedLines, read_log, replay_log
    from ir3de.router import Router

    check_clashes("--replay", ALLOWED)
    total = total_bytes(logs)  # a misspelt path is found first
    router = weighted(Router.load(router_path), weights)
    damage, moved = DamagedLines(), list[dict[str, Any]]()

    def record(row: LoggedDecision, decision: Decision) -> None:
        if len(moved) < wanted:
            then = {"text": row.text, "before": row.expert, "served": row.served, "confidence_before": row.confidence}
            moved.append({**then, **decision.to_dict()})

    with reading(out, "replay", total) as (on_bytes, _count):
        rows = read_log(logs, damage, on_bytes=on_bytes)
        report = replay_log(router, rows, damage=damage, on_move=record if wanted else None)
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
        out.note(
            heading("Moved"), prompts_table(moved, ("before", "expert"), ("decided", "candidate"), out.console.width)
        )


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
        clearly = (
            f"; clearly more confident {report.more_confident:,}, clearly less confident {report.less_confident:,}"
        )
        yield styled(("Confidence  ", "bold"), (means, ""), (clearly, FAINT))
    counts = f"{report.abstained_before:,} → {report.abstained_after:,}"
    yield styled(("Abstained  ", "bold"), (counts, ""), (f"; {report.abstained_both:,} of them both times", FAINT))
    if report.costs is not None:
        spent = f"{report.costs.served:.6g} → {report.costs.candidate:.6g}"
        counted = f"{report.costs.prompts:,} of {report.prompts:,} prompts"
        known = f"; {counted}, where the tokens and both experts' prices are known"
        whose = f"{known}; answers as long as they were"
        yield styled(("Cost  ", "bold"), (spent, ""), (whose, FAINT))
