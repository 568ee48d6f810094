"""What a command is given: NAME=PATH pairs, labelled files with --label, or a folder of experts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ir3de.cli import hints
from ir3de.cli.held_texts import DomainTexts, HeldTexts
from ir3de.cli.misplaced import refuse_misplaced
from ir3de.cli.options import Function, TextOptions, check_described, parse_descriptions, parse_domains
from ir3de.cli.output import Output, one_line, printable
from ir3de.files.atomic import find_kind

if TYPE_CHECKING:
    from ir3de.corpora.repeats import Repeats
    from ir3de.engines import Counting

STDIN = "-"
HEADER_CHARS = 60  # shown of a first line that names no columns
TABLES = {".csv", ".tsv"}  # whose first line names the columns


@dataclass(frozen=True)
class GivenDomains:
    """The experts' texts as they were named on the command line; it is true if any were."""

    sources: tuple[str, ...]
    label: str | None

    def __bool__(self) -> bool:
        return bool(self.sources)

    def read(
        self,
        field: str | None,
        out: Output,
        *,
        whole_files: bool = False,
        skip_bad: int = 0,
        described: Collection[str] | None = None,
        with_statistics: bool = False,
    ) -> dict[str, DomainTexts]:
        """Each expert's paths or, with --label, its texts, which are read here.

        An argument that is in `described` names an expert that needs no texts; `described` is None where the command
        has no descriptions. In a folder of experts, .stats files are taken if the command can use them.
        """
        self.check(field, described)
        names = [one for one in self.sources if one in (described or ()) and "=" not in one]
        alone = [one for one in self.sources if "=" not in one and one not in names]
        if self.label is not None:
            return {**dict.fromkeys(names, ()), **self._read_labelled(names, field, out, whole_files, skip_bad)}
        if alone and all(find_kind(Path(path).expanduser()) == "folder" for path in alone):
            return self._find_experts(alone, with_statistics=with_statistics)
        return dict(parse_domains(None, None, self.sources, names_alone=described is not None))

    def read_texts(
        self, field: str | None, out: Output, *, whole_files: bool = False, skip_bad: int = 0
    ) -> dict[str, list[str]]:
        """Each expert's texts, however they were named; all are held in memory."""
        from ir3de.cli.progress import read_prompts

        found = self.read(field, out, whole_files=whole_files, skip_bad=skip_bad)
        return {name: list(read_prompts(name, texts, field, whole_files, out)) for name, texts in found.items()}

    def read_to_count(
        self, texts: TextOptions, counting: Counting, descriptions: Mapping[str, str], out: Output
    ) -> dict[str, DomainTexts]:
        """Read what is to be counted: statistics files count too, and experts may be described instead."""
        found = self.read(
            texts.field,
            out,
            whole_files=texts.whole_files,
            skip_bad=counting["skip_bad"],
            described=descriptions,
            with_statistics=True,
        )
        check_described(found, descriptions)
        return found

    def check(self, field: str | None, described: Collection[str] | None = None) -> None:
        """Refuse paths without a name, or names with --label, before anything is read."""
        pairs = [one for one in self.sources if "=" in one and not find_kind(one)]
        if self.label is not None and pairs:
            _refuse_pairs(pairs)
        alone = [one for one in self.sources if "=" not in one and one not in (described or ())]
        if self.label is None and not all(find_kind(Path(path).expanduser()) == "folder" for path in alone):
            _refuse_unnamed(alone, field)

    def check_labels(self, found: Mapping[str, DomainTexts], field: str | None) -> None:
        """Refuse labels of which nearly every row has its own, with the command that names the likely columns."""
        from ir3de.corpora.labels import are_unique, describe_unique, find_likely_columns

        held = _list_held(found)
        if self.label is None or not are_unique(held):
            return
        anyway = hints.write_command([*hints.given_arguments(), "--unique-labels"])
        accept = f"or, if each row is an expert of its own:{anyway}"
        rows = hints.peek_rows([one for one in self.sources if one not in found])
        meant = find_likely_columns(rows, self.label) if rows else None
        if meant is None:
            raise click.UsageError(f"{describe_unique(held, self.label)}: name the column that groups them\n{accept}")
        spoken = meant.text or (self.label if field == meant.label else field)
        raise click.UsageError(
            f"{describe_unique(held, self.label)}. Did you mean the column {meant.label!r}:"
            f"{hints.write_columns(meant.label, spoken)}\n{accept}"
        )

    def find_repeats(self, found: Mapping[str, DomainTexts]) -> Repeats | None:
        """What the rows of labelled files say twice, or against each other; None for texts by expert, read later."""
        from ir3de.corpora.repeats import find_repeats

        return None if self.label is None else find_repeats(_list_held(found))

    def check_skipping(self, skip_bad: int) -> None:
        """Refuse --skip-bad where texts are read without --label: the first broken record ends the command."""
        if skip_bad and self.label is None:
            raise click.UsageError(
                "--skip-bad skips rows of a file with --label: leave it out, or name the column of the expert"
            )

    def check_counting(self, counting: Counting) -> None:
        """Refuse the ways of counting that need files of each expert by itself."""
        if self.label is None:
            return
        options = {"--engine ray": counting["engine"] != "local", "--workers": counting["workers"] is not None}
        options["--checkpoint"] = counting["checkpoint"] is not None
        if clash := next((name for name, is_given in options.items() if is_given), None):
            raise click.UsageError(
                f"{clash} cannot be combined with --label, which reads all texts here and holds them in memory: leave "
                "one of them out, or give each expert its own files (NAME=PATH, or a folder of them)"
            )

    def _find_experts(self, folders: Sequence[str], *, with_statistics: bool) -> dict[str, DomainTexts]:
        from ir3de.corpora.labels import find_experts

        found = {
            name: list(paths)
            for name, paths in parse_domains(
                None, None, [one for one in self.sources if one not in folders], names_alone=True
            ).items()
        }
        for folder in folders:
            for name, paths in find_experts(folder, with_statistics=with_statistics).items():
                found.setdefault(name, []).extend(paths)
        return dict(found)

    def _read_labelled(
        self, names: Collection[str], field: str | None, out: Output, whole_files: bool, skip_bad: int
    ) -> dict[str, DomainTexts]:
        from ir3de.cli.progress import reading
        from ir3de.corpora import read_labelled, total_bytes
        from ir3de.engines.shards import BadRecords
        from ir3de.errors import InputError

        assert self.label is not None
        paths = [str(Path(one).expanduser()) for one in self.sources if one not in names]
        if whole_files:
            raise click.UsageError("--whole-files is for plain text, which has no --label: leave one of them out")
        bad = BadRecords(skip_bad)
        try:
            with reading(out, "reading", total_bytes(paths)) as (on_bytes, _):
                found = read_labelled(
                    paths,
                    label=self.label,
                    text=field,
                    on_bytes=on_bytes,
                    on_damage=bad.add_error if skip_bad else None,
                )
        except InputError as error:
            _refuse_columns(paths, self.label, field)
            if not skip_bad:
                _offer_skipping(error, paths, self.label, field)
            raise
        if bad.skipped:
            many = f"{bad.skipped:,} of {bad.skipped + sum(map(len, found.values())):,} records were skipped"
            out.warn("\n  ".join((f"{many}. The first:", *map(printable, bad.examples))), quiet=False)
        return {name: HeldTexts(texts) for name, texts in found.items()}


