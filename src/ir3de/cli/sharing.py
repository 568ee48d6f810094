"""collect, merge: statistics made in one place and put together in another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.arguments import (
    STATISTICS_SUFFIX,
    Function,
    TextOptions,
    embedding_option,
    engine_options,
    force_option,
    output_options,
    parse_statistics_path,
    refuse_existing,
    text_options,
)
from ir3de.cli.output import FAINT, Output, facts, hint, size, styled

if TYPE_CHECKING:
    from ir3de.engines import Counting
    from ir3de.statistics.contributions import Contribution
    from ir3de.statistics.domain import Statistics


@dataclass(frozen=True)
class Labels:
    """What a contribution is called, and whose it is."""

    id: str | None
    owner: str

    def of(
        self, statistics: Statistics, given: Sequence[Contribution], *, recipe: Mapping[str, Any] | None = None
    ) -> Contribution:
        """The statistics as a contribution, made of what was given; refuses what was given twice."""
        from ir3de.statistics.contributions import Contribution, holders

        parts = holders(given, "these files are not all different: one")
        return Contribution.of(statistics, owner=self.owner, id=self.id, recipe=recipe, parts=parts)


def label_options(function: Function) -> Function:
    """--owner and --id, handed over as one `labels`."""

    @click.option("--owner", metavar="LABEL", default="", help="Whose texts these are: shown in a router's ledger.")
    @click.option("--id", "named", metavar="ID", help="What to call the contribution.  [default: made of its hash]")
    @wraps(function)
    def command(*args: Any, owner: str, named: str | None, **kwargs: Any) -> Any:
        from ir3de.statistics.contributions import checked_id, checked_owner

        labels = Labels(None if named is None else checked_id(named), checked_owner(owner))
        return function(*args, labels=labels, **kwargs)

    return command  # type: ignore[return-value]


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
    from ir3de.cli.counting import check_sources, count_domain, counted_table, load_embedding, note_skipped

    _check_thresholded(min_count, paths, keep_sample=keep_sample, histogram_only=histogram_only)
    refuse_existing(target, force=force)
    _refuse_repeated(paths)
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
    out.json({"statistics": str(target), "bytes": target.stat().st_size, **describe(made), **counted.told()})
    out.note(counted_table([counted]), "")
    note_skipped(out, [counted])
    _show_saved(out, target)


@click.command()
@click.argument("target", metavar="OUT.stats", callback=parse_statistics_path)
@click.argument("paths", nargs=-1, required=True, metavar="FILE.stats...")
@label_options
@force_option
@output_options
def merge(target: Path, paths: tuple[str, ...], labels: Labels, force: bool, out: Output) -> None:
    """Add statistics up, exactly.

    The sum is, bit for bit and in any order, what one collection from all the texts gives, if all were
    collected with the same --sample. It is one contribution: to take owners' parts out of a router one by one, give it
    their files instead (`ir3de add router --merge law=berlin.stats law=paris.stats`). A FILE may be a quoted pattern;
    the same statistics twice are refused, by their hash, whatever the files are called.

    \b
    Example:
      ir3de merge law.stats law-berlin.stats law-paris.stats
    """
    from ir3de.cli.counting import load_contributions, statistics_files

    refuse_existing(target, force=force)
    _refuse_repeated(paths)
    given = load_contributions(statistics_files(paths))
    total = sum((one.statistics() for one in given[1:]), given[0].statistics())
    made = labels.of(total, given)
    made.save(target)
    out.json({"statistics": str(target), "bytes": target.stat().st_size, "merged": list(paths), **describe(made)})
    out.note(statistics_facts(made))
    _show_saved(out, target)


def statistics_facts(contribution: Contribution) -> Any:
    """What there is to know of statistics, as a small table."""
    statistics = contribution.statistics()
    sums = statistics.sums
    windows = f"{sums.windows:,} windows of about {sums.window} tokens" if sums is not None else "none: histogram only"
    how = ", ".join(_spoken(contribution.recipe))
    return facts(
        [
            ("contribution", f"{contribution.id}{f' of {contribution.owner}' if contribution.owner else ''}"),
            ("prompts", f"{statistics.prompts:,}"),
            ("tokens", f"{statistics.tokens:,}"),
            ("prompt sums", windows),
            ("prompts kept", "none" if statistics.sample is None else f"{len(statistics.sample):,}, as token ids"),
            ("collected with", how or ("not known" if not contribution.recipe else "no option")),
            ("merged from", f"{len(contribution.parts)} contributions" if contribution.parts else "none: as collected"),
            ("embedding", statistics.fingerprint[:12]),
            ("digest", statistics.digest),
        ]
    )


def _spoken(recipe: Mapping[str, Any]) -> Iterator[str]:
    """The options that the texts were collected with, those left as usual aside."""
    usual = {"window": 128, "sample": 1, "min_count": 1, "prompt_sums": True}
    for name, value in recipe.items():
        if value is not None and value != usual.get(name):
            yield "--histogram-only" if name == "prompt_sums" else f"--{name.replace('_', '-')} {value}"


def describe(contribution: Contribution) -> dict[str, Any]:
    """Plain values, ready for JSON."""
    statistics = contribution.statistics()
    return {
        "id": contribution.id,
        "owner": contribution.owner,
        "prompts": statistics.prompts,
        "tokens": statistics.tokens,
        "windows": None if statistics.sums is None else statistics.sums.windows,
        "kept": contribution.kept,
        "embedding": statistics.fingerprint,
        "digest": contribution.digest,
        "sha256": contribution.sha256,
        "parts": list(contribution.parts),
        "recipe": dict(contribution.recipe),
    }


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


def _refuse_repeated(paths: tuple[str, ...]) -> None:
    twice = next((path for index, path in enumerate(paths) if path in paths[:index]), None)
    if twice is not None:
        raise click.UsageError(f"{twice} is named twice: name it once, or it would count twice")


def _refuse_empty(statistics: Statistics, min_count: int) -> None:
    from ir3de.errors import InputError

    if statistics.tokens == 0 and min_count > 1 and statistics.prompts:
        raise InputError(f"no token occurs {min_count:,} times in what was named: name more texts, or a smaller count")
    if statistics.tokens == 0:
        raise InputError("there is no text in what was named: name at least one file with a text in it")


def _show_saved(out: Output, target: Path) -> None:
    out.note(styled(("saved to ", ""), (str(target), "bold"), (f"  {size(target.stat().st_size)}", FAINT)))
    out.note(hint(f"ir3de fit router {target.stem}={target} …"))
