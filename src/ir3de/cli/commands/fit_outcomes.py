"""fit --outcomes, add --outcomes: a router from models' scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ir3de.cli.outcomes import means_table, outcome_rows, shrinkage_table
from ir3de.cli.output import FAINT, Output, heading, styled
from ir3de.cli.saving import changing, free_folders, note_saved, save_folders, where_saved

if TYPE_CHECKING:
    from ir3de.cli.costs import GivenCosts
    from ir3de.cli.options import TextOptions
    from ir3de.router import Router

COSTS = ("costs_file", "price", "latency", "memory")
FIT_TAKES = ("source", "default", "serving", "force", *COSTS)
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
    out: Output,
    **_: Any,
) -> None:
    """Sum up the rows, fit, save and report."""
    from ir3de.cli.domains import load_embedding
    from ir3de.corpora import total_bytes
    from ir3de.outcomes.rows import collect_outcomes
    from ir3de.policies import Policy
    from ir3de.router import Router

    folders = free_folders(router_path, serving, force=force)
    total_bytes(outcomes)  # a misspelt path is found first
    embedding = load_embedding(source, out)
    rows = outcome_rows(outcomes, texts.field, score_field, out)
    sums = collect_outcomes(rows, embedding=embedding, field=score_field)
    begun = perf_counter()
    with out.spinner("solving"):
        router = Router.fit_outcomes(sums, embedding=embedding, default=default, policy=Policy(costs=costs))
    report(out, router, folders, perf_counter() - begun)


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
    from ir3de.outcomes.rows import collect_outcomes
    from ir3de.router import Router

    router = Router.load(router_path)
    router.outcomes  # noqa: B018 - refused where experts are added as NAME=PATH
    total_bytes(outcomes)
    rows = outcome_rows(outcomes, texts.field, score_field, out)
    sums = collect_outcomes(rows, embedding=router.embedding, field=score_field)
    begun = perf_counter()
    with changing(router_path) as router:
        with out.spinner("solving"):
            router.add_outcomes(sums, merge=merge)
        router = router.with_policy(router.policy.with_changes(costs, {}))
        report(out, router, [router_path.expanduser()], perf_counter() - begun)


def report(out: Output, router: Router, folders: list[Path], solved: float) -> None:
    """Save the router, and a serving copy where a second folder is named; say what was learnt."""
    written = save_folders(out, router, folders)
    header = written[folders[0]].header
    out.json(
        {
            **where_saved(written),
            **{key: header[key] for key in ("experts", "default", "scorer", "selector", "embedding", "outcomes")},
            "solve_seconds": round(solved, 3),
        }
    )
    if not out.as_json:
        out.note(heading("Mean scores, shrunk"), means_table(header, out.console.width))
        out.note(heading("Cross-validation"), shrinkage_table(router), "")
    scores = sum(expert["prompts"] for expert in header["experts"])
    models = "1 model" if len(router.experts) == 1 else f"{len(router.experts)} models"
    out.note(styled((f"{models} from {scores:,} scores solved in {solved:.2f} s", ""), (f"  {router.scorer}", FAINT)))
    note_saved(out, written)