def _list_held(found: Mapping[str, DomainTexts]) -> dict[str, list[str]]:
    return {name: own.texts for name, own in found.items() if isinstance(own, HeldTexts)}


def given_domains(function: Function) -> Function:
    """Add the argument [PATH|NAME=PATH]... and --label. The command gets them as `domains`, a `GivenDomains`."""

    @click.argument("sources", nargs=-1, metavar="[PATH|NAME=PATH]...")
    @click.option(
        "--label",
        metavar="COLUMN",
        help="Column or field of PATH that names each row's expert. A folder with a file or a sub-folder for each "
        "expert needs no --label.",
    )
    @wraps(function)
    def command(*args: Any, sources: tuple[str, ...], label: str | None, **kwargs: Any) -> Any:
        refuse_misplaced(kwargs.get("descriptions", ()))
        if label is not None and not sources:
            raise click.UsageError(f"--label {label} names a column, but no file has it: name the file, too")
        return function(*args, domains=GivenDomains(sources, label), **kwargs)

    return command  # type: ignore[return-value]


def described_domains(function: Function) -> Function:
    """Add the argument [PATH|NAME=PATH]..., where a NAME alone has a description, --label and --describe."""
    return given_domains(
        click.option(
            "--describe",
            "descriptions",
            multiple=True,
            metavar="NAME=WORDS",
            callback=parse_descriptions,
            help="What an expert is for, in a few words, which count as 20 prompts. A described NAME needs no PATH.",
        )(function)
    )


