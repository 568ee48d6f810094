"""The rows of a table: every single expert, router and bound of a setting with its figures, in a fixed order.

Of a series over k, neighbours or learning rates the best on the test items is shown, as in the paper; and beside it
the one chosen on held-out training texts, where all of the series were tried on those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ir3de_lab.experiments.choices import EMBEDDING, Choices
from ir3de_lab.experiments.matrix import Floats, Matrix
from ir3de_lab.experiments.metrics import Judge, Performance, normalised_difference
from ir3de_lab.experiments.reachable import reach
from ir3de_lab.experiments.resampling import find_leanings, find_signs
from ir3de_lab.experiments.results import Results, carried_over, shown_name

EXPERTS, RIVALS, PAPER, OURS, BOUND = "Single models", "Other routers", "The paper's router", "This package", "Bound"
GROUPS = (EXPERTS, RIVALS, PAPER, OURS, BOUND)
FAMILY_GROUPS = {"rivals": RIVALS, "paper": PAPER, "ours": OURS}
BEST_OF = {"k": "k", "neighbours": "k", "rate": "rate"}  # axes of which the best is shown, and its letter
VALIDATION = "validation"  # what a router's file says about held-out training texts: the percentage right
CURVES = ("prompts", "tokens", "strength")  # axes for figures only
EXTRAS = {"average": "Experts average", "base": "Base model"}
RANDOM, REACHABLE, ORACLE, DEFAULT = "Random router", "Reachable oracle", "Oracle", "ir3de"
ORDER = (  # how names begin, in the order they are shown; others follow by name
    "naive Bayes", "TF-IDF", "hashed", "MLP-router", "BERT-router", "kNN, CLS", "kNN", "MoDEM-small", "MoDEM-large",
    "IR3DE-avg", "IR3DE-all", "IR3DE, ", "ir3de", "token ridge", "prompt ridge", "posterior", "cross-entropy",
    "kernel ridge",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Standing:
    """One row: who it is and how it did."""

    name: str
    group: str  # one of GROUPS
    performance: Performance
    choices: Choices | None = None
    expert: str | None = None  # the single expert that it is
    ranked: bool = True  # whether it may be the best of a column
    deviation: float | None = None  # of the average over draws, where it is drawn


@lru_cache(maxsize=16)  # tables and figures ask for the same ones
def standings(results: Results, matrix: Matrix | None = None) -> tuple[Standing, ...]:
    """All rows of a setting; another matrix of the same items may be scored with the same choices."""
    judge = Judge(results.matrix if matrix is None else matrix)
    rows = [*_single(judge, results.matrix), _random(judge), *_routers(results, judge)]
    bounds = [Standing(ORACLE, BOUND, judge.oracle(), ranked=False)]
    if results.draws is not None and matrix is results.drawn:
        bounds.insert(0, Standing(REACHABLE, BOUND, judge.of_points(reach_all(results)), ranked=False))
    return (*sorted(rows, key=_place), *bounds)


def reach_all(results: Results) -> Floats:
    """What the reachable oracle scores on each drawn item."""
    assert results.draws is not None and results.drawn is not None
    return reach(results.draws[:, : len(results.drawn.experts)], results.drawn.own_expert)


def judged(results: Results, judge: Judge) -> tuple[Standing, ...]:
    """The routers of a setting alone, by a judge of the same items or of some of them."""
    return tuple(sorted(_routers(results, judge), key=_place))


def default_of(rows: Sequence[Standing]) -> Standing | None:
    """This package's default router, to which the others are compared."""
    return next((row for row in rows if row.name == DEFAULT), None)


def find_average_signs(rows: Sequence[Standing]) -> dict[str, tuple[int, int]]:
    """Which way the average of each row surely differs from the default router's, and which way by its own interval.

    For the first, all rows are one family.
    """
    home = default_of(rows)
    every = list(range(len(rows[0].performance.normalised))) if rows else []
    differences = [
        None if home is None or row is home else normalised_difference(row.performance, home.performance, every)
        for row in rows
    ]
    signs = zip(find_signs(differences), find_leanings(differences), strict=True)
    return dict(zip((row.name for row in rows), signs, strict=True))


def on_other_embedding(row: Standing) -> bool:
    """Whether a row is there to compare embeddings: the same router stands on the usual one in another row."""
    return row.choices is not None and EMBEDDING in row.choices.about


