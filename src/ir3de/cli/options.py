"""Options and arguments that several commands share, each defined once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from ir3de.cli import lib
from ir3de.cli.outcomes import GivenOutcomes
from ir3de.cli.output import Output
from ir3de.errors import ArtifactError

Function = TypeVar("Function", bound=Callable[..., Any])

STATISTICS_SUFFIX = ".stats"
MISSING_DOMAINS = (
    "Missing argument 'PATH|NAME=PATH': name a file with --label, a folder of experts, at least one NAME=PATH"
)


@dataclass(frozen=True)
class TextOptions:
    """How texts are read and counted; `subsample` is None for auto."""

    field: str | None = None
    whole_files: bool = False
    subsample: int | None = None
    cap: int | None = None
    clip: int | None = None
    skip_bad: int = 0  # of labelled rows


class _HiddenAliases(click.Option):
    """An option whose help shows its first name only."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        names, self.opts = self.opts, self.opts[:1]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = names


def gather_options(
    name: str, make: Callable[..., Any], *options: Callable[[Any], Any]
) -> Callable[[Function], Function]:
    """Add options to a command, which gets their values as one argument: `name=make(**values)`."""
    parameters = tuple(signature(make).parameters)

    def decorate(function: Function) -> Function:
        @wraps(function)
        def command(*args: Any, **kwargs: Any) -> Any:
            values = {parameter: kwargs.pop(parameter) for parameter in parameters}
            return function(*args, **{name: make(**values)}, **kwargs)

        for option in reversed(options):
            command = option(command)
        return command  # type: ignore[return-value]

    return decorate


def number_option(*names: str, least: int = 1, default: int | None = None, **more: Any) -> Callable[[Any], Any]:
    """An option that takes a whole number."""
    shown, kind = default is not None, click.IntRange(min=least)
    return click.option(*names, type=kind, metavar="N", default=default, show_default=shown, **more)


# the router, the output, the device ---------------------------------------------------------------------------------

router_argument = click.argument("router_path", metavar="ROUTER", type=click.Path(path_type=Path))
force_option = click.option("--force", is_flag=True, help="Replace what exists already.")


def output_options(function: Function) -> Function:
    """Add --json and --quiet. The command gets them as `out`, an `Output`."""
    return gather_options(
        "out",
        Output,
        click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else."),
        click.option("-q", "--quiet", is_flag=True, help="Print the bare result: no progress, tables or hints."),
    )(function)


def device_option(function: Function) -> Function:
    """Add --device, the accelerator that solves a fit."""
    return click.option(
        "--device", metavar="NAME", help="Device that solves the fit with torch: cuda, cuda:1, cpu.  [default: numpy]"
    )(function)


def load_arithmetic(device: str | None) -> lib.arithmetic.Arithmetic | None:
    """The arithmetic that computes on a device, or None for numpy. Rejects a device that does not exist."""
    if device is None:
        return None

    return lib.arithmetic.TorchArithmetic(device)


def refuse_existing(path: Path, *, force: bool) -> None:
    """Reject a path that cannot be written, or that exists without --force, before hours of work."""
    if not force and path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise ArtifactError(f"{path} exists already: choose another name, or replace it with --force")
    whole = path.expanduser()
    folder = next(folder for folder in ((whole,) if whole.is_dir() else ()) + tuple(whole.parents) if folder.exists())
    if not folder.is_dir():
        raise ArtifactError(f"cannot write {path}: {folder} is a file: choose another place")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ArtifactError(f"cannot write {path}: the folder {folder} is not writable: choose another place")


def check_suffix(path: str, suffixes: Sequence[str], advice: str) -> Path:
    """The path, which must end in one of these."""
    if Path(path).suffix.lower() not in suffixes:
        named = " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))
        raise click.BadParameter(f"{path!r} does not end in {named}: {advice}")
    return Path(path).expanduser()


# texts --------------------------------------------------------------------------------------------------------------

field_option = click.option(
    "--text",
    "--field",  # its name in version 0.1
    "field",
    cls=_HiddenAliases,
    metavar="COLUMN",
    help="Column or field that holds the text, or a path a.b to it; else the usual names are tried.",
)
chat_option = click.option(
    "--chat",
    metavar="PATH",
    help="Read chats instead: JSON lines with `messages`, or one JSON file; - is standard input.",
)
whole_files_option = click.option(
    "--whole-files", is_flag=True, help="Take each plain-text file as one text, instead of each line."
)


