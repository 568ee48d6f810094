"""eval --outcomes: how good the chosen models are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ir3de.cli.costs import weighted
from ir3de.cli.outcomes import outcome_rows
from ir3de.cli.output import FAINT, Output, bar, colour_of, facts, heading, line, percent, table
from ir3de.cli.saving import load_router

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de.evaluation.outcomes import MeanScores, OutcomeReport, StrongWeakReport


def evaluate_outcomes(
    router_path: Path,
    outcomes: Sequence[str],
    score_field: str,
    field: str | None,
    weights: Mapping[str, float],
    strong: str | None,
    weak: str | None,
    out: Output,
    **_: Any,
) -> None:
    """Route the rows and show what the chosen models scored, beside simpler ways to choose."""
    from ir3de.corpora import total_bytes
    from ir3de.evaluation.outcomes import evaluate_outcomes as measure

    total_bytes(outcomes)  # a misspelt path is found first
    router = weighted(load_router(router_path), weights)
    rows = outcome_rows(outcomes, field, score_field, out)
    report = measure(router, rows, field=score_field, strong=strong, weak=weak)
    out.json(report.to_dict())
    if report.unknown_models:
        out.warn(f"models that the router does not know were skipped: {', '.join(report.unknown_models)}")
    if out.as_json:
        return
    overall = report.overall
    tasks = "1 task" if len(report.tasks) == 1 else f"{len(report.tasks):,} tasks"
    counts = {
        "without a score of the chosen model": report.unscored,
        "abstained": report.abstained,
        "left out, without any score": report.left_out,
    }
    remarks = "".join(f", {count:,} {what}" for what, count in counts.items() if count)
    details = f" mean over {tasks}, {overall.prompts:,} prompts{remarks}"
    out.result(line(("mean score ", ""), (_number(overall.chosen), "bold"), (details, FAINT)))
    best = report.best_model or "none has scores on every task"
    out.note("", _tasks_table(report), line(("\nbest single, in hindsight: ", FAINT), (best, "")))
    if gain := report.gain:
        interval = f"  between {gain.lowest:+.3f} and {gain.highest:+.3f} (95 %)"
        out.note(line(("gain over it: ", FAINT), (f"{gain.mean:+.3f}", "bold"), (interval, FAINT)))
    if report.strong_weak:
        out.note(heading("Strong and weak"), _strong_weak_facts(report.strong_weak))
    out.note(heading("Chosen"), _choices_table(report))


def _strong_weak_facts(found: StrongWeakReport) -> Table:
    rows = [
        ("strong", f"{found.strong}, mean score {found.strong_score:.3f}"),
        ("weak", f"{found.weak}, mean score {found.weak_score:.3f}"),
        ("strong calls", f"{percent(found.strong_share)} as the router decides now"),
    ]
    if found.apgr is None:
        return facts([*rows, ("APGR", "none: the strong model is not better on these prompts")])
    return facts(
        [
            *rows,
            ("APGR", f"{found.apgr:.3f} ± {found.error:.3f} (standard error; 0.5 is random)"),
            ("CPT(50 %)", f"{percent(found.cpt_50)} strong calls recover half of the gap"),
            ("CPT(80 %)", f"{percent(found.cpt_80)} strong calls recover 80 % of it"),
        ]
    )


def _tasks_table(report: OutcomeReport) -> Table:
    def cells(scores: MeanScores) -> list[str]:
        values = (scores.chosen, scores.best_single, scores.oracle, scores.random)
        return [f"{scores.prompts:,}", *map(_number, values)]

    columns = ("prompts", "chosen", "best single", "oracle", "random")
    rows = [(task or "all", *cells(scores)) for task, scores in report.tasks.items()]
    shown = table("task", *columns, right=columns, rows=rows)
    if len(report.tasks) > 1:
        shown.add_row("mean", *cells(report.overall), style=FAINT)
    return shown


def _choices_table(report: OutcomeReport) -> Table:
    shown = table("model", "prompts", "share", "", right=("prompts", "share"))
    for index, (model, count) in enumerate(report.choices.items()):
        share = count / report.overall.prompts
        shown.add_row(model, f"{count:,}", percent(share), bar(share, 20, colour_of(index)))
    return shown


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
