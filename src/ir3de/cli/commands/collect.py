"""collect, merge: count one domain's texts where they are, and add such statistics up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

import ir3de
from ir3de.cli import lib, options
from ir3de.cli.counting import (
    CountedDomain,
    check_sources,
    count_domain,
    domains_table,
    load_contributions,
    load_embedding,
    statistics_files,
    warn_of_skipped,
)  # fmt: skip
from ir3de.cli.domains import DomainTexts, GivenDomains
from ir3de.cli.formats import line
from ir3de.cli.output import Output, Result, facts, hint, saved_line
from ir3de.errors import InputError
from ir3de.statistics.defaults import DEFAULT_WINDOW


@dataclass(frozen=True)
class Labels:
    """The id and the owner of a contribution."""

    id: str | None
    owner: str

    def make(
        self, statistics: ir3de.Statistics, given: Sequence[ir3de.Contribution], recipe: Mapping[str, Any] | None = None
    ) -> ir3de.Contribution:
        """The statistics as a contribution made of those given; rejects one that was given twice."""
        parts = lib.contributions.find_holders(given, "these files are not all different: one")
        return ir3de.Contribution.of(statistics, owner=self.owner, id=self.id, recipe=recipe, parts=parts)


def _make_labels(owner: str, named: str | None) -> Labels:
    return Labels(None if named is None else lib.contributions.check_id(named), lib.contributions.check_owner(owner))


label_options = options.gather_options(
    "labels",
    _make_labels,
    click.option("--owner", metavar="LABEL", default="", help="Who owns the texts; a router's ledger shows it."),
    click.option("--id", "named", metavar="ID", help="Id of the contribution.  [default: made of its hash]"),
)


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
    "--window",
    type=click.IntRange(1, 8_192),
    metavar="N",
    default=DEFAULT_WINDOW,
    show_default=True,
    help="Tokens per window.",
)
@click.option(
    "--keep-sample",
    is_flag=True,
    help="Keep up to 1,024 of the prompts, as token ids, for tuning and calibration. Anyone who has the file "
    "can then read those prompts.",
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
    counting: lib.engines.Counting,
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

    OUT is a file that ends in .stats. With --label, that column names the expert of each row of all PATHs; OUT is then
    a folder that gets one file per label, and `ir3de fit router OUT` takes the folder.

    The file holds sums of integers, and no text unless --keep-sample is given. `fit`, `add` and `merge` take it in
    place of the texts.

    A histogram still reveals rare words, names and numbers. --clip, --min-count and --histogram-only reveal less;
    docs/privacy.md lists what remains. --min-count applies to this file alone: the sum of two such files differs from
    one collection of all the texts with --min-count.

    \b
    Example:
      ir3de collect law.stats cases/ statutes.jsonl
      ir3de collect statistics/ train.csv --label team
      ir3de collect law.stats cases/ --clip 1 --min-count 10
      ir3de fit router law=law.stats maths=maths.jsonl
    """
    _check_thresholded(min_count, paths, keep_sample=keep_sample, histogram_only=histogram_only, held=label is not None)
    _refuse_repeated(paths)
    given: Mapping[str, DomainTexts] = {target.stem: paths}
    if label is None:
        targets = {target.stem: _parse_statistics_path(None, None, str(target))}
    else:
        domains = GivenDomains(paths, label)
        domains.check_counting(counting)
        _check_folder(target, labels)
        given = domains.read(replace(texts, skip_bad=counting["skip_bad"]), out)
        targets = _name_files(target.expanduser(), given)
    for path in targets.values():
        options.refuse_existing(path, force=force)
    check_sources(given)
    embedding = load_embedding(source, out)
    how: Any = {"window": window, "keep_sample": keep_sample, "min_count": min_count, "counting": counting}
    made = {}
    for name, one in given.items():
        counted = count_domain(name, one, embedding, texts, out, prompt_sums=not histogram_only, **how)
        made[name] = counted, _make(counted, labels, min_count, keep_sample=keep_sample, label=label)
    for name, (counted, contribution) in made.items():  # nothing is written before everything is counted
        targets[name].parent.mkdir(parents=True, exist_ok=True)
        contribution.save(targets[name])
        counted.discard_checkpoints()
    everything = [counted for counted, _ in made.values()]
    documents = [counted.to_dict() for counted in everything]
    out.note(domains_table(documents), "")
    warn_of_skipped(out, everything)
    if label is None:
        _report_saved(out, targets[target.stem], made[target.stem][1], **everything[0].describe_reading())
        return
    files = [{**one, "file": str(targets[one["name"]]), "id": made[one["name"]][1].id} for one in documents]
    saved = Result(line((f"{len(made):,} files saved to ", ""), (str(target), "bold")))
    out.show({"folder": str(target), "files": files}, (saved, hint(f"ir3de fit router {target}")))


def _parse_statistics_path(context: click.Context | None, parameter: click.Parameter | None, value: str) -> Path:
    """The file to write statistics to; a click callback."""
    return options.check_suffix(value, [options.STATISTICS_SUFFIX], "other commands know statistics by it: add it")


def _make(
    counted: CountedDomain, labels: Labels, min_count: int, *, keep_sample: bool, label: str | None
) -> ir3de.Contribution:
    """A contribution from the counts; rejects one without any token."""
    where = "these texts" if label is None else f"the texts of {counted.name!r}"
    whole = counted.statistics if keep_sample else counted.statistics.without_sample()
    whole = whole.at_least(min_count) if counted.contributions else whole
    if not whole.tokens and min_count > 1 and whole.prompts:
        raise InputError(f"no token occurs {min_count:,} times in {where}: add texts, or lower --min-count")
    if not whole.tokens:
        raise InputError("these sources contain no text: name at least one file with a text in it")
    return labels.make(whole, counted.contributions, recipe=counted.recipe)


