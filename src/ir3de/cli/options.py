"""What commands have in common on their command lines: name=path pairs, options for texts, strategies."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ir3de.cli.output import Output
from ir3de.errors import ArtifactError

if TYPE_CHECKING:
    from ir3de.engines import Counting
    from ir3de.scorers.arithmetic import Arithmetic

Function = TypeVar("Function", bound=Callable[..., Any])

STATISTICS_SUFFIX = ".stats"


@dataclass(frozen=True)
class TextOptions:
    """How texts are read and counted; `subsample` is None for auto."""

    field: str | None
    whole_files: bool
    subsample: int | None
    cap: int | None
    clip: int | None = None


def parse_subsample(context: click.Context, parameter: click.Parameter, value: str) -> int | None:
    """A whole number, or None for auto; a click callback."""
    if value == "auto":
        return None
    if not value.isdecimal() or int(value) < 1:
        raise click.BadParameter(f"{value!r} is neither a whole number from 1 nor 'auto'")
    return int(value)


def parse_statistics_path(context: click.Context, parameter: click.Parameter, value: str) -> Path:
    """A file to write statistics to: the suffix is how other commands know it; a click callback."""
    if Path(value).suffix != STATISTICS_SUFFIX:
        raise click.BadParameter(
            f"{value!r} does not end in {STATISTICS_SUFFIX}, by which statistics are known: add it"
        )
    return Path(value).expanduser()


class _HiddenAliases(click.Option):
    """An option whose help shows its first name only."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        names, self.opts = self.opts, self.opts[:1]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = names


