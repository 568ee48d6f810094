"""eval --replay: a candidate router beside what a gateway served."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ir3de.cli.accuracy_tables import matrix_table, prompts_table
from ir3de.cli.costs import weighted
from ir3de.cli.outcomes import check_clashes
from ir3de.cli.output import FAINT, Output, count_left_out, heading, line, percent, split_rows, table
from ir3de.cli.saving import load_router
from ir3de.cli.surest import SurestDecisions

if TYPE_CHECKING:
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

    check_clashes("--replay", ALLOWED)
    total = total_bytes(logs)  # a misspelt path is found first
    router = weighted(load_router(router_path), weights)
    damage, surest = DamagedLines(), SurestDecisions(wanted)

    def record(row: LoggedDecision, decision: Decision) -> None:
        then = {"text": row.text, "before": row.expert, "served": row.served}
        values = {"confidence_before": row.confidence, "expected_score_before": row.expected_score}
        surest.add(decision, lambda: {**then, **values, **decision.to_dict()})

    with reading(out, "replay", total) as (on_bytes, _count):
        logged = read_log(logs, damage, on_bytes=on_bytes)
        report = replay_log(router, logged, damage=damage, on_move=record if wanted else None)
    moved = surest.rows
    out.json({**report.to_dict(), "damaged": damage.lines, "moved": moved})
    if damage.lines:
        out.warn(f"{damage.lines:,} lines are damaged or no decisions and were passed over. {damage.first}")
    if out.as_json:
        return
    rest = f" as decided, {percent(report.served_agreement)} as served, {report.prompts:,} prompts"
    skipped = f", {report.without_text:,} rows without text left out" if report.without_text else ""
    out.result(line(("agreement ", ""), (percent(report.agreement), "bold"), (rest + skipped, FAINT)))
    counts, sides = ("before", "kept", "lost", "gained", "after"), ("decided", "candidate")
    changes, left_out = split_rows(list(report.changes.items()))
    if left_out:
        moves = sorted(report.changes.items(), key=lambda item: -(item[1].lost + item[1].gained))
        changes, _ = split_rows(moves)
    rows = [(name, *(f"{getattr(change, key):,}" for key in counts)) for name, change in changes]
    shown = table("expert", *counts, right=counts, rows=rows)
    out.note("", count_left_out(shown, left_out, "the most changes first; "), heading("Moves"))
    shown = matrix_table(report.experts, report.matrix, out.console.width, sides, room=out.table_width)
    out.note(shown, "", *_remarks(report))
    if moved:
        out.note(
            heading("Moved", "the most confident first"),
            prompts_table(moved, ("before", "expert"), sides, out.console.width),
        )


def _remarks(report: ReplayReport) -> Iterator[Text]:
    """Confidence, abstentions and costs, then and now."""
    if report.confidence_before is not None:
        means = f"{percent(report.confidence_before)} → {percent(report.confidence_after)} on average"
        clearly = f"; clearly higher for {report.more_confident:,} prompts, clearly lower for {report.less_confident:,}"
        yield line(("Confidence  ", "bold"), (means, ""), (clearly, FAINT))
    if report.expected_score_before is not None:
        means = f"{report.expected_score_before:.3f} → {report.expected_score_after:.3f} on average"
        yield line(("Expected score  ", "bold"), (means, ""))
    counts = f"{report.abstained_before:,} → {report.abstained_after:,}"
    yield line(("Abstained  ", "bold"), (counts, ""), (f"; {report.abstained_both:,} of them both times", FAINT))
    if report.costs is not None:
        spent = f"{report.costs.served:.6g} → {report.costs.candidate:.6g}"
        whose = f"; {report.costs.prompts:,} of {report.prompts:,} prompts have known tokens and prices of both experts"
        yield line(("Cost  ", "bold"), (spent, ""), (f"{whose}, for answers of the same length", FAINT))