def _check_folder(target: Path, labels: Labels) -> None:
    """Reject what cannot be a folder of statistics."""
    if target.suffix == options.STATISTICS_SUFFIX or target.is_file():
        raise click.UsageError(
            f"with --label, OUT is a folder that gets one .stats file per label, found {str(target)!r}: name a folder"
        )
    if labels.id is not None:
        raise click.UsageError("--id names one contribution, and --label makes one per label: leave one of them out")


def _name_files(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """The file of each label; rejects labels that cannot be the names of different files."""
    targets: dict[str, Path] = {}
    taken: dict[str, str] = {}
    for name in names:
        if name.startswith(".") or any(character in name for character in '/\\:*?"<>|') or not name.isprintable():
            raise InputError(f"the label {name!r} cannot be the name of a file: rename it in the data")
        if (other := taken.setdefault(name.casefold(), name)) != name:
            raise InputError(f"the labels {other!r} and {name!r} are one file on many machines: rename one of them")
        targets[name] = folder / f"{name}{options.STATISTICS_SUFFIX}"
    return targets


def _check_thresholded(
    min_count: int, paths: tuple[str, ...], *, keep_sample: bool, histogram_only: bool, held: bool
) -> None:
    """Reject options that bring rare tokens back, and sources that cannot be read twice."""
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


@click.command()
@click.argument("target", metavar="OUT.stats", callback=_parse_statistics_path)
@click.argument("paths", nargs=-1, required=True, metavar="FILE.stats...")
@label_options
@options.force_option
@options.output_options
def merge(target: Path, paths: tuple[str, ...], labels: Labels, force: bool, out: Output) -> None:
    """Add statistics files up, exactly.

    The sum has the same bits as one collection of all the texts, in any order, if all files were collected with the
    same --subsample. The sum is one contribution. To be able to remove each owner's part from a router later, give the
    router their files instead: `ir3de add router --merge law=berlin.stats law=paris.stats`. A FILE may be a quoted
    pattern. The same statistics given twice are rejected, by their hash.

    \b
    Example:
      ir3de merge law.stats law-berlin.stats law-paris.stats
    """
    options.refuse_existing(target, force=force)
    _refuse_repeated(paths)
    given = load_contributions(statistics_files(paths))
    total = sum((one.statistics() for one in given[1:]), given[0].statistics())
    made = labels.make(total, given)
    made.save(target)
    out.note(facts(list_contribution_facts(made)))
    _report_saved(out, target, made, merged=list(paths))


def _refuse_repeated(paths: tuple[str, ...]) -> None:
    twice = next((path for index, path in enumerate(paths) if path in paths[:index]), None)
    if twice is not None:
        raise click.UsageError(f"{twice} is named twice and would count twice: name it once")


def _report_saved(out: Output, target: Path, made: ir3de.Contribution, **more: Any) -> None:
    size = target.stat().st_size
    document = {"statistics": str(target), "bytes": size, **describe_contribution(made), **more}
    out.show(document, (saved_line(target, size), hint(f"ir3de fit router {target.stem}={target} …")))


def describe_contribution(contribution: ir3de.Contribution) -> dict[str, Any]:
    """Plain values, ready for JSON."""
    statistics = contribution.statistics()
    return {
        "id": contribution.id,
        "owner": contribution.owner,
        "prompts": statistics.prompts,
        "tokens": statistics.tokens,
        "windows": None if statistics.sums is None else statistics.sums.windows,
        "kept": contribution.kept,
        "sources": 0 if statistics.sample is None else statistics.sample.count_sources(),
        "embedding": statistics.fingerprint,
        "digest": contribution.digest,
        "sha256": contribution.sha256,
        "parts": list(contribution.parts),
        "recipe": dict(contribution.recipe),
    }


def list_contribution_facts(contribution: ir3de.Contribution) -> Iterator[tuple[str, str]]:
    """The content of a file of statistics, as names and values."""
    found, sums = describe_contribution(contribution), contribution.statistics().sums
    recipe, sources = ", ".join(_list_options(found["recipe"])), found["sources"]
    origin = f", from {sources:,} source{'s' * (sources > 1)}" if sources else ""
    yield "contribution", f"{found['id']}{' of ' * bool(found['owner'])}{found['owner']}"
    yield "prompts", f"{found['prompts']:,}"
    yield "tokens", f"{found['tokens']:,}"
    windows = "none: histogram only" if sums is None else f"{sums.windows:,} windows of about {sums.window} tokens"
    yield "prompt sums", windows
    yield "prompts kept", f"{found['kept']:,}, as token ids{origin}" if found["kept"] else "none"
    yield "collected with", recipe or ("no option" if found["recipe"] else "not known")
    yield "merged from", f"{len(found['parts'])} contributions" if found["parts"] else "none: as collected"
    yield "embedding", found["embedding"][:12]
    yield "digest", found["digest"]


def _list_options(recipe: Mapping[str, Any]) -> Iterator[str]:
    """The options that the texts were collected with, except those with default values."""
    defaults = {"window": DEFAULT_WINDOW, "subsample": 1, "min_count": 1, "prompt_sums": True}
    for given, value in recipe.items():
        name = "subsample" if given == "sample" else given  # its name in version 0.1
        if value is not None and value != defaults.get(name):
            yield "--histogram-only" if name == "prompt_sums" else f"--{name.replace('_', '-')} {value}"
