"""The experts' texts as a command gets them: NAME=PATH pairs, labelled files with --label, or a folder of experts."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from ir3de.cli import hints, lib
from ir3de.cli.formats import one_line, printable
from ir3de.cli.options import Function, TextOptions, parse_domains
from ir3de.cli.output import Output, reading
from ir3de.errors import InputError
from ir3de.files.atomic import find_kind

MAX_EXAMPLE_CHARACTERS = 60  # of a prompt in a sentence


@dataclass(frozen=True)
class HeldTexts:
    """The texts of one label, which were read from a labelled file."""

    texts: list[str]

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def bytes(self) -> int:
        return sum(len(text.encode("utf-8", "replace")) for text in self.texts)


DomainTexts = Sequence[str] | HeldTexts  # paths, or the texts themselves


@dataclass(frozen=True)
class GivenDomains:
    """The experts' texts as they are named on the command line; true if there are any."""

    sources: tuple[str, ...]
    label: str | None

    def __bool__(self) -> bool:
        return bool(self.sources)

    def read(
        self,
        options: TextOptions,
        out: Output,
        *,
        described: Collection[str] | None = None,
        with_statistics: bool = False,
    ) -> dict[str, DomainTexts]:
        """Each expert's paths or, with --label, its texts, which are read here.

        An argument in `described` names an expert that needs no texts; `described` is None if the command has no
        descriptions. In a folder of experts, .stats files count if `with_statistics`.
        """
        self.check(options.field, described)
        names = [one for one in self.sources if one in (described or ()) and "=" not in one]
        alone = [one for one in self.sources if "=" not in one and one not in names]
        if self.label is not None:
            return {**dict.fromkeys(names, ()), **self._read_labelled(names, options, out)}
        if alone and all(map(_is_folder, alone)):
            return self._find_experts(alone, with_statistics=with_statistics)
        return dict(parse_domains(None, None, self.sources, names_alone=described is not None))

    def check_skipping(self, options: TextOptions) -> None:
        """Reject --skip-bad without --label: the first broken record then ends the command."""
        if options.skip_bad and self.label is None:
            raise click.UsageError(
                "--skip-bad skips rows of a file with --label: leave it out, or name the column of the expert"
            )

    def read_to_count(
        self, texts: TextOptions, counting: lib.engines.Counting, descriptions: Mapping[str, str], out: Output
    ) -> dict[str, DomainTexts]:
        """As `read`; statistics files count too, and experts may have a description instead."""
        texts = replace(texts, skip_bad=counting["skip_bad"])
        found = self.read(texts, out, described=descriptions, with_statistics=True)
        check_described(found, descriptions)
        return found

    def check(self, field: str | None, described: Collection[str] | None = None) -> None:
        """Reject paths without a name, and names with --label, before anything is read."""
        pairs = [one for one in self.sources if "=" in one and not find_kind(one)]
        if self.label is not None and pairs:
            hints.refuse_pairs(pairs)
        alone = [one for one in self.sources if "=" not in one and one not in (described or ())]
        if self.label is None and not all(map(_is_folder, alone)):
            hints.refuse_unnamed(alone, field)

    def check_labels(self, found: Mapping[str, DomainTexts], field: str | None) -> None:
        """Reject labels of which nearly every row has its own."""
        held = _list_held(found)
        if self.label is not None and lib.labels.are_unique(held):
            paths = [one for one in self.sources if one not in found]
            hints.refuse_unique_labels(lib.labels.describe_unique(held, self.label), paths, self.label, field)

    def find_repeats(self, found: Mapping[str, DomainTexts]) -> lib.repeats.Repeats | None:
        """Repeated and contradictory rows of labelled files; None for paths, which are read later."""
        return None if self.label is None else lib.repeats.find_repeats(_list_held(found))

    def check_counting(self, counting: lib.engines.Counting) -> None:
        """Reject options of counting that need separate files for each expert."""
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
        others = [one for one in self.sources if one not in folders]
        found = parse_domains(None, None, others, names_alone=True)
        for folder in folders:
            for name, paths in lib.labels.find_experts(folder, with_statistics=with_statistics).items():
                found.setdefault(name, []).extend(paths)
        return dict(found)

    def _read_labelled(self, names: Collection[str], options: TextOptions, out: Output) -> dict[str, DomainTexts]:
        assert self.label is not None
        paths = [str(Path(one).expanduser()) for one in self.sources if one not in names]
        field, skip_bad = options.field, options.skip_bad
        if options.whole_files:
            raise click.UsageError("--whole-files is for plain text, which has no --label: leave one of them out")
        bad = lib.shards.BadRecords(skip_bad)
        how: Any = {"label": self.label, "text": field, "on_damage": bad.add_error if skip_bad else None}
        try:
            with reading(out, "reading", lib.corpora.total_bytes(paths)) as on_bytes:
                found = lib.corpora.read_labelled(paths, on_bytes=on_bytes, **how)
        except InputError as error:
            hints.refuse_columns(paths, self.label, field)
            if not skip_bad:
                hints.offer_skipping(error, paths, self.label, field)
            raise
        if bad.skipped:
            many = f"{bad.skipped:,} of {bad.skipped + sum(map(len, found.values())):,} records were skipped"
            out.warn("\n  ".join((f"{many}. The first:", *map(printable, bad.examples))), quiet=False)
        return {name: HeldTexts(texts) for name, texts in found.items()}