reading_options = gather_options(
    "texts",
    lambda field, whole_files, skip_bad: TextOptions(field, whole_files, skip_bad=skip_bad),
    field_option,
    whole_files_option,
    number_option(
        "--skip-bad",
        least=0,
        default=0,
        help="With --label, skip and report up to N broken rows, instead of stopping at the first.",
    ),
)


def _parse_subsample(context: click.Context, parameter: click.Parameter, value: str) -> int | None:
    if value == "auto":
        return None
    if not value.isdecimal() or int(value) < 1:
        raise click.BadParameter(f"{value!r} is neither a whole number from 1 nor 'auto'")
    return int(value)


text_options = gather_options(
    "texts",
    lambda field, whole_files, subsample, cap, clip: TextOptions(field, whole_files, subsample, cap, clip),
    field_option,
    whole_files_option,
    click.option(
        "--subsample",
        "--sample",  # its name in version 0.1
        cls=_HiddenAliases,
        metavar="N|auto",
        callback=_parse_subsample,
        default="auto",
        show_default=True,
        help="Use only 1 window in N for the prompt sums, which are slow; every token is still counted. "
        "auto: 16 for a domain of more than 100 MB on disk, else 1.",
    ),
    number_option("--cap", help="Use only the first N tokens of each prompt."),
    number_option("--clip", help="Count a token at most N times in each prompt."),
)
embedding_option = click.option(
    "--embedding",
    "source",
    metavar="SOURCE",
    default="default",
    show_default="the bundled one",
    help="A folder, a .gguf file, a hub id such as owner/model, or multilingual, once that is installed.",
)
no_sample_option = click.option(
    "--no-sample",
    is_flag=True,
    help="Keep no prompts in the router: no tuning, no calibrated confidence. Otherwise up to 1,024 prompts per expert "
    "are kept, as token ids.",
)


# NAME=PATH ----------------------------------------------------------------------------------------------------------


def parse_domains(
    context: click.Context | None, parameter: click.Parameter | None, pairs: Iterable[str], *, names_alone: bool = False
) -> dict[str, list[str]]:
    """name=path pairs as {name: paths}; a click callback. `names_alone` lets experts have no path."""
    domains: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if names_alone and name.strip() and not equals:
            domains.setdefault(name, [])
            continue
        if not (name.strip() and equals and path):
            raise click.BadParameter(
                f"expected name=path, found {pair!r}: write for instance law={pair.strip('=') or 'law.txt'}"
            )
        path = str(Path(path).expanduser()) if path.startswith("~") else path  # shells do not expand name=~/…
        taken = next((other for other, paths in domains.items() if path in paths), None)
        if taken is not None:
            raise click.BadParameter(f"{path} is named twice, for {taken!r} and for {name!r}: name it once")
        domains.setdefault(name, []).append(path)
    return domains


def domains_option(function: Function) -> Function:
    """Add the optional argument NAME=PATH..., for commands without --label."""
    return click.argument("domains", nargs=-1, metavar="[NAME=PATH...]", callback=parse_domains)(function)


# how texts are counted ----------------------------------------------------------------------------------------------


def _make_counting(
    engine: str, workers: int | None, address: str | None, checkpoint: Path | None, skip_bad: int
) -> lib.engines.Counting:
    if address is not None and engine != "ray":
        raise click.UsageError("--address names a Ray cluster: add --engine ray, or leave --address out")
    return {
        "engine": engine, "workers": workers, "address": address, "checkpoint": checkpoint, "skip_bad": skip_bad
    }  # fmt: skip


_engine_options = gather_options(
    "counting",
    _make_counting,
    click.option(
        "--engine",
        type=click.Choice(("local", "ray")),
        default="local",
        show_default=True,
        help="Count on this machine, or on a Ray cluster.",
    ),
    number_option(
        "--workers", help="Number of processes that count.  [default: one per core; below 64 MB this process alone]"
    ),
    click.option("--address", metavar="A", help="Address of the Ray cluster, such as auto; else one is started here."),
    click.option(
        "--checkpoint",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Save the progress in this folder every few seconds. If the command is stopped, run it again: it "
        "continues from there.",
    ),
    number_option(
        "--skip-bad",
        least=0,
        default=0,
        help="Skip and report up to N broken records per domain, instead of stopping at the first.",
    ),
)


