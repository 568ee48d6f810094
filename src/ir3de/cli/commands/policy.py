"""policy: show or change costs, weights and threshold, without a fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

import ir3de
from ir3de.cli import lib
from ir3de.cli.costs import KINDS, MOST_NAMED, GivenCosts, complete_costs, cost_options, list_amounts, weight_option
from ir3de.cli.formats import FAINT, colour_of, line, percent
from ir3de.cli.options import output_options, router_argument
from ir3de.cli.outcomes import describe_share
from ir3de.cli.output import Block, Output, Result, facts, table
from ir3de.cli.saving import changing, load_router


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
    accident; '*=0' makes the others free. Nothing is fitted again, and serving copies can be changed too.

    \b
    Examples:
      ir3de policy router
      ir3de policy router --price large=3 --price small=0.2 --weight price=0.1
      ir3de policy router --price large=3 --price '*=0' --weight price=0.1
      ir3de policy router --costs costs.json --threshold 0.6 --default small
    """
    if costs or weights or threshold is not None or default is not None or no_strong_share:
        with changing(router_path) as router:
            before = replace(router.policy, strong_share=None) if no_strong_share else router.policy
            given = complete_costs(costs, router.experts, before.costs, before=router.experts)
            changed = before.with_changes(given, weights)
            changed = changed if threshold is None else replace(changed, threshold=threshold)
            router = router.with_policy(changed, default=default)
            lib.saving.save_policy(router_path, router.policy, router.default)
    else:
        router = load_router(router_path)
    document = {"router": str(router_path), "default": router.default, **router.policy.to_dict()}
    out.show(document, _view_policy(document, router))


def _view_policy(document: Mapping[str, Any], router: ir3de.Router) -> Iterator[Block]:
    never = "only without a known token" if router.kind == "outcomes" else "on prompts out of domain"
    threshold, weights = document["threshold"], document["weights"]
    share = document.get("strong_share")
    known = [
        ("weights", list_amounts(weights) if any(weights.values()) else "none: costs are ignored"),
        ("abstains", f"below {percent(threshold)} confidence" if threshold else never),
        ("default expert", document["default"] or "none was named"),
        *([("strong calls", describe_share(share))] if share else []),
    ]
    yield Result(line((document["router"], "bold")))
    yield Result(facts(known))
    yield from ("", _costs_table(document["costs"], router))


def _costs_table(costs: Mapping[str, Mapping[str, float]], router: ir3de.Router) -> Block:
    """The costs of each expert, and their penalty."""
    penalties = router.policy.penalties(router.experts) or [0.0] * len(router.experts)
    shown = table("expert", *KINDS, "penalty", right=(*KINDS, "penalty"))
    free = [name for name in router.experts if not any(costs.get(name, {}).values())]
    is_long = len(free) > MOST_NAMED
    for index, (name, penalty) in enumerate(zip(router.experts, penalties, strict=True)):
        if not is_long or name not in free:
            own = costs.get(name, {})
            cells = [f"{own[kind]:g}" if own.get(kind) else "–" for kind in KINDS]
            shown.add_row(line((name, colour_of(index))), *cells, percent(penalty) if penalty else "–")
    if is_long:
        whose = "all" if len(free) == len(router.experts) else "the other"
        shown.add_row(line((f"{whose} {len(free):,} experts are free", FAINT)))
    return shown
