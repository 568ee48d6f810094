"""fit: a router from each expert's texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter

import click

from ir3de.cli.arguments import (
    SCORERS,
    SELECTORS,
    TextOptions,
    domains_option,
    embedding_option,
    force_option,
    output_options,
    refuse_existing,
    scorer_for,
    selector_for,
    text_options,
)
from ir3de.cli.counting import check_sources, count_domain, load_embedding
from ir3de.cli.outcome_fitting import FIT_TAKES, fit_outcomes
from ir3de.cli.outcome_rows import or_outcomes
from ir3de.cli.output import Output
from ir3de.cli.saving import save_and_report
from ir3de.errors import UnknownExpertError


@click.command()
@click.argument("router_path", metavar="OUT", type=click.Path(path_type=Path))
@domains_option
@text_options
@embedding_option
@click.option("--scorer", type=click.Choice(SCORERS), default="prompt-ridge", show_default=True, help="How to fit.")
@click.option("--strength", type=float, metavar="λ", help="How strongly to hold back, instead of the scorer's own.")
@click.option(
    "--selector",
    type=click.Choice(SELECTORS),
    help="How a prompt's tokens decide.  [default: average; entropy for the scorers paper and authors]",
)
@click.option(
    "--k", type=click.IntRange(min=1), metavar="K", help="Tokens that vote with --selector entropy.  [default: 10]"
)
@click.option("--default", metavar="NAME", help="Expert for prompts without a known token.  [default: the first]")
@click.option("--serving", metavar="PATH", type=click.Path(path_type=Path), help="Write a small serving copy as well.")
@force_option
@output_options
@or_outcomes(fit_outcomes, *FIT_TAKES)
def fit(
    router_path: Path,
    domains: Mapping[str, list[str]],
    texts: TextOptions,
    source: str,
    scorer: str,
    strength: float | None,
    selector: str | None,
    k: int | None,
    default: str | None,
    serving: Path | None,
    force: bool,
    out: Output,
) -> None:
    """Fit a router from each expert's texts.

    A PATH is a file (.txt, .md, .jsonl, .json, .csv, .tsv, .parquet, also packed as .gz, .bz2, .xz or .zst), a
    folder, a quoted pattern, - for standard input, or a .stats file that `ir3de collect` wrote. Give a NAME several
    times to have its paths read together. --cap holds for fitting and for routing alike.

    With --outcomes the experts are the models that rows have scores of, larger being better; scores may be missing.
    The router then expects a score of every model and names the largest. Of the other options --field, --embedding,
    --default, --serving and --force go with it.

    \b
    Example:
      ir3de fit router maths=maths.jsonl law=statutes/ law=cases.csv code='src/**/*.txt'
      ir3de fit router --outcomes answers.jsonl --score-field accuracy
    """
    from ir3de.router import Router

    strategies = scorer_for(scorer, strength), selector_for(selector, scorer, k, texts.cap)
    folders = free_folders(router_path, serving, force=force)
    _check_default(default, domains)
    check_sources(domains)
    embedding = load_embedding(source, out)
    counted = [count_domain(name, paths, embedding, texts, out) for name, paths in domains.items()]
    statistics = {domain.name: domain.statistics for domain in counted}
    begun = perf_counter()
    with out.spinner("solving"):
        router = Router.fit(
            statistics, embedding=embedding, scorer=strategies[0], selector=strategies[1], default=default
        )
    save_and_report(out, router, folders, counted, perf_counter() - begun)


def free_folders(router_path: Path, serving: Path | None, *, force: bool) -> list[Path]:
    """Where the router and its serving copy go, checked before hours are spent on fitting."""
    from ir3de.storage import check_destination

    folders = [check_destination(router_path)]
    if serving is not None:
        folders.append(check_destination(serving, serving=True))
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise click.UsageError("OUT and --serving name the same folder: give the serving copy one of its own")
    for folder in folders:
        refuse_existing(folder, force=force)
    return folders


def _check_default(default: str | None, experts: Iterable[str]) -> None:
    if default is not None and default not in experts:
        raise UnknownExpertError(f"the default expert '{default}' is not among {', '.join(experts)}")
