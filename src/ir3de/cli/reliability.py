"""What confidence claims beside how often it is right: as bars in the terminal, and as a drawing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.output import bar, percent, styled, table

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from ir3de.evaluation.accuracy import Report

WIDTH = 30
PICTURES = (".png", ".svg")


def parse_picture_path(context: click.Context, parameter: click.Parameter, value: str | None) -> Path | None:
    """A file to draw to; a click callback."""
    if value is not None and Path(value).suffix.lower() not in PICTURES:
        raise click.BadParameter(f"{value!r} ends neither in {' nor in '.join(PICTURES)}: name it so")
    return None if value is None else Path(value).expanduser()


def reliability_table(report: Report) -> Table:
    """One row for each interval of confidence that has prompts."""
    shown = table("confidence", "prompts", "claimed", "right", "", right=("prompts", "claimed", "right"))
    for part in report.reliability:
        if part.count and part.confidence is not None and part.accuracy is not None:
            shown.add_row(
                f"{100 * part.low:.0f} – {100 * part.high:.0f} %",
                f"{part.count:,}",
                percent(part.confidence),
                percent(part.accuracy),
                _claimed_and_right(part.confidence, part.accuracy),
            )
    return shown


def _claimed_and_right(claimed: float, right: float) -> Text:
    """How often it was right as a bar, and a line across it where the claim was."""
    colour = "green" if abs(right - claimed) < 0.1 else "yellow"
    drawn, place = bar(right, WIDTH, colour), min(WIDTH - 1, int(claimed * WIDTH))
    filled = drawn.plain[place] == "█"
    mark = styled(("│", f"black on {colour}" if filled else "bold"))
    return drawn[:place] + mark + drawn[place + 1 :]


def check_plots() -> None:
    """Say before hours of routing that nothing can be drawn."""
    from importlib.util import find_spec

    from ir3de.errors import MissingExtraError

    if find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "plots", "drawing a diagram")


def draw_reliability(report: Report, path: Path) -> None:
    """The reliability diagram, and below it how many prompts have which confidence."""
    from io import BytesIO

    from matplotlib.figure import Figure

    from ir3de.storage import files

    parts = [part for part in report.reliability if part.count]
    middles = [(part.low + part.high) / 2 for part in parts]
    width = 0.9 * (parts[0].high - parts[0].low)
    figure = Figure(figsize=(5, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    above.bar(middles, [part.accuracy for part in parts], width, color="tab:blue", alpha=0.8, label="right")
    above.plot([0, 1], [0, 1], color="grey", lw=1, ls=":")
    above.plot(middles, [part.confidence for part in parts], "k_", ms=22, mew=2, label="claimed")
    above.set(ylabel="share right", ylim=(0, 1), xlim=(0, 1))
    above.set_title(f"expected calibration error {100 * report.calibration_error:.1f} points", fontsize="medium")
    above.legend(loc="upper left")
    below.bar(middles, [part.count for part in parts], width, color="grey")
    below.set(xlabel="confidence", ylabel="prompts")
    drawn = BytesIO()
    figure.savefig(drawn, format=path.suffix[1:].lower(), dpi=150)
    files.make_folder(path.parent)
    files.write(path, drawn.getvalue())
