"""Accuracy in tables: the headline, recall by expert, and who was taken for whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ir3de.cli.output import (
    FAINT,
    NONE_FITS,
    bar,
    colour_of,
    count_left_out,
    line,
    one_line,
    percent,
    split_rows,
    table,
)

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from ir3de.evaluation import RobustnessReport
    from ir3de.evaluation.accuracy import Report

MAX_MATRIX_EXPERTS = 14
MAX_CONFUSION_ROWS = 15
RELIABILITY_WIDTH = 30  # characters
SHADES = "░▒▓█"

Matrix = Sequence[Sequence[int]]


def headline(report: Report) -> Text:
    """The accuracy, as in a proof, and what it means; how many prompts went right where that is something else."""
    from ir3de.evaluation.prompts import NOTABLE

    details = f" of {report.prompts:,} prompts, by the most probable expert"
    if abs(report.accuracy - report.mean_accuracy) > NOTABLE:
        details += f"; mean over experts {percent(report.mean_accuracy)}"
    if report.routed_accuracy != report.accuracy:
        abstained = f", {report.abstained:,} abstained" if report.abstained else ""
        details += f"; {percent(report.routed_accuracy)} went right{abstained}"
    return line(("accuracy ", ""), (percent(report.accuracy), "bold"), (details, FAINT))


def recall_table(report: Report) -> Group:
    """One row for each expert; of many, those with the lowest recall."""
    shown = table("expert", "prompts", "recall", "", "precision", right=("prompts", "recall", "precision"))
    experts, left_out = split_rows(report.experts)
    if left_out:
        measured = [name for name in report.experts if report.recall[name] is not None]
        experts, _ = split_rows(sorted(measured, key=lambda name: report.recall[name] or 0.0))
        left_out = len(report.experts) - len(experts)
    for name in experts:
        index, recall = report.experts.index(name), report.recall[name]
        shown.add_row(
            name,
            f"{report.sizes[name]:,}",
            percent(recall),
            bar(recall or 0.0, 20, colour_of(index)),
            percent(report.precision[name]),
        )
    return count_left_out(shown, left_out, "the lowest recall first; ")


def matrix_table(
    experts: Sequence[str], matrix: Matrix, width: int, sides: tuple[str, str], *, room: int | None = None
) -> Table:
    """The matrix, shaded by row, its columns numbered if their names need more than `width`.

    For very many experts, and where there is no `room` for it, the largest confusions instead.
    """
    if len(experts) > MAX_MATRIX_EXPERTS:
        return _largest_confusions(experts, matrix, sides)
    needed = max(map(len, experts)) + sum(max(len(name), 5) + 3 for name in experts)
    headers = list(experts) if needed <= width else [str(n + 1) for n in range(len(experts))]

    def cell(index: int, column: int) -> Text:
        if not (count := matrix[index][column]):
            return line(("·", FAINT))
        shade = SHADES[min(len(SHADES) - 1, int(count / sum(matrix[index]) * len(SHADES)))]
        return line((f"{shade} ", "green" if index == column else "red"), (f"{count:,}", ""))

    places = range(len(experts))
    widest = max(len(f"{count:,}") for row in matrix for count in row) + 2  # with its shade
    if needed > width and max(map(len, experts)) + 3 + len(experts) * (widest + 3) > (room or width):
        return _largest_confusions(experts, matrix, sides)
    names = experts if needed <= width else [f"{index + 1} {name}" for index, name in enumerate(experts)]
    rows: list[tuple[str | Text, ...]]
    rows = [(names[index], *(cell(index, column) for column in places)) for index in places]
    return table(f"{sides[0]} ↓  {sides[1]} →", *headers, right=headers, rows=rows)


def _largest_confusions(experts: Sequence[str], matrix: Matrix, sides: tuple[str, str]) -> Table:
    pairs = sorted(
        (-count, row, column)
        for row, counts in enumerate(matrix)
        for column, count in enumerate(counts)
        if count and row != column
    )
    rows = [(experts[row], experts[column], f"{-count:,}") for count, row, column in pairs[:MAX_CONFUSION_ROWS]]
    return table(*sides, "prompts", right=("prompts",), rows=rows)


def reliability_table(report: Report) -> Table:
    """One row for each interval of confidence that has prompts."""
    shown = table("confidence", "prompts", "mean", "accuracy", "", right=("prompts", "mean", "accuracy"))
    for part in report.reliability:
        if part.count and part.confidence is not None and part.accuracy is not None:
            shown.add_row(
                f"{100 * part.low:.0f} – {100 * part.high:.0f} %",
                f"{part.count:,}",
                percent(part.confidence),
                percent(part.accuracy),
                _draw_accuracy(part.confidence, part.accuracy),
            )
    return shown


def coverage_table(report: Report) -> Table:
    """One row for each threshold: how many prompts it leaves, and how many of those are wrong."""
    columns = ["threshold", "answered", "wrong", *(["with unknown"] if report.unknown else [])]
    shown = table(*columns, "", right=columns)
    for point in report.coverage:
        more = [] if point.error_with_unknown is None else [percent(point.error_with_unknown)]
        worst = point.error if point.error_with_unknown is None else point.error_with_unknown
        shares = (percent(point.coverage), percent(point.error), *more)
        shown.add_row(f"{100 * point.threshold:.1f} %", *shares, bar(worst, RELIABILITY_WIDTH, "red"))
    return shown


def _draw_accuracy(claimed: float, right: float) -> Text:
    """The accuracy as a bar, and the mean confidence as a line across it."""
    colour = "green" if abs(right - claimed) < 0.1 else "yellow"
    drawn, place = bar(right, RELIABILITY_WIDTH, colour), min(RELIABILITY_WIDTH - 1, int(claimed * RELIABILITY_WIDTH))
    filled = drawn.plain[place] == "█"
    mark = line(("│", f"black on {colour}" if filled else "bold"))
    return drawn[:place] + mark + drawn[place + 1 :]


def effects_table(report: RobustnessReport) -> Table:
    """One line a perturbation, the prompts as they are first."""
    columns = ("accuracy", "change", "flipped", "either domain")
    rows: list[Sequence[str | Text]] = [("as they are", percent(report.accuracy), "", "", "", "")]
    for effect in report.effects:
        either = "" if effect.either is None else percent(effect.either)
        figures = (percent(effect.accuracy), f"{100 * effect.change:+.1f}", percent(effect.flipped), either)
        rows.append((effect.perturbation, *figures, bar(effect.flipped, 20, "yellow")))
    return table("prompts", *columns, "", right=columns, rows=rows)


def prompts_table(rows: Sequence[Mapping[str, Any]], keys: Sequence[str], titles: Sequence[str], width: int) -> Table:
    """Prompts with two experts each, such as the right one and the chosen one, and the confidence or expected score."""
    name = "expected score" if "expected_score" in rows[0] else "confidence"
    shown = table(*titles, name, "prompt", right=(name,))
    for row in rows:
        value = f"{row['expected_score']:.3f}" if "expected_score" in row else percent(row["confidence"])
        value = row["reason"] if row["abstained"] else value
        shown.add_row(*(row[key] or NONE_FITS for key in keys), value, one_line(row["text"], max(20, width - 48)))
    return shown