def engine_options(function: Function) -> Function:
    """Add the options that choose where texts are counted. The command gets them as one `counting`."""

    @_engine_options
    @wraps(function)
    def command(*args: Any, counting: lib.engines.Counting, **kwargs: Any) -> Any:
        try:
            return function(*args, counting=counting, **kwargs)
        except KeyboardInterrupt:
            if checkpoint := counting["checkpoint"]:
                click.echo(f"the counts are kept in {checkpoint}: run the same command again to continue", err=True)
            raise

    return command  # type: ignore[return-value]


# --outcomes, --strong and --weak ------------------------------------------------------------------------------------

COST_PARAMETERS = ("costs_file", "price", "latency", "memory")
SHARE_PARAMETERS = ("strong_share", "strong", "weak")


def or_outcomes(instead: Callable[..., None], *also: str) -> Callable[[Function], Function]:
    """Add --outcomes and --score-field. With --outcomes, `instead` runs, and accepts only the parameters in `also`."""
    accepted = ("router_path", "outcomes", "score_field", "field", "as_json", "quiet", *also)

    def decorate(function: Function) -> Function:
        @click.option(
            "--outcomes",
            multiple=True,
            metavar="PATH",
            help='Rows {"text": …, "task": …, "scores": {model: number}} instead of NAME=PATH; may be repeated.',
        )
        @click.option(
            "--score-field", metavar="NAME", help="Field of --outcomes that holds the scores.  [default: scores]"
        )
        @wraps(function)
        def command(*args: Any, outcomes: Sequence[str], score_field: str | None, **kwargs: Any) -> Any:
            if outcomes:
                check_clashes("--outcomes", accepted)
                given = GivenOutcomes(outcomes, score_field or "scores", kwargs["texts"].field)
                lib.corpora.total_bytes(outcomes)  # a misspelt path is found first
                return instead(*args, given=given, **kwargs)
            if score_field is not None:
                raise click.UsageError(
                    "--score-field belongs to --outcomes: leave it out, or name rows with --outcomes"
                )
            if not kwargs["domains"]:
                raise click.UsageError(f"{MISSING_DOMAINS}, or models' scores with --outcomes")
            return function(*args, **kwargs)

        return command  # type: ignore[return-value]

    return decorate


def check_clashes(option: str, accepted: Sequence[str]) -> None:
    """Reject parameters that cannot be combined with this option."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if name not in accepted and source is not None and source.name in ("COMMANDLINE", "PROMPT"):
            given = "NAME=PATH" if name in ("domains", "sources") else parameter.opts[0]
            raise click.UsageError(f"{given} cannot be combined with {option}: leave one of them out")


class StrongOptions(NamedTuple):
    """The share of prompts for a strong model, and the names of the two models."""

    share: float | None
    strong: str | None
    weak: str | None

    @property
    def names(self) -> dict[str, str | None]:
        return {"strong": self.strong, "weak": self.weak}

    def check(self) -> None:
        """Reject an impossible share, and names without a share, before anything is read."""
        if self.share is not None:
            lib.policies.check_share(self.share)
        elif any(self.names.values()):
            raise click.UsageError("--strong and --weak belong to --strong-share: give a share, or leave them out")


_pair_options = (
    click.option("--strong", metavar="NAME", help="The strong model.  [default: the better one of two]"),
    click.option("--weak", metavar="NAME", help="The weak model.  [default: the other one of two]"),
)
pair_options = gather_options("pair", lambda strong, weak: StrongOptions(None, strong, weak), *_pair_options)
share_options = gather_options(
    "pair",
    lambda strong_share, strong, weak: StrongOptions(strong_share, strong, weak),
    click.option(
        "--strong-share",
        type=float,
        metavar="P",
        help="Share of prompts that go to the strong model, between 0 and 1: 0.3 for 30 %.",
    ),
    *_pair_options,
)
