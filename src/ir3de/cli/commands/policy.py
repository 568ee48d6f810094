"""policy: show or change costs, weights and threshold, without a fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from ir3de.cli.costs import GivenCosts, amounts, complete_costs, cost_options, costs_table, weight_option
from ir3de.cli.options import output_options, router_argument
from ir3de.cli.output import Output, facts, line, percent
from ir3de.cli.saving import changing, load_router
from ir3de.cli.strong_weak import describe_share


@click.command()
@router_argument
@cost_options
@weight_option("Quality that one unit of cost is worth: price=0.1; may be repeated.")
@click.option("--threshold", type=float, metavar="P", help="Confidence below which the router abstains, 0 to 1.")
@click.option("--default", metavar="NAME", help="Expert for prompts the router abstains on.")
@click.option("--no-strong-share", is_flag=True, help="Do not send a share of the prompts to a strong model any more.")
@output_options
def policy(
    router_path: Path,
    costs: GivenCosts,
    weights: Mapping[str, float],
    threshold: float | None,
    default: str | None,
    no_strong_share: bool,
    out: Output,
) -> None:
    """Show or change what experts cost, and when a router abstains.

    A prompt goes to the expert with the largest utility: quality − weight · cost, where quality is the probability
    that the expert is the right one. With a weight of 0.1, a price of 1 must buy 10 points of quality. Values that you
    do not name stay as they are; 0 removes one. Where one expert has a price, all need one, so that none is free by
    accident; '*=0' says that the others are free. Nothing is fitted again, and serving copies can be changed too.

    \b
    Examples:
      ir3de policy router
      ir3de policy router --price large=3 --price small=0.2 --weight price=0.1
      ir3de policy router --price large=3 --price '*=0' --weight price=0.1
      ir3de policy router --costs costs.json --threshold 0.6 --default small
    """
    from dataclasses import replace

    from ir3de.fitting.saving import save_policy

    if costs or weights or threshold is not None or default is not None or no_strong_share:
        with changing(router_path) as router:
            before = replace(router.policy, strong_share=None) if no_strong_share else router.policy
            given = complete_costs(costs, router.experts, before.costs, before=router.experts)
            changed = before.with_changes(given, weights)
            changed = changed if threshold is None else replace(changed, threshold=threshold)
            router = router.with_policy(changed, default=default)
            save_policy(router_path, router.policy, router.default)
    else:
        router = load_router(router_path)
    out.json({"router": str(router_path), "default": router.default, **router.policy.to_dict()})
    found = router.policy
    never = "only without a known token" if router.kind == "outcomes" else "on prompts out of domain"
    abstains = f"below {percent(found.threshold)} confidence" if found.threshold else never
    weighing = amounts(found.weights) if found.weights else "none: costs are ignored"
    out.result(line((str(router_path), "bold")))
    shared = [("strong calls", describe_share(found.strong_share))] if found.strong_share else []
    out.result(
        facts(
            [
                ("weights", weighing),
                ("abstains", abstains),
                ("default expert", router.default or "none was named"),
                *shared,
            ]
        )
    )
    out.note("", costs_table(router))