def expert_name(expert: str, matrix: Matrix) -> str:
    """A single expert's row: "Math expert" where it is a domain's, its own name where it is a model's."""
    return f"{shown_name(expert)} expert" if expert in matrix.domains else expert


def extra_name(extra: str) -> str:
    """A model that no router chooses.

    >>> extra_name("average"), extra_name("instruction-fine-tuned")
    ('Experts average', 'Instruction fine tuned')
    """
    return EXTRAS.get(extra, extra.replace("-", " ").capitalize())


def best_name(series: str, axis: str, at: float, how: str = "best") -> str:
    """The name of a series' best router, or of the one that was chosen without the test items.

    >>> best_name("IR3DE (authors' code)", "k", 50.0)
    "IR3DE, best k=50 (authors' code)"
    """
    head, bracket, tail = series.partition(" (")
    return f"{head}, {how} {BEST_OF[axis]}={at:g}{bracket}{tail}"


def chosen_of(curve: Sequence[Choices]) -> Choices | None:
    """The first router of a curve that was most often right on held-out training texts, if all were tried on those."""
    if len(curve) < 2 or not all(isinstance(one.about.get(VALIDATION), (int, float)) for one in curve):
        return None
    return max(curve, key=lambda one: float(one.about[VALIDATION]))


def by_series(choices: Sequence[Choices], axis: str) -> dict[tuple[str, str], list[Choices]]:
    """The curves over an axis, each in order, by (series, protocol)."""
    curves: dict[tuple[str, str], list[Choices]] = {}
    for one in choices:
        if one.axis == axis and one.series is not None and one.at is not None:
            curves.setdefault((one.series, one.protocol), []).append(one)
    return {key: sorted(curve, key=lambda one: one.at or 0.0) for key, curve in sorted(curves.items())}


def _single(judge: Judge, matrix: Matrix) -> Iterator[Standing]:
    for expert in judge.matrix.experts:
        yield Standing(expert_name(expert, matrix), EXPERTS, judge.of_column(expert), expert=expert)
    for extra in judge.matrix.extras:
        yield Standing(extra_name(extra), EXPERTS, judge.of_column(extra))


def _random(judge: Judge) -> Standing:
    performance, deviation = judge.random()
    return Standing(RANDOM, RIVALS, performance, deviation=deviation)


def _routers(results: Results, judge: Judge) -> Iterator[Standing]:
    for one in results.choices:
        if one.axis not in (*BEST_OF, *CURVES):
            yield _router(one.router, one, results, judge)
    for axis in BEST_OF:
        for (series, _), curve in by_series(results.choices, axis).items():
            tried = [_router(one.router, one, results, judge) for one in curve]
            best = max(tried, key=lambda row: row.performance.average)
            at = best.choices.at if best.choices is not None else None
            if len(curve) > 1 and at is not None and best.choices is not None:
                yield Standing(
                    _told(best_name(series, axis, at), best.choices.protocol),
                    best.group,
                    best.performance,
                    best.choices,
                    ranked=best.ranked,
                )
                if (chosen := chosen_of(curve)) is not None and chosen.at is not None:
                    yield _router(best_name(series, axis, chosen.at, "chosen"), chosen, results, judge)
            else:
                yield best


def _router(name: str, one: Choices, results: Results, judge: Judge) -> Standing:
    columns = carried_over(one.columns, results.matrix, judge.matrix)
    group = FAMILY_GROUPS.get(one.family, RIVALS)
    # the authors' protocol fits on test prompts where there are no others: such a row is shown and not ranked
    ranked = one.protocol == "clean"
    return Standing(_told(name, one.protocol), group, judge.of_experts(columns), one, ranked=ranked)


def _told(name: str, protocol: str) -> str:
    """The name with its protocol, where that is not the clean one and is not said yet."""
    return name if protocol == "clean" or "protocol" in name else f"{name}, {protocol}' protocol"


def _place(row: Standing) -> tuple[object, ...]:
    """Groups in their order, clean before others; single models and the random router as they come."""
    group = GROUPS.index(row.group)
    if row.choices is None:
        return (group, 0)
    known = next((place for place, start in enumerate(ORDER) if row.name.startswith(start)), len(ORDER))
    printed = row.group == PAPER and "as printed" in row.name
    return (group, 1, row.choices.protocol != "clean", printed, known, row.name)
