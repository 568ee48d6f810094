"""policy: what experts cost, what that is worth, and when to abstain, changed without a fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.costs import GivenCosts, amounts, cost_options, costs_table, describe_policy, weight_option
from ir3de.cli.options import output_options, router_argument
from ir3de.cli.output import Output, facts, percent, styled

if TYPE_CHECKING:
    from ir3de.router import Router


@click.command()
@router_argument
@cost_options
@weight_option("What a unit of a cost is worth in quality: price=0.1; may be repeated.")
@click.option("--threshold", type=float, metavar="P", help="Abstain where no expert is this likely, from 0 to 1.")
@click.option("--default", metavar="NAME", help="Expert for the prompts the router abstains on.")
@output_options
def policy(
    router_path: Path,
    costs: GivenCosts,
    weights: Mapping[str, float],
    threshold: float | None,
    default: str | None,
    out: Output,
) -> None:
    """Show or change what experts cost, and when a router abstains.

    A prompt goes to the expert of largest quality − weight · cost; quality is the probability that it is the right
    one. With a weight of 0.1 a price of 1 must buy 10 points of quality. What is not named stays as it was, 0 takes
    it away. Nothing is fitted or counted again, and serving copies can be changed as well.

    \b
    Examples:
      ir3de policy router
      ir3de policy router --price large=3 --price small=0.2 --weight price=0.1
      ir3de policy router --costs costs.json --threshold 0.6 --default small
    """
    from ir3de.router import Router
    from ir3de.storage.files import lock_folder

    router = Router.load(router_path)
    if costs or weights or threshold is not None or default is not None:
        with lock_folder(router_path.expanduser()):
            router = _changed(router_path, costs, weights, threshold, default)
    out.json({"router": str(router_path), **describe_policy(router)})
    _show(router_path, router, out)


def _changed(
    path: Path, costs: GivenCosts, weights: Mapping[str, float], threshold: float | None, default: str | None
) -> Router:
    from dataclasses import replace

    from ir3de.artifact import save_policy
    from ir3de.router import Router

    router = Router.load(path)
    policy = router.policy.with_changes(costs, weights)
    if threshold is not None:
        policy = replace(policy, threshold=threshold)
    router = router.with_policy(policy, default=default)
    save_policy(path, router.policy, router.default)
    return router


def _show(path: Path, router: Router, out: Output) -> None:
    policy = router.policy
    threshold = f"below {percent(policy.threshold)}" if policy.threshold else "only without a known token"
    weights = amounts(policy.weights) if policy.weights else "none: costs are ignored"
    out.result(styled((str(path), "bold")))
    out.result(facts([("weights", weights), ("abstains", threshold), ("default", router.default)]))
    out.note("", costs_table(router))
