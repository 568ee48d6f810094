"""collect: count one domain's texts where they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.contributions import Labels, describe, label_options, refuse_repeated, show_saved
from ir3de.cli.options import (
    STATISTICS_SUFFIX,
    TextOptions,
    embedding_option,
    engine_options,
    force_option,
    output_options,
    parse_statistics_path,
    refuse_existing,
    text_options,
)
from ir3de.cli.output import Output

if TYPE_CHECKING:
    from ir3de.engines import Counting
    from ir3de.statistics.domain import Statistics


@click.command()
@click.argument("target", metavar="OUT.stats", callback=parse_statistics_path)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@text_options
@engine_options
@click.option(
    "--window",
    type=click.IntRange(1, 8_192),
    metavar="N",
    default=128,
    show_default=True,
    help="Tokens a window aims at.",
)
@click.option(
    "--keep-sample",
    is_flag=True,
    help="Keep up to 1,024 of the prompts, as token ids, for tuning and calibration. Whoever gets the file can then "
    "read those prompts.",
)
@click.option(
    "--min-count",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    help="Leave out tokens that occur fewer than N times in all of it, as if no text had them; the texts are then read "
    "twice, unless with --histogram-only. With --clip 1: that fewer than N prompts have.",
)
@click.option(
    "--histogram-only",
    is_flag=True,
    help="Count tokens only: smaller, but not for the scorers blend (the default), prompt-ridge and posterior.",
)
@embedding_option
@label_options
@force_option
@output_options
def collect(
    target: Path,
    paths: tuple[str, ...],
    texts: TextOptions,
    counting: Counting,
    labels: Labels,
    window: int,
    keep_sample: bool,
    min_count: int,
    histogram_only: bool,
    source: str,
    force: bool,
    out: Output,
) -> None:
    """Count one domain's texts where they are.

    The file holds sums of integers, and no text unless --keep-sample asks for it. It stands in for the texts in `fit`,
    `add` and `merge`.

    A histogram still tells of rare words, names and numbers; --clip, --min-count and --histogram-only give less away,
    and docs/privacy.md says what is left. What --min-count leaves out is settled for this file: the sum of two such
    files is not what one collection with --min-count gives.

    \b
    Example:
      ir3de collect law.stats cases/ statutes.jsonl
      ir3de collect law.stats cases/ --clip 1 --min-count 10
      ir3de fit router law=law.stats maths=maths.jsonl
    """
    from ir3de.cli.domains import check_sources, count_domain, counted_table, load_embedding, note_skipped

    _check_thresholded(min_count, paths, keep_sample=keep_sample, histogram_only=histogram_only)
    refuse_existing(target, force=force)
    refuse_repeated(paths)
    check_sources({target.stem: paths})
    embedding = load_embedding(source, out)
    counted = count_domain(
        target.stem,
        paths,
        embedding,
        texts,
        out,
        window=window,
        prompt_sums=not histogram_only,
        keep_sample=keep_sample,
        min_count=min_count,
        counting=counting,
    )
    whole = counted.statistics if keep_sample else counted.statistics.without_sample()
    whole = whole.at_least(min_count) if counted.contributions else whole
    _refuse_empty(whole, min_count)
    made = labels.of(whole, counted.contributions, recipe=counted.recipe)
    made.save(target)
    counted.discard_checkpoints()
    out.json(
        {"statistics": str(target), "bytes": target.stat().st_size, **describe(made), **counted.describe_reading()}
    )
    out.note(counted_table([counted]), "")
    note_skipped(out, [counted])
    show_saved(out, target)


def _check_thresholded(min_count: int, paths: tuple[str, ...], *, keep_sample: bool, histogram_only: bool) -> None:
    """Refuse what would bring rare tokens back in, and what cannot be read twice."""
    if min_count == 1:
        return
    if keep_sample:
        raise click.UsageError(
            "--min-count leaves rare tokens out, --keep-sample keeps prompts whole: leave one of them out"
        )
    once = [path for path in paths if path == "-" or Path(path).suffix == STATISTICS_SUFFIX]
    if once and not histogram_only:
        what = "standard input can be read once" if once[0] == "-" else f"the prompt sums of {once[0]} hold every token"
        raise click.UsageError(
            f"--min-count reads the texts twice, to keep rare tokens out of the prompt sums, and {what}: "
            "name files of texts, or give --histogram-only"
        )


def _refuse_empty(statistics: Statistics, min_count: int) -> None:
    from ir3de.errors import InputError

    if statistics.tokens == 0 and min_count > 1 and statistics.prompts:
        raise InputError(f"no token occurs {min_count:,} times in what was named: name more texts, or a smaller count")
    if statistics.tokens == 0:
        raise InputError("there is no text in what was named: name at least one file with a text in it")
