"""What happens over time: the experts' losses, and experts that come and go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ir3de_lab.experiments import settings
from ir3de_lab.experiments.figures.canvas import CYCLE, GREEN, VERMILION, legend_below, panels
from ir3de_lab.experiments.figures.curves import ACCURACY
from ir3de_lab.experiments.results import Results, shown_name, step_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMOOTHED = 0.05  # share of the steps that a mean runs over


def training(results: Sequence[Results]) -> Figure | None:
    """Every expert's training loss, with the first seed: faint as it was, strong as a running mean."""
    shown = [one for one in results if one.losses and not settings.is_other_seed(one.setting)]
    if not shown:
        return None
    figure, [axes] = panels([one.title for one in shown])
    colours = (*CYCLE[:5], GREEN, *CYCLE[5:])
    for one, panel in zip(shown, axes, strict=True):
        for place, (expert, curve) in enumerate(one.losses.items()):
            steps, losses = np.array(curve).T if curve else (np.zeros(0), np.zeros(0))
            colour = colours[place % len(colours)]
            wide = max(1, round(SMOOTHED * len(steps)))
            panel.plot(steps, losses, color=colour, alpha=0.2, linewidth=0.8)
            smooth = np.convolve(losses, np.full(wide, 1 / wide), mode="valid") if len(losses) else losses
            panel.plot(steps[wide - 1 :], smooth, color=colour, label=shown_name(expert))
        panel.set(xlabel="step")
        panel.legend(handlelength=1.2)
    axes[0].set_ylabel("training loss, nats a token")
    return figure


def dynamic(results: Sequence[Results]) -> Figure | None:
    """Accuracy after each step, and its seconds beside those of fitting a rival anew."""
    shown = [one for one in results if one.dynamic]
    if not shown:
        return None
    figure, (above, below) = panels([one.title for one in shown], height=2.3, rows=2)
    for one, accuracy, seconds in zip(shown, above, below, strict=True):
        rows = one.dynamic
        places = np.arange(len(rows))
        accuracy.plot(places, [row["accuracy"] for row in rows], color=GREEN, marker="o")
        accuracy.set_xticks(places, [f"{len(row['experts'])}" for row in rows])
        accuracy.set_xlabel("experts")
        seconds.plot(places, [row["seconds"] for row in rows], "o", color=GREEN, label="ir3de: this step alone")
        rivals = dict.fromkeys(str(row["retrained"]) for row in rows if row.get("retrained"))
        anew = [row.get("retrain_seconds") or np.nan for row in rows]
        label = f"{', '.join(rivals) or 'a rival'}: fitted anew"
        seconds.plot(places, anew, "s", color=VERMILION, label=label if rivals else None)
        seconds.set_xticks(places, list(map(step_name, rows)), rotation=35, ha="right", rotation_mode="anchor")
        seconds.set(yscale="log")
        seconds.margins(y=0.2)
    above[0].set_ylabel(ACCURACY)
    below[0].set_ylabel("seconds")
    legend_below(figure, below, columns=2)
    return figure
