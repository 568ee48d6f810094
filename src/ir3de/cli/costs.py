"""Costs of experts: the options that give them, and the tables that show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from ir3de.cli.options import Function, gather_options
from ir3de.cli.output import FAINT, Output, bar, colour_of, count_shown, format_value, line, name_others, percent, table
from ir3de.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de.policies import Cost
    from ir3de.router import Router
    from ir3de.routing.decision import Decision

GivenCosts: TypeAlias = "dict[str, dict[str, float]]"  # expert, cost, value

KINDS = {"price": "2.0", "latency": "0.8", "memory": "16"}  # with an example of each
BAR_WIDTH = 20


def parse_values(context: click.Context, parameter: click.Parameter, pairs: Iterable[str]) -> dict[str, float]:
    """name=number pairs; a click callback."""
    found: dict[str, float] = {}
    for pair in pairs:
        name, equals, value = pair.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError:
            equals = ""
        if not (name.strip() and equals):
            raise click.BadParameter(f"expected a name, = and a number, found {pair!r}")
    return found


def _gather_costs(costs_file: Path | None, **given: dict[str, float]) -> GivenCosts:
    """The costs in a JSON file, and those named on the command line."""
    import json

    from ir3de.storage import files

    costs: GivenCosts = {}
    if costs_file is not None:
        path = costs_file.expanduser()
        try:
            costs = json.loads(files.read(path))
        except ValueError as error:
            raise InputError(f"{path} is not JSON: {error}") from error
        if not isinstance(costs, dict) or not all(isinstance(cost, dict) for cost in costs.values()):
            raise InputError(f'{path} must hold an object such as {{"law": {{"price": 2.0}}}}, found {str(costs)[:80]}')
    for kind, values in given.items():
        for name, value in values.items():
            costs.setdefault(name, {})[kind] = value
    return costs


cost_options = gather_options(
    "costs",
    lambda costs_file, price, latency, memory: _gather_costs(costs_file, price=price, latency=latency, memory=memory),
    click.option(
        "--costs",
        "costs_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help='JSON file with what experts cost: {"NAME": {"price": 2.0, "latency": 0.8, "memory": 16}}.',
    ),
    *(
        click.option(
            f"--{kind}",
            multiple=True,
            metavar="NAME=N",
            callback=parse_values,
            help=f"The {kind} of an expert, in any unit: NAME={example}; may be repeated.",
        )
        for kind, example in KINDS.items()
    ),
)


def weight_option(purpose: str) -> Callable[[Function], Function]:
    """--weight price=0.1, passed to the command as `weights`."""
    return click.option("--weight", "weights", multiple=True, metavar="COST=N", callback=parse_values, help=purpose)


once_weight_option = weight_option("Quality that one unit of cost is worth, this time only: price=0.1.")


def check_costs(costs: GivenCosts, experts: Iterable[str]) -> None:
    """Refuse bad costs before anything is counted."""
    from ir3de.policies import Policy, check_policy

    check_policy(Policy(costs=costs), tuple(experts))


def warn_without_costs(out: Output, router: Router, weights: Mapping[str, float]) -> None:
    """Warn if weights are given and no expert has a cost."""
    if any(weights.values()) and not any(router.policy.costs.values()):
        out.warn("no expert of this router has a cost, so weights change nothing: `ir3de policy` gives them costs")


def weighted(router: Router, weights: Mapping[str, float]) -> Router:
    """The router with these weights instead of its own, where any are given."""
    from dataclasses import replace

    from ir3de.policies import Cost

    return router.with_policy(replace(router.policy, weights=Cost.of(weights))) if weights else router


def amounts(cost: Cost) -> str:
    """price 2, latency 0.8; a dash for what costs nothing."""
    return ", ".join(f"{kind} {getattr(cost, kind):g}" for kind in KINDS if getattr(cost, kind)) or "–"


def costs_table(router: Router) -> Table:
    """What each expert costs, and the penalty of that."""
    from ir3de.policies import FREE

    policy = router.policy
    penalties = policy.penalties(router.experts) or [0.0] * len(router.experts)
    shown = table("expert", *KINDS, "penalty", right=(*KINDS, "penalty"))
    for index, (name, penalty) in enumerate(zip(router.experts, penalties, strict=True)):
        cost = policy.costs.get(name, FREE)
        cells = [f"{getattr(cost, kind):g}" if getattr(cost, kind) else "–" for kind in KINDS]
        shown.add_row(line((name, colour_of(index))), *cells, percent(penalty) if penalty else "–")
    return shown


def utility_table(decision: Decision, router: Router, top: int | None = None) -> Table:
    """The first experts' quality, their costs, the penalty, and the utility that is left, best first."""
    from ir3de.policies import FREE, utilities

    penalties: Mapping[str, float] = decision.penalties or {}
    ranking = decision.ranking
    left = utilities([quality for _, quality in ranking], [penalties[name] for name, _ in ranking])
    shown = table("expert", "quality", "", "cost", "penalty", "utility", right=("quality", "penalty", "utility"))
    kept = count_shown(ranking, top)
    for place, ((name, quality), value) in enumerate(list(zip(ranking, left, strict=True))[:kept]):
        colour = colour_of(router.experts.index(name))
        shown.add_row(
            line((name, f"bold {colour}" if place == 0 else "")),
            format_value(decision, quality),
            bar(quality, BAR_WIDTH, colour),
            line((amounts(router.policy.costs.get(name, FREE)), FAINT)),
            f"-{format_value(decision, penalties[name])}" if penalties[name] else "–",
            f"{value:+.3f}",
        )
    if top is None and len(ranking) > kept:
        shown.add_row(line((name_others(len(ranking) - kept), FAINT)))
    return shown
