"""collect: count one domain's texts where they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli import options
from ir3de.cli.contributions import Labels, label_options, refuse_repeated, report_saved
from ir3de.cli.given import GivenDomains
from ir3de.cli.held_texts import DomainTexts
from ir3de.cli.output import Output, hint, line
from ir3de.errors import InputError

if TYPE_CHECKING:
    from ir3de.cli.domains import CountedDomain
    from ir3de.engines import Counting
    from ir3de.statistics.contributions import Contribution


@click.command()
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--label",
    metavar="COLUMN",
    help="Column or field that names each row's expert: OUT is then a folder, with one .stats file per label.",
)
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
    label: str | None,
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
    """Count one domain's texts where they are, or those of each label.

    OUT is a file that ends in .stats. With --label, the rows of all PATHs say by that column which expert they belong
    to; OUT is then a folder that gets one file per label, and `ir3de fit router OUT` takes the folder.

    The file holds sums of integers, and no text unless --keep-sample is given. `fit`, `add` and `merge` take it in
    place of the texts.

    A histogram still reveals rare words, names and numbers. --clip, --min-count and --histogram-only reveal less;
    docs/privacy.md says what remains. --min-count applies to this file alone: the sum of two such files differs from
    one collection of all the texts with --min-count.

    \b
    Example:
      ir3de collect law.stats cases/ statutes.jsonl
      ir3de collect statistics/ train.csv --label team
      ir3de collect law.stats cases/ --clip 1 --min-count 10
      ir3de fit router law=law.stats maths=maths.jsonl
    """
    from ir3de.cli.domains import count_domain, domains_table, load_embedding, note_skipped

    _check_thresholded(min_count, paths, keep_sample=keep_sample, histogram_only=histogram_only, held=label is not None)
    refuse_repeated(paths)
    if label is None:
        options.refuse_existing(options.parse_statistics_path(None, None, str(target)), force=force)
    targets, given = _plan(target, paths, label, texts, counting, labels, out)
    for path in targets.values():
        options.refuse_existing(path, force=force)
    embedding = load_embedding(source, out)
    made = {}
    for name, one in given.items():
        counted = count_domain(
            name,
            one,
            embedding,
            texts,
            out,
            window=window,
            prompt_sums=not histogram_only,
            keep_sample=keep_sample,
            min_count=min_count,
            counting=counting,
        )
        made[name] = counted, _make(counted, labels, min_count, keep_sample=keep_sample, label=label)
    for name, (counted, contribution) in made.items():  # nothing is written before everything is counted
        targets[name].parent.mkdir(parents=True, exist_ok=True)
        contribution.save(targets[name])
        counted.discard_checkpoints()
    everything = [counted for counted, _ in made.values()]
    out.note(domains_table(everything), "")
    note_skipped(out, everything)
    if label is None:
        report_saved(out, targets[target.stem], made[target.stem][1], **everything[0].describe_reading())
    else:
        _report_folder(out, target, targets, made)


def _plan(
    target: Path,
    paths: tuple[str, ...],
    label: str | None,
    texts: options.TextOptions,
    counting: Counting,
    labels: Labels,
    out: Output,
) -> tuple[dict[str, Path], Mapping[str, DomainTexts]]:
    """The files that are written, by name, and what is counted for each; labelled texts are read here."""
    from ir3de.cli.domains import check_sources

    if label is None:
        check_sources({target.stem: paths})
        return {target.stem: target.expanduser()}, {target.stem: paths}
    domains = GivenDomains(paths, label)
    domains.check_counting(counting)
    _check_folder(target, labels)
    given = domains.read(texts.field, out, whole_files=texts.whole_files, skip_bad=counting["skip_bad"])
    return _name_files(target.expanduser(), given), given


def _make(
    counted: CountedDomain, labels: Labels, min_count: int, *, keep_sample: bool, label: str | None
) -> Contribution:
    """A contribution from what was counted; refuses one without any token."""
    where = "these texts" if label is None else f"the texts of {counted.name!r}"
    whole = counted.statistics if keep_sample else counted.statistics.without_sample()
    whole = whole.at_least(min_count) if counted.contributions else whole
    if not whole.tokens and min_count > 1 and whole.prompts:
        raise InputError(f"no token occurs {min_count:,} times in {where}: add texts, or lower --min-count")
    if not whole.tokens:
        raise InputError("these sources contain no text: name at least one file with a text in it")
    return labels.of(whole, counted.contributions, recipe=counted.recipe)


def _check_folder(target: Path, labels: Labels) -> None:
    """Refuse what cannot be a folder of statistics."""
    if target.suffix == options.STATISTICS_SUFFIX or target.is_file():
        raise click.UsageError(
            f"with --label, OUT is a folder that gets one .stats file per label, found {str(target)!r}: name a folder"
        )
    if labels.id is not None:
        raise click.UsageError("--id names one contribution, and --label makes one per label: leave one of them out")


def _name_files(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """The file of each label; refuses labels that cannot be the names of different files."""
    targets: dict[str, Path] = {}
    taken: dict[str, str] = {}
    for name in names:
        if name.startswith(".") or any(character in name for character in '/\\:*?"<>|') or not name.isprintable():
            raise InputError(f"the label {name!r} cannot be the name of a file: rename it in the data")
        if (other := taken.setdefault(name.casefold(), name)) != name:
            raise InputError(f"the labels {other!r} and {name!r} are one file on many machines: rename one of them")
        targets[name] = folder / f"{name}{options.STATISTICS_SUFFIX}"
    return targets


def _report_folder(
    out: Output,
    folder: Path,
    targets: Mapping[str, Path],
    made: Mapping[str, tuple[CountedDomain, Contribution]],
) -> None:
    files = [{**counted.to_dict(), "file": str(targets[name]), "id": one.id} for name, (counted, one) in made.items()]
    out.json({"folder": str(folder), "files": files})
    out.result(line((f"{len(made):,} files saved to ", ""), (str(folder), "bold")))
    out.note(hint(f"ir3de fit router {folder}"))


def _check_thresholded(
    min_count: int, paths: tuple[str, ...], *, keep_sample: bool, histogram_only: bool, held: bool
) -> None:
    """Refuse options that bring rare tokens back, and sources that cannot be read twice."""
    if min_count == 1:
        return
    if keep_sample:
        raise click.UsageError(
            "--min-count leaves rare tokens out, but --keep-sample keeps whole prompts: leave one of them out"
        )
    once = [path for path in paths if path == "-" or Path(path).suffix == options.STATISTICS_SUFFIX]
    if once and not histogram_only and not held:
        what = "standard input can be read once" if once[0] == "-" else f"the prompt sums of {once[0]} hold every token"
        raise click.UsageError(
            f"--min-count reads the texts twice, to keep rare tokens out of the prompt sums, and {what}: "
            "name files of texts, or give --histogram-only"
        )
