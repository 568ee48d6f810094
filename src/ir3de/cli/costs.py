"""What experts cost, on the command line: how it is given, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from ir3de.cli.options import Function
from ir3de.cli.output import FAINT, Output, bar, colour_of, percent, styled, table, worth
from ir3de.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de.policies import Cost, Policy
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


def cost_options(function: Function) -> Function:
    """--costs, --price, --latency and --memory, handed over as one `costs`."""

    @wraps(function)
    def command(*args: Any, costs_file: Path | None, **kwargs: Any) -> Any:
        given = {} if costs_file is None else read_costs(costs_file)
        for kind in KINDS:
            for name, value in kwargs.pop(kind).items():
                given.setdefault(name, {})[kind] = value
        return function(*args, costs=given, **kwargs)

    for kind in reversed(KINDS):
        command = click.option(
            f"--{kind}",
            multiple=True,
            metavar="NAME=N",
            callback=parse_values,
            help=f"What an expert takes, in any unit: NAME={KINDS[kind]}; may be repeated.",
        )(command)
    return click.option(
        "--costs",
        "costs_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help='What experts take, from a JSON file: {"NAME": {"price": 2.0, "latency": 0.8, "memory": 16}}.',
    )(command)  # type: ignore[return-value]


def weight_option(purpose: str) -> Callable[[Function], Function]:
    """--weight price=0.1, handed over as `weights`."""
    return click.option("--weight", "weights", multiple=True, metavar="COST=N", callback=parse_values, help=purpose)


def read_costs(path: Path) -> GivenCosts:
    """The costs in a JSON file."""
    import json

    from ir3de.storage import files

    path = path.expanduser()
    try:
        found = json.loads(files.read(path))
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(cost, dict) for cost in found.values()):
        raise InputError(f'{path} must hold an object such as {{"law": {{"price": 2.0}}}}, found {str(found)[:80]}')
    return found


def check_costs(costs: GivenCosts, experts: Iterable[str]) -> None:
    """Say before anything is counted what the router would say after."""
    from ir3de.policies import Policy, check_policy

    check_policy(Policy(costs=costs), tuple(experts))


def warn_without_costs(out: Output, router: Router, weights: Mapping[str, float]) -> None:
    """Weights say nothing about experts that are all free."""
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


def describe_policy(router: Router) -> dict[str, Any]:
    """Plain values, ready for JSON."""
    return {"default": router.default, **router.policy.to_dict()}


def costs_table(router: Router) -> Table:
    """What each expert costs, and what that takes from its quality."""
    from ir3de.policies import FREE

    policy: Policy = router.policy
    taken = policy.penalties(router.experts) or [0.0] * len(router.experts)
    shown = table("expert", *KINDS, "weighs", right=(*KINDS, "weighs"))
    for index, (name, penalty) in enumerate(zip(router.experts, taken, strict=True)):
        cost = policy.costs.get(name, FREE)
        cells = [f"{getattr(cost, kind):g}" if getattr(cost, kind) else "–" for kind in KINDS]
        shown.add_row(styled((name, colour_of(index))), *cells, percent(penalty) if penalty else "–")
    return shown


def utility_table(decision: Decision, router: Router, top: int | None = None) -> Table:
    """Every expert's quality, what its costs take from it, and what is left, best first."""
    from ir3de.policies import FREE, utilities

    penalties: Mapping[str, float] = decision.penalties or {}
    ranking = decision.ranking
    left = utilities([quality for _, quality in ranking], [penalties[name] for name, _ in ranking])
    shown = table("expert", "quality", "", "cost", "weighs", "utility", right=("quality", "weighs", "utility"))
    for place, ((name, quality), value) in enumerate(list(zip(ranking, left, strict=True))[:top]):
        colour = colour_of(router.experts.index(name))
        shown.add_row(
            styled((name, f"bold {colour}" if place == 0 else "")),
            worth(decision, quality),
            bar(quality, BAR_WIDTH, colour),
            styled((amounts(router.policy.costs.get(name, FREE)), FAINT)),
            f"-{worth(decision, penalties[name])}" if penalties[name] else "–",
            f"{value:+.3f}",
        )
    return shown
