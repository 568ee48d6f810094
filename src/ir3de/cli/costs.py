"""Costs of experts and the weights of costs: their options, and what is added and checked before they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import click

import ir3de
from ir3de import files
from ir3de.cli import lib
from ir3de.cli.options import Function, gather_options
from ir3de.cli.output import Output
from ir3de.errors import InputError

GivenCosts: TypeAlias = "dict[str, dict[str, float]]"  # expert, cost, value

KINDS = {"price": "2.0", "latency": "0.8", "memory": "16"}  # with an example of each
ALL_OTHERS = "*"  # in place of a name: every expert without such a cost
MOST_NAMED = 5  # experts that an error names


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
            help=f"The {kind} of an expert, in any unit: NAME={example}; '*=0' for all others. May be repeated.",
        )
        for kind, example in KINDS.items()
    ),
)


def weight_option(purpose: str) -> Callable[[Function], Function]:
    """--weight price=0.1, passed to the command as `weights`."""
    return click.option("--weight", "weights", multiple=True, metavar="COST=N", callback=parse_values, help=purpose)


once_weight_option = weight_option("Quality that one unit of cost is worth, this time only: price=0.1.")


def complete_costs(
    costs: GivenCosts, experts: Iterable[str], known: Mapping[str, Any] | None = None, *, before: Iterable[str] = ()
) -> GivenCosts:
    """The costs with `*` written out. Rejects bad ones, and experts that would be free by accident.

    `before` are the experts that the router has already, and `known` are their costs. If any of them has a price, then
    those without one are free on purpose.
    """
    names, had, old = tuple(experts), known or {}, frozenset(before)
    given = {name: dict(kinds) for name, kinds in costs.items() if name != ALL_OTHERS or name in names}
    common = {} if ALL_OTHERS in names else costs.get(ALL_OTHERS, {})
    for kind, value in common.items():
        for name in names:
            if kind not in given.get(name, {}) and not getattr(had.get(name, lib.policies.FREE), kind, 0):
                given.setdefault(name, {})[kind] = value
    lib.policies.check_policy(lib.policies.Policy(costs=given), names)
    had_prices = any(cost.price for cost in had.values())
    unpriced = [name for name in names if "price" not in given.get(name, {}) and not (had_prices and name in old)]
    if not unpriced or not (had_prices or any(kinds.get("price") for kinds in given.values())):
        return given
    shown, more = ", ".join(unpriced[:MOST_NAMED]), len(unpriced) - MOST_NAMED
    others = f" and {more:,} other{'s' * (more > 1)}" if more > 0 else ""
    raise InputError(
        f"other experts have a price, and {shown}{others} would be free: name their prices too, with --price NAME=N. "
        f"If they are free, add --price '{ALL_OTHERS}=0': {ALL_OTHERS} is every expert without a price"
    )


def warn_of_idle_weights(out: Output, router: ir3de.Router, weights: Mapping[str, float]) -> None:
    """Warn if the given weights have no effect: there is a strong share, or no expert has a cost."""
    if not any(weights.values()):
        return
    if router.policy.strong_share is not None:
        out.warn("the strong share of this router decides, so weights change nothing: `ir3de policy` can remove it")
    elif not any(router.policy.costs.values()):
        out.warn("no expert of this router has a cost, so weights change nothing: `ir3de policy` gives them costs")


def weigh(router: ir3de.Router, weights: Mapping[str, float]) -> ir3de.Router:
    """The router with these weights instead of its own, where any are given."""
    from dataclasses import replace

    return router.with_policy(replace(router.policy, weights=lib.policies.Cost.of(weights))) if weights else router


def list_amounts(cost: Mapping[str, Any]) -> str:
    """price 2, latency 0.8; a dash for no costs."""
    return ", ".join(f"{kind} {cost[kind]:g}" for kind in KINDS if cost.get(kind)) or "–"