def _refuse_unnamed(paths: Sequence[str], field: str | None) -> None:
    """Refuse files without a name and without --label; say which command was likely meant."""
    from ir3de.corpora import expand
    from ir3de.corpora.labels import find_needed_text, guess_label
    from ir3de.files.formats import list_names

    if STDIN in paths:
        raise click.UsageError(
            f"- is standard input: say which field names the expert{hints.write_with('--label', 'COLUMN')}"
        )
    for path in paths:
        if Path(path).suffix or "/" in path:
            expand([path])  # refuses what is not there, and names what is spelt like it
    files = [path for path in paths if hints.is_texts(path)]
    rows = hints.peek_rows(files[:1]) if files else []
    if len(files) < len(paths) or not files:
        return  # what is no file is told by what reads names and paths
    _refuse_missing_header(rows, files[0])
    label = guess_label(rows, field)
    if label is None:
        raise click.UsageError(
            f"expected name=path, found {files[0]!r}, which has no column that could name an expert: name the expert "
            f"of each file:{hints.write_named(files)}"
        )
    raise click.UsageError(
        f"{files[0]} has the columns {list_names(rows[0])}: say which one names the expert:"
        f"{hints.write_columns(label, field or find_needed_text(rows, label))}"
    )


def _refuse_pairs(pairs: Sequence[str]) -> NoReturn:
    given, label = hints.given_arguments(), pairs[0].partition("=")[2]
    bare = [one.partition("=")[2] if one in pairs else one for one in given]
    raise click.UsageError(
        f"{pairs[0]} names its expert itself, and --label reads experts from a column: leave --label out, or leave the "
        f"name out if {label} has that column:{hints.write_command(bare)}"
    )


def _refuse_columns(paths: Sequence[str], label: str, field: str | None) -> None:
    """Refuse a column that is not there, or that is missing, with the command that names the nearest ones."""
    from ir3de.corpora.labels import (
        find_likely_columns,
        find_needed_text,
        find_spoken,
        guess_label,
        is_unique_column,
        suggest_name,
    )
    from ir3de.files.formats import list_names

    rows = hints.peek_rows(paths)
    if not rows:
        return
    columns = list(rows[0])
    others = [name for name in columns if name not in (label, field)]
    if label not in columns and "." not in label:
        _refuse_missing_header(rows, paths[0])
        nearest = suggest_name(label, others) or guess_label(rows, field)
        if nearest is not None:
            text = field if field in columns else find_needed_text(rows, nearest)
            _refuse_missing("--label", label, columns, nearest, hints.write_columns(nearest, text))
    if field is not None and field not in columns and "." not in field:
        nearest = suggest_name(field, others) or find_spoken(rows, others)
        if nearest is not None:
            _refuse_missing("--text", field, columns, nearest, hints.write_columns(label, nearest))
    if field is None and (spoken := find_needed_text(rows, label)) is not None:
        likely = find_likely_columns(rows, label) if is_unique_column(rows, label) else None
        right = hints.write_columns(likely.label, likely.text) if likely else hints.write_columns(label, spoken)
        unlikely = f", and nearly every row has its own {label!r}" if likely else ""
        raise click.UsageError(
            f"found no column with a usual name for the text{unlikely}: there are {list_names(columns)}. Say which one "
            f"holds the prompts{' and which one the label' if likely else ''}:{right}"
        )


def _refuse_missing_header(rows: Sequence[Mapping[str, object]], path: str) -> None:
    """Refuse a table whose first line is a row already: what it names a column by stands in that column again."""
    if not TABLES.isdisjoint(Path(path).suffixes) and any(row[name] == name for row in rows for name in row):
        first = one_line(", ".join(rows[0]), HEADER_CHARS)
        raise click.UsageError(
            f"the first line of {path} looks like a row ({first}): write a line above it that names the columns, such "
            "as prompt,label"
        )


def _refuse_missing(option: str, wanted: str, columns: Sequence[str], nearest: str, right: str) -> NoReturn:
    from ir3de.files.formats import list_names

    raise click.UsageError(
        f"found no column {wanted!r} for {option}: there are {list_names(columns)}. Did you mean {nearest!r}?{right}"
    )


def _offer_skipping(error: Exception, paths: Sequence[str], label: str, field: str | None) -> None:
    """Where other rows can be read, say how many cannot, and which command skips them."""
    from ir3de.corpora import read_labelled
    from ir3de.errors import InputError

    if STDIN in paths:
        return  # it cannot be read again
    broken: list[InputError] = []
    try:
        found = read_labelled(paths, label=label, text=field, on_damage=broken.append)
    except InputError:
        return
    if broken and found:
        many = len(broken)
        raise InputError(
            f"{error}. To skip {'this row' if many == 1 else f'the {many:,} rows that cannot be read'}:"
            f"{hints.write_with('--skip-bad', str(many))}"
        ) from error