def _is_folder(path: str) -> bool:
    return find_kind(Path(path).expanduser()) == "folder"


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
        hints.refuse_misplaced(kwargs.get("descriptions", ()))
        if label is not None and not sources:
            raise click.UsageError(f"--label {label} names a column, but no file has it: name the file, too")
        return function(*args, domains=GivenDomains(sources, label), **kwargs)

    return command  # type: ignore[return-value]


def parse_descriptions(context: click.Context, parameter: click.Parameter, pairs: Iterable[str]) -> dict[str, str]:
    """name=words pairs as {name: words}; a click callback."""
    descriptions: dict[str, str] = {}
    for pair in pairs:
        name, equals, words = pair.partition("=")
        if not (name.strip() and equals and words.strip()):
            raise click.BadParameter(
                f'expected name=words, found {pair!r}: write for instance law="contracts, courts, tenancy"'
            )
        if name in descriptions:
            raise click.BadParameter(f"{name!r} is described twice: put all words into one description")
        descriptions[name] = words
    return descriptions


def check_described(domains: Mapping[str, Sized], descriptions: Mapping[str, str]) -> None:
    """Reject descriptions of experts that are not named, and experts with neither a path nor a description."""
    for name in descriptions:
        if name not in domains:
            raise click.UsageError(
                f"--describe {name}: the experts named are {', '.join(domains)}: correct it, or name {name} or "
                f"{name}=PATH too"
            )
    for name, paths in domains.items():
        if not paths and name not in descriptions:
            raise click.UsageError(
                f'expected name=path, found {name!r}: write for instance {name}={name}.txt, or --describe {name}="…"'
            )


def described_domains(function: Function) -> Function:
    """As `given_domains`, with --describe: a NAME with a description needs no path."""
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


def read_prompts(name: str, texts: DomainTexts, options: TextOptions, out: Output) -> Generator[str, None, None]:
    """The texts of an expert one by one, under a progress bar if they are read now."""
    if isinstance(texts, HeldTexts):
        yield from texts.texts
        return
    how: Any = {"field": options.field, "whole_files": options.whole_files}
    with reading(out, name, lib.corpora.total_bytes(texts)) as on_bytes:
        yield from lib.corpora.read_texts(texts, on_bytes=on_bytes, **how)


def list_repeats(found: lib.repeats.Repeats | None) -> list[str]:
    """The repeated and contradictory prompts in sentences; they count as they are."""
    if found is None:
        return []
    return list(lib.repeats.describe_repeats(found, lambda text: one_line(text, MAX_EXAMPLE_CHARACTERS)))
