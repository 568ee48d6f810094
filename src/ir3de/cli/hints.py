"""Hints at the nearest right command, filled in with what was given and ready to be copied."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click

from ir3de.files.atomic import find_kind

Function = TypeVar("Function", bound=Callable[..., Any])

ARGUMENTS = "ir3de.arguments"  # under this name the context holds the arguments as they were written
PEEKED_ROWS = 200


def given_arguments() -> list[str]:
    """The arguments of the command that runs, as they were written."""
    return list(click.get_current_context().meta.get(ARGUMENTS, ()))


def write_command(arguments: Sequence[str]) -> str:
    """The command that runs with other arguments, on a line of its own, quoted for the shell."""
    return f"\n  {click.get_current_context().command_path} {shlex.join(arguments)}"


def write_swapped(first: str, second: str) -> str:
    """The command with two of its arguments in the other order."""
    other = {first: second, second: first}
    return write_command([other.get(argument, argument) for argument in given_arguments()])


def write_with(option: str, value: str, *aliases: str) -> str:
    """The command with this value of an option, instead of another one if there is any."""
    return write_command([*_leave_out(given_arguments(), (option, *aliases)), option, value])


def write_columns(label: str, text: str | None) -> str:
    """The command with these columns instead of the ones that were named; without --text if it is None."""
    kept = _leave_out(given_arguments(), ("--label", "--text", "--field"))
    return write_command([*kept, "--label", label, *(() if text is None else ("--text", text))])


def _leave_out(arguments: Sequence[str], names: tuple[str, ...]) -> list[str]:
    """The arguments without these options and their values."""
    left, kept = iter(arguments), []
    for argument in left:
        if argument in names:
            next(left, None)
        elif not argument.startswith(tuple(f"{name}=" for name in names)):
            kept.append(argument)
    return kept


def write_named(paths: Sequence[str]) -> str:
    """The command with a name before each of these paths, which is made from the path."""
    return write_command([f"{name_from(one)}={one}" if one in paths else one for one in given_arguments()])


def name_from(path: str) -> str:
    """An expert's name for a path: that of the file or the folder, without suffixes."""
    return Path(path).name.partition(".")[0] or "law"


def is_texts(path: str | Path) -> bool:
    """Whether that is a file of texts, by its suffix."""
    from ir3de.files.sources import recognise

    return find_kind(path) == "file" and recognise(Path(path)) is not None


def is_router(path: str | Path) -> bool:
    """Whether a router was saved there."""
    from ir3de.files.router_folder import holds_router

    return holds_router(path)


def peek_rows(paths: Sequence[str]) -> list[Mapping[str, object]]:
    """The first rows of the first file; empty where it cannot be read again, or has no columns."""
    from ir3de.corpora import expand, read_rows
    from ir3de.corpora.labelled import PLAIN_TEXTS
    from ir3de.errors import IR3DEError

    try:
        tables = [source for source in expand(paths) if source.path is not None and source.kind not in PLAIN_TEXTS]
        if not tables:
            return []
        return list(islice(read_rows([tables[0].name], on_damage=lambda _: None), PEEKED_ROWS))
    except IR3DEError:
        return []


def router_before_prompt(function: Function) -> Function:
    """Refuse a prompt where the router belongs, if the router stands where the prompt belongs."""

    @wraps(function)
    def command(*args: Any, router_path: Path, text: str | None, **kwargs: Any) -> Any:
        if text is not None and not is_router(router_path) and is_router(text):
            raise click.UsageError(
                f"ROUTER and TEXT look swapped: the router comes first:{write_swapped(str(router_path), text)}"
            )
        return function(*args, router_path=router_path, text=text, **kwargs)

    return command  # type: ignore[return-value]
