"""fit --outcomes, add --outcomes: a router from models' scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ir3de.cli.costs import complete_costs
from ir3de.cli.outcomes import outcome_rows
from ir3de.cli.output import Output, line
from ir3de.cli.saving import changing, free_folders, load_router, save_and_report
from ir3de.cli.strong_weak import SHARE, check_given, describe_calibration

if TYPE_CHECKING:
    from ir3de.cli.costs import GivenCosts
    from ir3de.cli.options import TextOptions

COSTS = ("costs_file", "price", "latency", "memory")
FIT_TAKES = ("source", "default", "serving", "force", *COSTS, *SHARE)
ADD_TAKES = ("merge", *COSTS)


def fit_outcomes(
    router_path: Path,
    outcomes: Sequence[str],
    score_field: str,
    texts: TextOptions,
    source: str,
    default: str | None,
    serving: Path | None,
    force: bool,
    costs: GivenCosts,
    strong_share: float | None,
    strong: str | None,
    weak: str | None,
    out: Output,
    **_: Any,
) -> None:
    """Sum up the rows, fit, save and report."""
    from ir3de.cli.domains import load_embedding
    from ir3de.corpora import total_bytes
    from ir3de.fitting.outcomes import collect_outcomes
    from ir3de.policies import Policy
    from ir3de.router import Router

    check_given(strong_share, strong, weak)
    folders = free_folders(router_path, serving, force=force)
    total_bytes(outcomes)  # a misspelt path is found first
    embedding = load_embedding(source, out)
    rows = outcome_rows(outcomes, texts.field, score_field, out)
    sums = collect_outcomes(rows, embedding=embedding, field=score_field)
    costs = complete_costs(costs, sums.models)
    begun = perf_counter()
    with out.spinner("solving"):
        router = Router.fit_outcomes(
            sums, embedding=embedding, default=default, policy=Policy(costs=costs), guard=strong_share is None
        )
    if strong_share is not None:
        from ir3de.evaluation.outcomes import calibrate_strong_share

        found = calibrate_strong_share(router, None, strong_share, strong=strong, weak=weak)
        out.note(line((describe_calibration(found), "")))
        router = found.router
    save_and_report(out, router, folders, perf_counter() - begun, from_outcomes=True)


def add_outcomes(
    router_path: Path,
    outcomes: Sequence[str],
    score_field: str,
    texts: TextOptions,
    costs: GivenCosts,
    merge: bool,
    out: Output,
    **_: Any,
) -> None:
    """Sum up the rows of new models, or with --merge more rows of any, and change the router."""
    from ir3de.corpora import total_bytes
    from ir3de.fitting.outcomes import collect_outcomes

    router = load_router(router_path)
    router.outcomes  # noqa: B018 - refused where experts are added as NAME=PATH
    total_bytes(outcomes)
    rows = outcome_rows(outcomes, texts.field, score_field, out)
    sums = collect_outcomes(rows, embedding=router.embedding, field=score_field)
    experts = dict.fromkeys((*router.experts, *sums.models))
    costs = complete_costs(costs, experts, router.policy.costs, before=router.experts)
    begun = perf_counter()
    with changing(router_path) as router:
        with out.spinner("solving"):
            router.add_outcomes(sums, merge=merge)
        router = router.with_policy(router.policy.with_changes(costs, {}))
        save_and_report(out, router, [router_path.expanduser()], perf_counter() - begun, from_outcomes=True)
