"""collect: count one domain's texts where they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli import options
from ir3de.cli.contributions import Labels, label_options, refuse_repeated, report_saved
from ir3de.cli.output import Output
from ir3de.errors import InputError

if TYPE_CHECKING:
    from ir3de.engines import Counting


@click.command()
@click.argument("target", metavar="OUT.stats", callback=options.parse_statistics_path)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@options.text_options
@options.engine_options
@click.option(
    "--window", type=click.IntRange(1, 8_192), metavar="N", default=128, show_default=True, help="Tokens per window."
)
@click.option(
    "--keep-sample",
    is_flag=True,
    help="Keep up to 1,024 of the prompts, as token ids, for tuning and calibration. Whoever has the file can then "
    "read those prompts.",
)
@click.option(
    "--min-count",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    help="Leave out tokens that occur fewer than N times in all the texts; with --clip 1, in fewer than N prompts. The "
    "texts are then read twice, unless --histogram-only is given.",
)
@click.option(
    "--histogram-only",
    is_flag=True,
    help="Count tokens only. The file is smaller, but the scorers blend (the default), prompt-ridge and posterior "
    "cannot use it.",
)
@options.embedding_option
@label_options
@options.force_option
@options.output_options
def collect(
    target: Path,
    paths: tuple[str, ...],
    texts: options.TextOptions,
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

    The file holds sums of integers, and no text unless --keep-sample is given. `fit`, `add` and `merge` take it in
    place of the texts.

    A histogram still reveals rare words, names and numbers. --clip, --min-count and --histogram-only reveal less;
    docs/privacy.md says what remains. --min-count applies to this file alone: the sum of two such files differs from
    one collection of all the texts with --min-count.

    \b
    Example:
      ir3de collect law.stats cases/ statutes.jsonl
      ir3de collect law.stats cases/ --clip 1 --min-count 10
      ir3de fit router law=law.stats maths=maths.jsonl
    """
    from ir3de.cli.domains import check_sources, count_domain, domains_table, load_embedding, note_skipped

    _check_thresholded(min_count, paths, keep_sample=keep_sample, histogram_only=histogram_only)
    options.refuse_existing(target, force=force)
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
    if not whole.tokens and min_count > 1 and whole.prompts:
        raise InputError(f"no token occurs {min_count:,} times in these texts: add texts, or lower --min-count")
    if not whole.tokens:
        raise InputError("these sources contain no text: name at least one file with a text in it")
    made = labels.of(whole, counted.contributions, recipe=counted.recipe)
    made.save(target)
    counted.discard_checkpoints()
    out.note(domains_table([counted]), "")
    note_skipped(out, [counted])
    report_saved(out, target, made, **counted.describe_reading())


def _check_thresholded(min_count: int, paths: tuple[str, ...], *, keep_sample: bool, histogram_only: bool) -> None:
    """Refuse options that bring rare tokens back, and sources that cannot be read twice."""
    if min_count == 1:
        return
    if keep_sample:
        raise click.UsageError(
            "--min-count leaves rare tokens out, but --keep-sample keeps whole prompts: leave one of them out"
        )
    once = [path for path in paths if path == "-" or Path(path).suffix == options.STATISTICS_SUFFIX]
    if once and not histogram_only:
        what = "standard input can be read once" if once[0] == "-" else f"the prompt sums of {once[0]} hold every token"
        raise click.UsageError(
            f"--min-count reads the texts twice, to keep rare tokens out of the prompt sums, and {what}: "
            "name files of texts, or give --histogram-only"
        )
