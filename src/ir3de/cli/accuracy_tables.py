"""Accuracy in tables: the headline, recall by expert, and who was taken for whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ir3de.cli.output import FAINT, bar, colour_of, percent, styled, table

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from ir3de.evaluation.accuracy import Report

MOST_IN_MATRIX = 14
MOST_CONFUSIONS = 15
SHADES = "░▒▓█"

Matrix = Sequence[Sequence[int]]


def headline(report: Report) -> Text:
    details = f" mean over experts, {percent(report.micro_accuracy)} of all {report.prompts:,} prompts"
    abstained = f", {report.abstained:,} abstained" if report.abstained else ""
    return styled(("accuracy ", ""), (percent(report.accuracy), "bold"), (details + abstained, FAINT))


def recall_table(report: Report) -> Table:
    shown = table("expert", "prompts", "recall", "", "precision", right=("prompts", "recall", "precision"))
    for index, name in enumerate(report.experts):
        recall = report.recall[name]
        shown.add_row(
            name,
            f"{sum(report.confusion[index]):,}",
            percent(recall),
            bar(recall or 0.0, 20, colour_of(index)),
            percent(report.precision[name]),
        )
    return shown


def matrix_table(experts: Sequence[str], matrix: Matrix, width: int, sides: tuple[str, str]) -> Table:
    """The matrix, shaded by row; for very many experts the largest confusions instead."""
    if len(experts) > MOST_IN_MATRIX:
        return _largest_confusions(experts, matrix, sides)
    needed = max(map(len, experts)) + sum(max(len(name), 5) + 3 for name in experts)
    headers = list(experts) if needed <= width else [str(n + 1) for n in range(len(experts))]
    shown = table(f"{sides[0]} ↓  {sides[1]} →", *headers, right=headers)
    for index, (name, row) in enumerate(zip(experts, matrix, strict=True)):
        total = sum(row) or 1
        cells = [_shaded(count, count / total, index == column) for column, count in enumerate(row)]
        shown.add_row(name if needed <= width else f"{index + 1} {name}", *cells)
    return shown


def _shaded(count: int, share: float, right: bool) -> Text:
    if count == 0:
        return styled(("·", FAINT))
    shade = SHADES[min(len(SHADES) - 1, int(share * len(SHADES)))]
    return styled((f"{shade} ", "green" if right else "red"), (f"{count:,}", ""))


def _largest_confusions(experts: Sequence[str], matrix: Matrix, sides: tuple[str, str]) -> Table:
    pairs = sorted(
        (-count, row, column)
        for row, counts in enumerate(matrix)
        for column, count in enumerate(counts)
        if count and row != column
    )
    shown = table(*sides, "prompts", right=("prompts",))
    for count, row, column in pairs[:MOST_CONFUSIONS]:
        shown.add_row(experts[row], experts[column], f"{-count:,}")
    return shown
