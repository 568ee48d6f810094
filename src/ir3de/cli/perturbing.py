"""The table of what perturbed prompts do to a router: for eval --robustness and bench robustness."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ir3de.cli.output import bar, percent, table

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de.evaluation.robustness import RobustnessReport


def effects_table(report: RobustnessReport) -> Table:
    """One line a perturbation, the prompts as they are first."""
    columns = ("accuracy", "change", "flipped", "either domain")
    shown = table("prompts", *columns, "", right=columns)
    shown.add_row("as they are", percent(report.accuracy), "", "", "", "")
    for effect in report.effects:
        shown.add_row(
            effect.perturbation,
            percent(effect.accuracy),
            f"{100 * effect.change:+.1f}",
            percent(effect.flipped),
            "" if effect.either is None else percent(effect.either),
            bar(effect.flipped, 20, "yellow"),
        )
    return shown
