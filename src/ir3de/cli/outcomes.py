"""The option --outcomes of fit, add and eval: rows with models' scores instead of NAME=PATH."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.options import Function
from ir3de.cli.output import FAINT, Output, heading, line, table

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de.router import Router

ALWAYS = ("router_path", "outcomes", "score_field", "field", "as_json", "quiet")
OTHERWISE = "name a file with --label, a folder of experts, at least one NAME=PATH, or models' scores with --outcomes"


def or_outcomes(instead: Callable[..., None], *also: str) -> Callable[[Function], Function]:
    """Add --outcomes and --score-field. With --outcomes, `instead` runs, and takes only the parameters in `also`."""

    def decorate(function: Function) -> Function:
        @click.option(
            "--outcomes",
            multiple=True,
            metavar="PATH",
            help='Rows {"text": …, "task": …, "scores": {model: number}} instead of NAME=PATH; may be repeated.',
        )
        @click.option(
            "--score-field", metavar="NAME", help="Field of --outcomes that holds the scores.  [default: scores]"
        )
        @wraps(function)
        def command(*args: Any, outcomes: Sequence[str], score_field: str | None, **kwargs: Any) -> Any:
            if outcomes and not kwargs.get("logs"):
                check_clashes("--outcomes", (*ALWAYS, *also))
                return instead(*args, outcomes=outcomes, score_field=score_field or "scores", **kwargs)
            if score_field is not None:
                raise click.UsageError(
                    "--score-field belongs to --outcomes: leave it out, or name rows with --outcomes"
                )
            if not (kwargs["domains"] or kwargs.get("logs")):
                raise click.UsageError(f"Missing argument 'PATH|NAME=PATH': {OTHERWISE}")
            return function(*args, **kwargs)

        return command  # type: ignore[return-value]

    return decorate


def check_clashes(option: str, allowed: Sequence[str]) -> None:
    """Refuse parameters that cannot be combined with this option."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = str(parameter.name)
        if name in allowed:
            continue
        source = context.get_parameter_source(name)
        if source is not None and source.name in ("COMMANDLINE", "PROMPT"):
            given = "NAME=PATH" if name in ("domains", "sources") else parameter.opts[0]
            raise click.UsageError(f"{given} cannot be combined with {option}: leave one of them out")


def outcome_rows(paths: Sequence[str], field: str | None, score_field: str, out: Output) -> Iterator[dict[str, Any]]:
    """Every row of the files, under a progress bar; each knows its line."""
    from ir3de.cli.progress import reading
    from ir3de.corpora import read_rows, text_of, total_bytes
    from ir3de.files.formats import Row

    with reading(out, "outcomes", total_bytes(paths)) as (on_bytes, _):
        for row in read_rows(paths, on_bytes=on_bytes):
            kept = {key: row[key] for key in ("task", score_field) if key in row}
            yield Row.at(row.place, {"text": text_of(row, field), **kept})  # type: ignore[attr-defined]


def means_table(header: Mapping[str, Any], width: int) -> Table:
    """What each model scores on each task, as the router sees it; the best of each task where all do not fit."""
    models = [expert["name"] for expert in header["experts"]]
    import numpy as np

    means = np.array(header["outcomes"]["means"])
    tasks, overall = [task or "all" for task in header["outcomes"]["tasks"]], means.mean(axis=0)
    needed = max(map(len, (*tasks, "mean"))) + sum(max(len(model), 6) + 3 for model in models)
    if needed > width:
        shown = table("task", "best model", "mean", "of all", right=("mean", "of all"))
    else:
        shown = table("task", *models, right=models)

    def cells(row: Any) -> list[Any]:
        if needed > width:
            return [models[int(row.argmax())], f"{row.max():.3f}", f"{row.mean():.3f}"]
        return [line((f"{value:.3f}", "green" if value == row.max() else "")) for value in row.tolist()]

    for task, row in zip(tasks, means, strict=True):
        shown.add_row(task, *cells(row))
    shown.add_row("mean", *cells(overall), style=FAINT)
    return shown


def describe_outcomes(header: Mapping[str, Any], router: Router, width: int) -> list[Any]:
    """Mean scores and the shrinkage that was tried, with headings."""
    shown = [heading("Mean scores after shrinkage"), means_table(header, width)]
    tried = [heading("Cross-validation of the shrinkage"), shrinkage_table(router)]
    said = describe_guard(header, router)
    return shown + (tried if router.validation.strengths else []) + ([line((said, ""))] if said else [])


def describe_guard(header: Mapping[str, Any], router: Router) -> str:
    """How routing compares with the best single model on held-out prompts, in one line."""
    gain, reason, means = router.validation.gain, router.validation.reason, header["outcomes"]["means"]
    best = router.experts[max(range(len(router.experts)), key=lambda model: sum(row[model] for row in means))]
    if gain is None:
        return f"routing was not compared with the best single model: {reason}" if reason else ""
    if reason:
        return f"routing was given up, because {reason}: all prompts go to {best} unless costs say otherwise"
    if gain.mean == gain.error == 0:
        return f"routing chose the best single model for all {gain.prompts:,} held-out prompts"
    above = f"{gain.mean:+.4f} ± {gain.error:.4f}"
    return f"routing gains {above} over the best single model on {gain.prompts:,} held-out prompts"


def shrinkage_table(router: Router) -> Table:
    """What cross-validation tried, and what it chose."""
    tried, chosen = router.validation, router.scorer
    shown = table("shrinkage", "rows", "squared error", "", right=("rows", "squared error"))
    for name, title, candidates in (
        ("pull", "of a task's means", tried.pulls),
        ("strength", "of what a prompt says", tried.strengths),
        ("length", "with the prompt's length", tried.lengths),
    ):
        for value, error in candidates:
            mark = "chosen" if value == getattr(chosen, name) else ""
            rows = "all" if value == float("inf") else f"{value:,.0f}"
            rows = rows if name != "length" else "yes" if value else "no"
            shown.add_row(title, rows, f"{error:.6f}", line((mark, "green")))
    return shown
