"""bench lengths: what the limit on the length of answers did."""

from __future__ import annotations

from pathlib import Path

import click

from ir3de.cli.plugins import Output, heading, output_options, table
from ir3de_lab.cli.shared import keep, save_option, seeds_option
from ir3de_lab.cli.tables import results_option


@click.command()
@seeds_option
@results_option
@save_option
@output_options
def lengths(name: str, root: Path, save: Path | None, out: Output) -> None:
    """How many drawn answers reached the most tokens that they may have, and how the others scored.

    An answer that reaches the limit is cut off, so a model that writes much may score less than it knows. The base
    model of the setting has to be on this machine, since its tokenizer counts.

    \b
    Example:
      ir3de bench lengths --setting reasoning-1b --save results/lengths.json
    """
    from ir3de_lab.benchmarks.measurement import circumstances
    from ir3de_lab.experiments.gain import read_seeds
    from ir3de_lab.experiments.lengths import describe, measure
    from ir3de_lab.experiments.results import shown_name

    seeds = read_seeds(root, name)
    with out.spinner("counting tokens"):
        rows = measure(seeds)
    document = {"circumstances": circumstances(), **describe(seeds, rows)}
    keep(save, document)
    out.json(document)
    numbers = ("most tokens", "answers", "cut, %", "score of those that ended", "of those cut")
    shown = table("model", "domain", *numbers, right=numbers)
    for row in rows:
        scores = ("–" if score is None else f"{score:.1f}" for score in (row.ended_score, row.cut_score))
        shown.add_row(
            shown_name(row.model),
            shown_name(row.domain),
            str(row.most_tokens),
            f"{row.answers:,}",
            f"{row.cut_percent:.1f}",
            *scores,
        )
    out.result(heading(f"{seeds[0].title}: drawn answers and the limit on their length"), shown)
