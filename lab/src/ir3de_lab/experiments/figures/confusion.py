"""Which expert each domain's items were sent to: the default router beside the paper's form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ir3de_lab.experiments.choices import Choices
from ir3de_lab.experiments.figures.canvas import WIDTH
from ir3de_lab.experiments.matrix import Floats
from ir3de_lab.experiments.results import Results, shown_name
from ir3de_lab.experiments.standings import DEFAULT, PAPER, standings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def matrices(results: Results) -> Figure | None:
    """One or two matrices of percentages, a row a domain."""
    shown = _shown(results)
    if not shown:
        return None
    from matplotlib.figure import Figure

    matrix = results.matrix
    rows, columns = len(matrix.domains), len(matrix.experts)
    width = WIDTH if len(shown) > 1 else 0.6 * WIDTH
    figure = Figure(figsize=(width, 1.5 + 0.42 * rows), layout="constrained")
    axes = figure.subplots(1, len(shown), squeeze=False)[0]
    for place, (panel, (name, choices)) in enumerate(zip(axes, shown, strict=True)):
        _draw(panel, shares(results, choices))
        panel.set_title(f"{name}: {results.accuracy(choices.columns):.1f} %")
        panel.set_xticks(range(columns), [shown_name(e) if e in matrix.domains else e for e in matrix.experts])
        panel.tick_params(axis="x", rotation=30)
        for label in panel.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
        panel.set_yticks(range(rows) if place == 0 else [], map(shown_name, matrix.domains) if place == 0 else [])
        panel.set_xlabel("sent to")
    axes[0].set_ylabel("items of")
    figure.suptitle(f"{results.title}: where items were sent, % of a domain's", fontsize=10)
    return figure


def shares(results: Results, choices: Choices) -> Floats:
    """(domains, experts)  in percent of each domain's items."""
    matrix = results.matrix
    counts = np.zeros((len(matrix.domains), len(matrix.experts)))
    np.add.at(counts, (matrix.domain, choices.columns), 1)
    return np.asarray(100 * counts / counts.sum(axis=1, keepdims=True))


def _shown(results: Results) -> list[tuple[str, Choices]]:
    rows = [row for row in standings(results) if row.choices is not None and row.ranked]
    ours = [(row.name, row.choices) for row in rows if row.name == DEFAULT and row.choices is not None]
    paper = [row for row in rows if row.group == PAPER and row.choices is not None and row.choices.axis == "k"]
    paper.sort(key=lambda row: "authors' code" not in row.name)
    return [*ours, *[(row.name, row.choices) for row in paper[:1] if row.choices is not None]]


def _draw(panel: Axes, percent: Floats) -> None:
    panel.imshow(percent, cmap="Blues", vmin=0, vmax=100, aspect="auto")
    panel.grid(visible=False)
    panel.spines[:].set_visible(False)
    for (row, column), value in np.ndenumerate(percent):
        if value >= 0.05:
            colour = "white" if value > 55 else "black"
            panel.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=8, color=colour)