def output_options(function: Function) -> Function:
    """--json and --quiet, handed over as one `out`."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
    @click.option("-q", "--quiet", is_flag=True, help="Print the bare result: no progress, tables or hints.")
    @wraps(function)
    def command(*args: Any, as_json: bool, quiet: bool, **kwargs: Any) -> Any:
        return function(*args, out=Output(as_json=as_json, quiet=quiet), **kwargs)

    return command  # type: ignore[return-value]


def reading_options(function: Function) -> Function:
    """--field and --whole-files."""
    field = click.option(
        "--field", metavar="NAME", help="Field (or a.b path) that holds the text; else the usual ones."
    )
    whole = click.option("--whole-files", is_flag=True, help="Make each plain-text file one text, not one a line.")
    return field(whole(function))


def text_options(function: Function) -> Function:
    """All that says how texts become statistics, handed over as one `texts`."""

    @reading_options
    @click.option(
        "--subsample",
        "--sample",  # its name in version 0.1
        cls=_HiddenAliases,
        metavar="N|auto",
        callback=parse_subsample,
        default="auto",
        show_default=True,
        help="Only 1 window in N enters the costly prompt sums; every token is still counted. "
        "auto: 16 for a domain of more than 100 MB on disk, else 1.",
    )
    @click.option(
        "--cap", type=click.IntRange(min=1), metavar="N", help="Ignore the tokens of a prompt beyond the first N."
    )
    @click.option(
        "--clip", type=click.IntRange(min=1), metavar="N", help="Count a token of a prompt N times at the most."
    )
    @wraps(function)
    def command(
        *args: Any,
        field: str | None,
        whole_files: bool,
        subsample: int | None,
        cap: int | None,
        clip: int | None,
        **kwargs: Any,
    ) -> Any:
        return function(*args, texts=TextOptions(field, whole_files, subsample, cap, clip), **kwargs)

    return command  # type: ignore[return-value]


def engine_options(function: Function) -> Function:
    """All that says where texts are counted, handed over as one `counting`."""

    @click.option(
        "--engine",
        type=click.Choice(("local", "ray")),
        default="local",
        show_default=True,
        help="Where to count: on this machine, or on a Ray cluster.",
    )
    @click.option(
        "--workers",
        type=click.IntRange(min=1),
        metavar="N",
        help="Processes to count with.  [default: one a core; none for less than 64 MB]",
    )
    @click.option("--address", metavar="A", help="Of the Ray cluster, such as auto; else one is started here.")
    @click.option(
        "--checkpoint",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Write down there, every few seconds, how far it is: the same command then goes on where it was killed.",
    )
    @click.option(
        "--skip-bad",
        type=click.IntRange(min=0),
        metavar="N",
        default=0,
        show_default=True,
        help="Skip up to N broken records a domain, and tell of them, instead of ending at the first.",
    )
    @wraps(function)
    def command(
        *args: Any,
        engine: str,
        workers: int | None,
        address: str | None,
        checkpoint: Path | None,
        skip_bad: int,
        **kwargs: Any,
    ) -> Any:
        if address is not None and engine != "ray":
            raise click.UsageError("--address is of a Ray cluster: add --engine ray, or leave it out")
        given: Counting = {
            "engine": engine,
            "workers": workers,
            "address": address,
            "checkpoint": checkpoint,
            "skip_bad": skip_bad,
        }
        try:
            return function(*args, counting=given, **kwargs)
        except KeyboardInterrupt:
            if checkpoint is not None:
                click.echo(f"what is counted is kept in {checkpoint}: the same command goes on from there", err=True)
            raise

    return command  # type: ignore[return-value]


def no_sample_option(function: Function) -> Function:
    return click.option(
        "--no-sample",
        is_flag=True,
        help="Keep none of these prompts in the router: no tuning, no calibrated confidence. Otherwise up to 1,024 an "
        "expert are kept, as token ids.",
    )(function)


def embedding_option(function: Function) -> Function:
    return click.option(
        "--embedding",
        "source",
        metavar="SOURCE",
        default="default",
        show_default="the bundled one",
        help="A folder, a .gguf file or a hub id such as owner/model.",
    )(function)


def router_argument(function: Function) -> Function:
    return click.argument("router_path", metavar="ROUTER", type=click.Path(path_type=Path))(function)


def force_option(function: Function) -> Function:
    return click.option("--force", is_flag=True, help="Replace what is there already.")(function)


def parse_domains(context: click.Context, parameter: click.Parameter, pairs: Iterable[str]) -> dict[str, list[str]]:
    """name=path pairs as {name: paths}; a click callback."""
    domains: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not (name.strip() and equals and path):
            raise click.BadParameter(
                f"expected name=path, found {pair!r}: write for instance law={pair.strip('=') or 'law.txt'}"
            )
        path = str(Path(path).expanduser()) if path.startswith("~") else path  # shells leave name=~/… alone
        taken = next((other for other, paths in domains.items() if path in paths), None)
        if taken is not None:
            raise click.BadParameter(f"{path} is named twice, for {taken!r} and for {name!r}: name it once")
        domains.setdefault(name, []).append(path)
    return domains


def domains_argument(function: Function) -> Function:
    return click.argument("domains", nargs=-1, required=True, metavar="NAME=PATH...", callback=parse_domains)(function)


def domains_option(function: Function) -> Function:
    """name=path pairs that may be left out."""
    return click.argument("domains", nargs=-1, metavar="[NAME=PATH...]", callback=parse_domains)(function)


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse, before hours are spent, to replace an artifact unless that was asked for, and what cannot be written."""
    if not force and path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise ArtifactError(f"{path} is there already: choose another name, or replace it with --force")
    whole = path.expanduser()
    folder = next(folder for folder in ((whole,) if whole.is_dir() else ()) + tuple(whole.parents) if folder.exists())
    if not folder.is_dir():
        raise ArtifactError(f"cannot write {path}: {folder} is a file: choose another place")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ArtifactError(f"cannot write {path}: the folder {folder} may not be written to: choose another place")


def device_option(function: Function) -> Function:
    """Add --device: the accelerator that a fit is solved on."""
    return click.option(
        "--device",
        metavar="NAME",
        help="Solve on this device by torch: cuda, cuda:1, cpu.  [default: the processor, by numpy]",
    )(function)


def arithmetic_on(device: str | None) -> Arithmetic | None:
    """What computes on that device, None for the usual; one that is not there is refused before anything is counted."""
    if device is None:
        return None
    from ir3de.scorers.torch_arithmetic import TorchArithmetic

    return TorchArithmetic(device)
