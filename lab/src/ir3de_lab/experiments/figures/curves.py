"""Routing accuracy over k, learning rates, training prompts and tokens read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ir3de_lab.experiments.choices import Choices
from ir3de_lab.experiments.figures.canvas import BLUE, CYCLE, GREEN, MARKERS, SKY, VERMILION, legend_below, panels
from ir3de_lab.experiments.matrix import Floats
from ir3de_lab.experiments.published import PUBLISHED
from ir3de_lab.experiments.results import Results
from ir3de_lab.experiments.standings import DEFAULT, by_series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACCURACY = "routing accuracy, %"
PROTOCOL = ", authors' protocol"
FORMS = {"authors' code": BLUE, "as printed": VERMILION}


def over_k(results: Sequence[Results]) -> Figure | None:
    """The paper's figure: accuracy over the number of tokens that vote, with -all, -avg and ours as lines across."""
    shown = _with(results, "k")
    shown = [one for one in shown if one.setting in PUBLISHED] or shown
    if not shown:
        return None
    figure, [axes] = panels([one.title for one in shown])
    for one, panel in zip(shown, axes, strict=True):
        for (series, protocol), curve in sorted(by_series(one.choices, "k").items(), key=_authors_first):
            _k_curve(panel, one, series, protocol, curve)
        own = _named(one, DEFAULT)
        if own is not None:
            panel.axhline(one.accuracy(own.columns), color=GREEN, linewidth=2, label=f"{DEFAULT} (default)")
        panel.set(xscale="log", xlabel="k, tokens that vote")
        plain_ticks(panel, sorted({at for curve in by_series(one.choices, "k").values() for at in _at(curve)}))
    axes[0].set_ylabel(ACCURACY)
    legend_below(figure, axes, columns=4)
    return figure


def over_rate(results: Sequence[Results]) -> Figure | None:
    """MoDEM's accuracy over learning rates: a colour for its size, a dashed line where the encoder is frozen."""
    shown: dict[Any, Results] = {}  # settings with the same prompts have the same curves, and one panel
    for one in _with(results, "rate"):
        shown.setdefault(tuple(tuple(_accuracies(one, c)) for c in by_series(one.choices, "rate").values()), one)
    if not shown:
        return None
    figure, [axes] = panels([one.title for one in shown.values()])
    for one, panel in zip(shown.values(), axes, strict=True):
        for (series, _), curve in by_series(one.choices, "rate").items():
            frozen, large = "frozen" in series, "large" in series
            looks: dict[str, Any] = {"linestyle": "--" if frozen else "-", "color": VERMILION if large else BLUE}
            panel.plot(_at(curve), _accuracies(one, curve), marker="s" if large else "o", label=series, **looks)
        panel.set(xscale="log", xlabel="learning rate")
    axes[0].set_ylabel(ACCURACY)
    legend_below(figure, axes, columns=2)
    return figure


def over_prompts(results: Sequence[Results]) -> Figure | None:
    """Accuracy over the number of training prompts a domain: the mean of the draws, and a standard deviation about it.

    Curves that were not drawn several times are lines.
    """
    return _over(results, "prompts", "training prompts a domain")


def over_strength(results: Sequence[Results]) -> Figure | None:
    """Accuracy over the strength λ of the penalty."""
    return _over(results, "strength", "strength λ")


def over_tokens(results: Sequence[Results]) -> Figure | None:
    """Accuracy over the number of tokens read of each item."""
    return _over(results, "tokens", "tokens read of an item")


def _over(results: Sequence[Results], axis: str, label: str) -> Figure | None:
    shown = _with(results, axis)
    if not shown:
        return None
    names = sorted({_told(series) for one in shown for series, _ in by_series(one.choices, axis)})
    others = [name for name in names if name != DEFAULT]
    figure, [axes] = panels([one.title for one in shown])
    for one, panel in zip(shown, axes, strict=True):
        for (series, _), curve in by_series(one.choices, axis).items():
            name = _told(series)
            place = others.index(name) if name != DEFAULT else 0
            looks: dict[str, Any] = {"color": CYCLE[place % len(CYCLE)], "marker": MARKERS[(place + 1) % len(MARKERS)]}
            looks = {"color": GREEN, "marker": "o", "linewidth": 2.4, "zorder": 3} if name == DEFAULT else looks
            at, mean, spread = _by_place(one, curve)
            panel.plot(at, mean, label=name, **looks)
            if spread.any():
                panel.fill_between(at, mean - spread, mean + spread, color=looks["color"], alpha=0.15, linewidth=0)
        panel.set(xscale="log", xlabel=label)
        if axis != "strength":  # those are powers of ten
            plain_ticks(panel, sorted({at for curve in by_series(one.choices, axis).values() for at in _at(curve)}))
    axes[0].set_ylabel(ACCURACY)
    legend_below(figure, axes, columns=3)
    return figure


def _told(series: str) -> str:
    """The router of a series, without the axis that its name ends in."""
    return series.partition(" by ")[0]


def _by_place(one: Results, curve: Sequence[Choices]) -> tuple[list[float], Floats, Floats]:
    """Where a curve has points, and the mean and the standard deviation of the accuracies there."""
    places = list(dict.fromkeys(_at(curve)))
    found = [np.array(_accuracies(one, [c for c in curve if c.at == place])) for place in places]
    return places, np.array([part.mean() for part in found]), np.array([part.std(ddof=len(part) > 1) for part in found])


def _k_curve(panel: Axes, one: Results, series: str, protocol: str, curve: Sequence[Choices]) -> None:
    form = next((form for form in FORMS if form in series), None)
    clean = protocol == "clean"
    colour = (FORMS.get(form or "", CYCLE[-2])) if clean else SKY
    label = f"{form or series}" + ("" if clean else PROTOCOL)
    panel.plot(_at(curve), _accuracies(one, curve), color=colour, marker="o" if clean else "s", label=label)
    for variant, line in (("all", "--"), ("avg", ":")):
        across = next(
            (c for c in one.choices if c.protocol == protocol and c.router.startswith(f"IR3DE-{variant} ({form})")),
            None,
        )
        if across is not None and clean:
            panel.axhline(one.accuracy(across.columns), color=colour, linestyle=line, label=f"{label}, {variant}")


def _authors_first(item: tuple[tuple[str, str], Sequence[Choices]]) -> tuple[bool, bool, str]:
    (series, protocol), _ = item
    return protocol != "clean", "authors' code" not in series, series


def _with(results: Sequence[Results], axis: str) -> list[Results]:
    return [one for one in results if by_series(one.choices, axis)]


def _named(one: Results, name: str) -> Choices | None:
    return next((c for c in one.choices if c.router == name and c.protocol == "clean"), None)


def _at(curve: Sequence[Choices]) -> list[float]:
    return [one.at or 0.0 for one in curve]


def _accuracies(one: Results, curve: Sequence[Choices]) -> list[float]:
    return [one.accuracy(choices.columns) for choices in curve]


def plain_ticks(panel: Axes, places: Sequence[float], most: int = 5) -> None:
    """Numbers as they are below some of the points, rather than powers of ten."""
    step = -(-len(places) // most)
    shown = list(places[::-1][::step])[::-1]
    panel.set_xticks(shown, [f"{place:g}" for place in shown])
    panel.minorticks_off()
