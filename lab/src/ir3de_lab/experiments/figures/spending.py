"""Quality against money: what is recovered over the share of strong calls, or the score over the mean cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from ir3de_lab.experiments import settings
from ir3de_lab.experiments.figures.canvas import CYCLE, GREEN, legend_below, panels, without_tokens
from ir3de_lab.experiments.results import Results, shown_name
from ir3de_lab.experiments.spending import APART, REFERENCE, buy_single, find_hull, trace_calls
from ir3de_lab.experiments.spending_tables import list_purchases, part_items

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 3.6  # inches
SPOTS = 201  # of a curve over thousands of items


def over_budgets(results: Results) -> Figure | None:
    """A panel for each domain, a curve for each router."""
    if not results.expectations or not settings.is_shipped(results.setting):
        return None
    setting = settings.load(results.setting)
    if setting.pair is not None:
        return _draw_calls(results, (setting.pair.strong, setting.pair.weak))
    return _draw_costs(results, setting)


def _draw_calls(results: Results, pair: tuple[str, str]) -> Figure:
    matrix = results.matrix
    figure, [axes] = panels([f"{results.title}: {shown_name(domain)}" for domain in matrix.domains], HEIGHT)
    looks = _choose_looks([found.router for found in results.expectations])
    for place, panel in enumerate(axes):
        for found in results.expectations:
            shares, recovered = trace_calls(matrix, found, pair, place)
            spots = np.unique(np.linspace(0, len(shares) - 1, SPOTS).astype(int))
            panel.plot(100 * shares[spots], 100 * recovered[spots], **looks[found.router])
        panel.plot([0, 100], [0, 100], color="0.5", linestyle=":", label="a random order")
        panel.set(xlabel="strong calls, %")
    axes[0].set_ylabel("gap recovered, %")
    _explain(figure, axes, looks)
    return figure


def _draw_costs(results: Results, setting: settings.Setting) -> Figure:
    parts = part_items(results.matrix, setting.unseen)
    factor, unit = (1.0, "billions of parameters") if setting.data.sizes else (1e3, "US$ per 1,000 answers")
    figure, [axes] = panels([f"{results.title}: {name}" for name in parts], HEIGHT)
    purchases = list(list_purchases(results, parts))
    looks = _choose_looks([router for router, _, _ in purchases])
    for router, _, bought in purchases:
        for name, panel in zip(parts, axes, strict=True):
            hull = find_hull(factor * bought[name].costs.mean(axis=1), 100 * bought[name].scores.mean(axis=1))
            x, y = np.array(hull).T
            panel.plot(x, y, **looks[router])
    for name, panel in zip(parts, axes, strict=True):
        _mark_models(panel, results, parts[name], factor)
        panel.set(xscale="linear" if setting.data.sizes else "log", xlabel=unit)
    axes[0].set_ylabel("mean score, %")
    _explain(figure, axes, looks)
    return figure


def _explain(figure: Figure, axes: Sequence[Axes], routers: Iterable[str]) -> None:
    """The legend, with one line for all routers that were fitted on each domain by itself."""
    if any(router.endswith(APART) for router in routers):
        axes[0].plot([], [], color="0.4", linestyle="--", label=f"fitted on {APART}")
    legend_below(figure, axes)


def _mark_models(panel: Axes, results: Results, items: Any, factor: float) -> None:
    single = buy_single(results.matrix, items)
    x, y = factor * single.costs.mean(axis=1), 100 * single.scores.mean(axis=1)
    panel.scatter(x, y, color="0.4", marker="x", s=18, label="single models", zorder=2)


def _choose_looks(routers: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A colour for each router, on a dashed line where it was fitted on each domain by itself."""
    fixed: dict[str, dict[str, Any]] = {
        REFERENCE: {"color": GREEN, "linewidth": 2.4, "zorder": 3},
        "zero router": {"color": "0.5", "linestyle": ":"},
        "oracle": {"color": "0.2", "linestyle": "-."},
    }
    colours = cycle(CYCLE)
    looks: dict[str, dict[str, Any]] = {}
    for router in sorted(routers, key=lambda router: (router.endswith(APART), router)):
        if router.endswith(APART):
            whole = looks[router.removesuffix(f", {APART}")]
            looks[router] = {**whole, "linestyle": "--", "label": None}
        else:
            look = fixed.get(router) or {"color": next(colours)}
            looks[router] = {**look, "label": without_tokens(router)}
    return looks
