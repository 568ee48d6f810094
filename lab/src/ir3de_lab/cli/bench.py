"""bench: the package's own measurements, on the machine at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import Output, domains_option, heading, output_options, table
from ir3de_lab.cli.rivals import rivals
from ir3de_lab.cli.shared import (
    accuracy_cells,
    data_option,
    figures_table,
    keep,
    measure_suites,
    save_option,
    suite_option,
)

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de_lab.benchmarks.accuracy import Row
    from ir3de_lab.benchmarks.measurement import Figure

PARTS = ("routing", "collecting", "fitting", "published", "memory", "starting")


@click.group()
def bench() -> None:
    """Measure speed, accuracy, robustness and scale here and now.

    \b
    Example:
      ir3de bench speed
      ir3de bench accuracy --data suites/ --save results/accuracy.json
      ir3de bench rivals --data suites/ --save results/rivals.json
    """


bench.add_command(rivals)


@bench.command()
@domains_option
@data_option
@click.option("--only", type=click.Choice(PARTS), multiple=True, help="Measure only this part; may be repeated.")
@click.option("--gigabytes", default=2.0, show_default=True, help="Size of the corpus that memory is measured on.")
@click.option("--tokens", default=20_000_000, show_default=True, help="Tokens for the comparison with the paper.")
@save_option
@output_options
def speed(
    domains: Mapping[str, list[str]],
    data: Path | None,
    only: Sequence[str],
    gigabytes: float,
    tokens: int,
    save: Path | None,
    out: Output,
) -> None:
    """Time and memory as ratios to what cannot be avoided.

    Each figure is taken together with what it is compared to, the two taking turns. Prompts come from --data (its
    suite `reasoning`, or its first), from NAME=PATH pairs, or else from the demo.

    \b
    Example:
      ir3de bench speed --data suites/ --save results/speed.json
    """
    from ir3de_lab.benchmarks.measurement import circumstances

    figures: list[Figure] = []
    for part, measure in _parts(domains, data, gigabytes, tokens):
        if not only or part in only:
            with out.spinner(f"measuring {part}"):
                figures += measure()
    document = {"circumstances": circumstances(), "figures": [figure.to_dict() for figure in figures]}
    keep(save, document)
    out.json(document)
    out.result(figures_table(figures))


@bench.command()
@data_option
@suite_option
@save_option
@output_options
def accuracy(data: Path | None, chosen: Sequence[str], save: Path | None, out: Output) -> None:
    """Routing accuracy: how many test prompts reach their expert, in percent, averaged over the domains.

    Every scorer and selector is fitted on the training prompts alone.

    \b
    Example:
      ir3de bench accuracy --data suites/ --suite reasoning
    """
    from ir3de_lab.benchmarks.accuracy import measure

    rows: list[Row] = measure_suites(out, data, chosen, save, measure)
    for name in dict.fromkeys(row.suite for row in rows):
        out.result(heading(name), _accuracy_table([row for row in rows if row.suite == name]))


def _parts(
    domains: Mapping[str, list[str]], data: Path | None, gigabytes: float, tokens: int
) -> Iterator[tuple[str, Callable[[], list[Figure]]]]:
    """Each part's name and what measures it; the texts are read once."""
    from ir3de_lab.benchmarks import speed as measured

    prompts, corpus, others = _texts(domains, data)
    yield "routing", lambda: measured.routing(prompts, others=others)
    yield "collecting", lambda: measured.collecting(corpus)
    yield "fitting", lambda: measured.fitting(corpus)
    yield "published", lambda: measured.against_published(corpus, tokens=tokens)
    yield "memory", lambda: measured.memory(corpus, gigabytes=gigabytes)
    yield "starting", lambda: measured.starting(prompts)


def _texts(
    domains: Mapping[str, list[str]], data: Path | None
) -> tuple[dict[str, Sequence[str]], Sequence[str], dict[str, Sequence[str]]]:
    """Prompts by domain for routing, a larger corpus for counting, and short prompts to route besides."""
    from ir3de.corpora import examples as demo
    from ir3de.corpora import read_texts
    from ir3de_lab.benchmarks.accuracy import suites

    prompts: dict[str, Sequence[str]] = dict(demo.prompts())
    others: dict[str, Sequence[str]] = {"demo": [text for texts in prompts.values() for text in texts]}
    if domains:
        prompts = {name: list(read_texts(paths)) for name, paths in domains.items()}
    elif data is not None:
        found = {suite.name: suite for suite in suites(data)}
        read: dict[str, dict[str, Sequence[str]]] = {
            name: {domain: suite.texts(domain, "train") for domain in suite.folders} for name, suite in found.items()
        }
        routed = "reasoning" if "reasoning" in read else next(iter(read))
        if "intents" in read and routed != "intents":
            others["intents"] = [text for texts in read["intents"].values() for text in texts]
        counted = [name for name in read if name != routed] or [routed]
        return read[routed], [text for name in counted for texts in read[name].values() for text in texts], others
    return prompts, [text for texts in prompts.values() for text in texts], others


def _accuracy_table(rows: Sequence[Row]) -> Table:
    columns = ("test", "first 32 tokens", "other sources")
    shown = table("router", *columns, right=columns)
    cells = accuracy_cells([(row.test, row.first_32, row.ood) for row in rows])
    for row, values in zip(rows, cells, strict=True):
        shown.add_row(row.router, *values)
    return shown
