"""The tables of the curves: every λ, and every number of training prompts with the spread over its draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ir3de_lab.experiments.cells import Cell, Row, Table, gap, number, span
from ir3de_lab.experiments.choices import DRAW, Choices
from ir3de_lab.experiments.matrix import Floats
from ir3de_lab.experiments.metrics import Judge, normalised_difference
from ir3de_lab.experiments.resampling import Difference, estimate
from ir3de_lab.experiments.results import CHOICES, OUTCOMES, Results
from ir3de_lab.experiments.standings import DEFAULT, Standing, by_series, default_of

BY_STRENGTH, BY_PROMPTS = " by strength", " by training prompts"


def curve_tables(results: Results, rows: Sequence[Standing]) -> list[Table]:
    """Those that the choices allow."""
    made = [_strengths(results, rows)] if by_series(results.choices, "strength") else []
    return [*made, *([_prompts(results)] if drawn_curves(results) else [])]


def _strengths(results: Results, rows: Sequence[Standing]) -> Table:
    judge, home, body = Judge(results.matrix), default_of(rows), []
    every = list(range(len(results.matrix.domains)))
    for (series, _), curve in by_series(results.choices, "strength").items():
        for one in curve:
            found = judge.of_experts(one.columns)
            usual = ", as it is by default" if one.about.get("usual_strength") == one.at else ""
            cells = [number(found.average), span(found.average_interval)]
            if home is not None:
                cells.append(gap(normalised_difference(found, home.performance, every)))
            name = f"λ = {one.at or 0:g}{usual}"
            body.append(Row(name, (*cells, number(found.accuracy)), series.removesuffix(BY_STRENGTH)))
    compared = [f"Difference to {DEFAULT}"] if home is not None else []
    caption = (
        "Average over the domains, in percent of their own experts. Nothing is chosen: every λ is shown.",
        "λ is not the same thing in all forms: in the paper's it is added to sums over tokens, in the balanced token "
        "ridge it counts tokens of each domain, in the closed form windows of prompts, and in the discriminative fit "
        "it is that of a logistic regression.",
    )
    title = f"{results.title}: every strength λ of the penalty"
    columns = ("Average", "95 % interval", *compared, "Routing accuracy")
    return Table("strengths", title, "router", columns, tuple(body), caption, (OUTCOMES, CHOICES))


def _prompts(results: Results) -> Table:
    judge = Judge(results.matrix)
    curves = drawn_curves(results)
    figures = {
        name: {at: np.array([judge.of_experts(one.columns).average for one in drawn]) for at, drawn in curve.items()}
        for name, curve in curves.items()
    }
    body = []
    for name, curve in curves.items():
        for at, drawn in curve.items():
            accuracies = np.array([results.accuracy(one.columns) for one in drawn])
            own = figures[name][at]
            cells = [Cell(str(len(drawn)), len(drawn)), *_mean(accuracies), *_mean(own)]
            if DEFAULT in figures:
                others = figures[DEFAULT].get(at, own[:0])
                cells.append(gap(paired_by_draw(own, others)))
            body.append(Row(f"{at:g} prompts", tuple(cells), name))
    compared = [f"Difference of the averages to {DEFAULT}"] if DEFAULT in figures else []
    columns = ("draws", "Routing accuracy", "deviation", "Average", "its deviation", *compared)
    caption = (
        "Prompts are of each domain. All routers of a draw are fitted on the same prompts, which are drawn without "
        "repetition from the training texts; all items of the test are routed.",
        "Means and standard deviations over the draws. The difference is taken within each draw; its 95 % interval is "
        "that of the mean over the draws.",
    )
    title = f"{results.title}: few training prompts, in several draws"
    return Table("prompts", title, "router", columns, tuple(body), caption, (OUTCOMES, CHOICES))


def drawn_curves(results: Results) -> dict[str, dict[float, list[Choices]]]:
    """The routers by their name and the number of their prompts, a list of draws each; the default router first."""
    found: dict[str, dict[float, list[Choices]]] = {}
    for (series, _), curve in by_series(results.choices, "prompts").items():
        for one in curve:
            if DRAW in one.about:
                found.setdefault(series.removesuffix(BY_PROMPTS), {}).setdefault(one.at or 0.0, []).append(one)
    for curve_of in found.values():
        for drawn in curve_of.values():
            drawn.sort(key=lambda one: int(one.about[DRAW]))
    return dict(sorted(found.items(), key=lambda item: (item[0] != DEFAULT, item[0])))


def paired_by_draw(one: Floats, other: Floats) -> Difference | None:
    """The mean difference over the draws, with its 95 % interval; None unless both were drawn as often, and twice."""
    if len(one) != len(other) or len(one) < 2:
        return None
    gaps = one - other
    return estimate([float(gaps.mean())], [(gaps.sum() - gaps) / (len(gaps) - 1)])


def _mean(values: Floats) -> tuple[Cell, Cell]:
    spread = float(values.std(ddof=1)) if len(values) > 1 else None
    return number(float(values.mean())), number(spread, "{:.2f}")
