"""fit, add, remove: the commands that make and change a router."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.arguments import (
    SCORERS,
    SELECTORS,
    TextOptions,
    domains_argument,
    embedding_option,
    force_option,
    output_options,
    refuse_existing,
    scorer_for,
    selector_for,
    text_options,
)
from ir3de.cli.counting import Counted, check_sources, count_domain, counted_table
from ir3de.cli.output import FAINT, Output, hint, size, styled
from ir3de.errors import InputError, UnknownExpertError

if TYPE_CHECKING:
    from ir3de.router import Router


@click.command()
@click.argument("router_path", metavar="OUT", type=click.Path(path_type=Path))
@domains_argument
@text_options
@embedding_option
@click.option("--scorer", type=click.Choice(SCORERS), default="prompt-ridge", show_default=True, help="How to fit.")
@click.option("--strength", type=float, metavar="λ", help="Strength of the ridge, instead of the scorer's own.")
@click.option(
    "--selector",
    type=click.Choice(SELECTORS),
    help="How a prompt's tokens decide.  [default: average; entropy for the scorers paper and authors]",
)
@click.option("--k", type=click.IntRange(min=1), help="Tokens that vote with --selector entropy.  [default: 10]")
@click.option("--default", metavar="NAME", help="Expert for prompts without a known token.  [default: the first]")
@click.option("--serving", metavar="PATH", type=click.Path(path_type=Path), help="Write a small serving copy as well.")
@force_option
@output_options
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

    \b
    Example:
      ir3de fit router maths=maths.jsonl law=statutes/ law=cases.csv code='src/**/*.txt'
    """
    from ir3de.embeddings import Embedding
    from ir3de.router import Router

    strategies = scorer_for(scorer, strength), selector_for(selector, scorer, k, texts.cap)
    folders = _free_folders(router_path, serving, force=force)
    _check_default(default, domains)
    check_sources(domains)
    with out.spinner("reading the embedding"):
        embedding = Embedding.load(source)
    counted = [count_domain(name, paths, embedding, texts, out) for name, paths in domains.items()]
    statistics = {domain.name: domain.statistics for domain in counted}
    begun = perf_counter()
    with out.spinner("solving"):
        router = Router.fit(
            statistics, embedding=embedding, scorer=strategies[0], selector=strategies[1], default=default
        )
    _finish(out, router, folders, counted, perf_counter() - begun)


@click.command()
@click.argument("router_path", metavar="ROUTER", type=click.Path(path_type=Path))
@domains_argument
@text_options
@click.option("--merge", is_flag=True, help="Give more texts to experts that are there already.")
@output_options
def add(router_path: Path, domains: Mapping[str, list[str]], texts: TextOptions, merge: bool, out: Output) -> None:
    """Add experts to a router, or more texts to its experts.

    The others are not read again: the router is exactly the one that a fit from all texts would give.

    \b
    Examples:
      ir3de add router cooking=recipes.jsonl
      ir3de add router --merge law=new-cases.csv
    """
    router = _loaded(router_path)
    _check_names(router, domains, merge=merge)
    check_sources(domains)
    counted = []
    for name, paths in domains.items():
        recipe = _recipe_of(router, name) if merge else {}
        counted.append(count_domain(name, paths, router.embedding, texts, out, **recipe))
    begun = perf_counter()
    with out.spinner("solving"):
        for domain in counted:
            (router.merge if merge else router.add)(domain.name, domain.statistics)
    _finish(out, router, [router_path.expanduser()], counted, perf_counter() - begun)


@click.command()
@click.argument("router_path", metavar="ROUTER", type=click.Path(path_type=Path))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@output_options
def remove(router_path: Path, names: tuple[str, ...], out: Output) -> None:
    """Take experts out of a router.

    What is left is, bit for bit, the router that never saw them.

    \b
    Example:
      ir3de remove router cooking
    """
    router = _loaded(router_path)
    begun = perf_counter()
    with out.spinner("solving"):
        for name in dict.fromkeys(names):
            router.remove(name)
    _finish(out, router, [router_path.expanduser()], [], perf_counter() - begun)


def _loaded(path: Path) -> Router:
    from ir3de.router import Router

    return Router.load(path)


def _free_folders(router_path: Path, serving: Path | None, *, force: bool) -> list[Path]:
    """Where the router and its serving copy go, checked before hours are spent on fitting."""
    from ir3de.storage import check_destination

    folders = [check_destination(path) for path in (router_path, serving) if path is not None]
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise click.UsageError("OUT and --serving name the same folder: give the serving copy one of its own")
    for folder in folders:
        refuse_existing(folder, force=force)
    return folders


def _check_default(default: str | None, experts: Iterable[str]) -> None:
    if default is not None and default not in experts:
        raise UnknownExpertError(f"the default expert '{default}' is not among {', '.join(experts)}")


def _check_names(router: Router, names: Iterable[str], *, merge: bool) -> None:
    """Say before reading anything what the router would say after."""
    for name in names:
        if merge and name not in router.experts:
            raise UnknownExpertError(
                f"no expert '{name}' to give more texts to: this router has {', '.join(router.experts)}"
            )
        if not merge and name in router.experts:
            raise InputError(f"'{name}' is an expert already: --merge gives it more texts, `ir3de remove` takes it out")


def _recipe_of(router: Router, name: str) -> dict[str, Any]:
    """How the expert was counted, so that what is added fits."""
    sums = router.statistics[name].sums
    return {"prompt_sums": False} if sums is None else {"window": sums.window}


def _finish(out: Output, router: Router, folders: list[Path], counted: list[Counted], solved: float) -> None:
    """Save the router, and a serving copy where a second folder is named; say what was done."""
    with out.spinner("saving"):
        for folder in folders:
            router.save(folder, serving=folder is not folders[0])
    sizes = [sum(path.stat().st_size for path in folder.iterdir()) for folder in folders]
    out.json(
        {
            "router": str(folders[0]),
            "bytes": sizes[0],
            "serving": str(folders[1]) if len(folders) > 1 else None,
            "experts": list(router.experts),
            "default": router.default,
            "scorer": repr(router.scorer),
            "selector": repr(router.selector),
            "counted": [domain.to_dict() for domain in counted],
            "solve_seconds": round(solved, 3),
        }
    )
    if counted:
        out.note(counted_table(counted), "")
    experts = "1 expert" if len(router.experts) == 1 else f"{len(router.experts)} experts"
    out.note(styled((f"{experts} solved in {solved:.2f} s", ""), (f"  {router.scorer}, {router.selector}", FAINT)))
    for folder, taken in zip(folders, sizes, strict=True):
        kind = "saved" if folder is folders[0] else "serving copy saved"
        out.note(styled((f"{kind} to ", ""), (str(folder), "bold"), (f"  {size(taken)}", FAINT)))
    out.note(hint(f'ir3de route {folders[0]} "your prompt"'))
