"""bench rivals: IR3DE beside other ways to route, on the same prompts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.plugins import Output, heading, output_options, table
from ir3de.errors import ArtifactError, MissingExtraError
from ir3de_lab.catalogue import FRESH, MEASURES, judge
from ir3de_lab.cli.shared import accuracy_cells, data_option, keep, save_option, suite_option

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de_lab.benchmarks.rivals import Rival, RivalRow

FAMILIES = ("ir3de", "words", "encoders")


@click.command()
@data_option
@suite_option
@click.option("--encoder", "source", metavar="SOURCE", help="A sentence encoder's folder or hub id, such as MiniLM's.")
@click.option("--only", type=click.Choice(FAMILIES), multiple=True, help="Measure only this family; may be repeated.")
@save_option
@output_options
def rivals(
    data: Path | None,
    chosen: Sequence[str],
    source: str | None,
    only: Sequence[str],
    save: Path | None,
    out: Output,
) -> None:
    """Other ways to route, on the same prompts: accuracy, seconds to fit, and microseconds a prompt.

    Words: naive Bayes, TF-IDF with logistic regression, hashed n-grams. With --encoder: the nearest training prompts,
    a linear probe, fine-tuning. Where every domain has prompts from other sources, all are also fitted on 30 prompts a
    domain, drawn ten times. A file named with --save keeps the rows it has and that are not measured again, unless the
    sources have changed since.

    \b
    Example:
      ir3de bench rivals --data suites/ --suite reasoning
      ir3de bench rivals --data suites/ --encoder models/all-MiniLM-L6-v2 --save results/rivals.json
    """
    from ir3de_lab.benchmarks.measurement import circumstances
    from ir3de_lab.benchmarks.rivals import merged
    from ir3de_lab.benchmarks.rivals import rivals as known
    from ir3de_lab.rivals.encoder import Encoder

    if data is None:
        raise click.UsageError("name a folder of suites with --data, or in IR3DE_DATA")
    if "encoders" in only and source is None:
        raise click.UsageError("name an encoder with --encoder, or leave out --only encoders")
    before = _kept(save)
    contenders = known(Encoder(source, remember=True) if source else None)
    rows: list[RivalRow] = []
    skipped = {} if source or only else {"on an encoder": "none was named with --encoder"}
    for name, row in _measured(data, chosen, [rival for rival in contenders if not only or rival.family in only], out):
        if isinstance(row, MissingExtraError):
            skipped[name] = str(row)
            continue
        rows.append(row)
        document = {"circumstances": circumstances(), "rows": merged(before, [row.to_dict() for row in rows])}
        keep(save, document)  # now: the next may take long
    out.json({"rows": [row.to_dict() for row in rows], "skipped": skipped})
    _show(out, rows)
    for name, reason in skipped.items():
        out.warn(f"skipped: {name}: {reason}")


def _measured(
    data: Path, chosen: Sequence[str], contenders: Sequence[Rival], out: Output
) -> Iterator[tuple[str, RivalRow | MissingExtraError]]:
    """Each router's name with its rows, suite by suite."""
    from ir3de_lab.benchmarks.accuracy import suites
    from ir3de_lab.benchmarks.protocol import prompts_of
    from ir3de_lab.benchmarks.rivals import compare

    for suite in suites(data):
        if chosen and suite.name not in chosen:
            continue
        with out.spinner(f"reading {suite.name}"):
            prompts = prompts_of(suite)
        for rival in contenders:
            with out.spinner(f"measuring {rival.name} on {suite.name}"):
                for row in compare(prompts, rival):
                    yield rival.name, row


def _kept(path: Path | None) -> list[dict[str, Any]]:
    """The rows of a file from before, if they still describe the sources."""
    if path is None or not path.exists():
        return []
    try:
        document = json.loads(path.read_bytes())
        rows = list(document["rows"])
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            f"{path} is there, and holds no rows of rivals ({error!r}): choose another name, or remove it"
        ) from error
    return rows if judge(document.get(MEASURES))[0] == FRESH else []


def _show(out: Output, rows: Sequence[RivalRow]) -> None:
    for suite, shots in dict.fromkeys((row.suite, row.shots) for row in rows):
        some = [row for row in rows if (row.suite, row.shots) == (suite, shots)]
        if shots is None:
            out.result(heading(suite), _whole_table(some))
        else:
            out.result(heading(f"{suite}, {shots} prompts a domain, ± over the draws"), _few_table(some))


def _whole_table(rows: Sequence[RivalRow]) -> Table:
    columns = ("test", "first 32 tokens", "other sources", "fit, s", "µs a prompt")
    shown = table("router", *columns, right=columns)
    cells = accuracy_cells([(row.test, row.first_32, row.ood) for row in rows])
    for row, values in zip(rows, cells, strict=True):
        time = "–" if row.route_us is None else f"{row.route_us:,.0f}"
        shown.add_row(row.router, *values, f"{row.fit_seconds:.1f}", time)
    return shown


def _few_table(rows: Sequence[RivalRow]) -> Table:
    columns = ("test", "other sources", "fit, s")
    shown = table("router", *columns, right=columns)
    for row, (test, ood) in zip(rows, accuracy_cells([(row.test, row.ood) for row in rows]), strict=True):
        for cell, split in ((test, "test"), (ood, "ood")):
            if split in row.deviations:
                cell.append(f" ± {row.deviations[split]:.1f}")
        shown.add_row(row.router, test, ood, f"{row.fit_seconds:.2f}")
    return shown
