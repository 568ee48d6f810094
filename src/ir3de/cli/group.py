"""The command group: help by section, errors in one line, and commands that other packages add."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

import click

from ir3de.cli.hints import ARGUMENTS, explain_option
from ir3de.errors import IR3DEError, name_extra

PLUGIN_GROUP = "ir3de.commands"  # entry points by which other packages add commands


class KnownPlugin(NamedTuple):
    """A command of one of our other distributions, which may not be installed."""

    distribution: str
    summary: str


KNOWN_PLUGINS = {
    "serve": KnownPlugin("ir3de-gateway", "Serve the experts behind one OpenAI-compatible endpoint."),
    "config": KnownPlugin("ir3de-gateway", "Write, check and show the gateway's configuration."),
    "keys": KnownPlugin("ir3de-gateway", "Make keys for clients of the gateway."),
    "ext-proc": KnownPlugin("ir3de-gateway", "Route inside Envoy, as an external processor."),
    "router": KnownPlugin("ir3de-gateway", "Show and undo changes of a gateway's router."),
    "bench": KnownPlugin("ir3de-lab", "Measure speed, accuracy and the paper's experiments."),
}
OTHER_NAMES = {  # what other tools call our commands
    "train": "fit", "predict": "route", "classify": "route", "evaluate": "eval", "test": "eval", "score": "eval",
    "delete": "remove", "info": "inspect", "show": "inspect", "run": "serve", "start": "serve",
}  # fmt: skip
INTERRUPTED_EXIT_CODE = 130  # 128 + SIGINT, as in a shell
MAX_SUMMARY_CHARACTERS = 80


def refuse_other_name(group: click.Group, ctx: click.Context, given: str, names: Mapping[str, str]) -> None:
    """Refuse what other tools call one of the group's commands, with its name here."""
    meant = names.get(given, "")
    is_ours = meant in group.commands or meant in KNOWN_PLUGINS
    if not ctx.resilient_parsing and is_ours and group.get_command(ctx, given) is None:
        ctx.fail(f"No such command '{given}'. Did you mean '{meant}'?")


class PluginError(IR3DEError, ImportError):
    """A command of another package cannot be loaded."""


class PluginCommand(click.Command):
    """Stands for another package's command in help and completion, so that neither imports the package."""

    def __init__(self, entry: EntryPoint) -> None:
        self.entry = entry
        self.package = entry.dist.name if entry.dist else "another package"
        known = KNOWN_PLUGINS.get(entry.name)
        summary = known.summary if known else entry.dist.metadata["Summary"] if entry.dist else None
        super().__init__(entry.name, help=summary or f"From the package {self.package}.")

    def load(self) -> click.Command:
        """Import the package and return the real command."""
        try:
            command = self.entry.load()
        except Exception as error:
            raise PluginError(
                f"the command `{self.name}` of the package {self.package} cannot be loaded "
                f"({type(error).__name__}: {error}): update the package, or uninstall it"
            ) from error
        if not isinstance(command, click.Command):
            raise PluginError(
                f"the command `{self.name}` of the package {self.package} is not a click command "
                f"but a {type(command).__name__}: update the package, or uninstall it"
            )
        return command


class CommandGroup(click.Group):
    """A group that lists its commands by section and prints expected errors as one line."""

    sections: Mapping[str, Sequence[click.Command | str]] = {}

    def add_sections(self, sections: Mapping[str, Sequence[click.Command | str]]) -> None:
        """Add the commands, and list them in this order. A string is the name of a known plugin."""
        self.sections = sections
        for commands in sections.values():
            for command in commands:
                if isinstance(command, click.Command):
                    self.add_command(command)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except click.NoSuchOption as error:
            raise explain_option(error) from None
        except IR3DEError as error:
            if os.environ.get("IR3DE_DEBUG"):
                raise
            _print_error(str(error))
            ctx.exit(1)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED_EXIT_CODE)
        except BrokenPipeError:  # the reader has seen enough, as in `… | head`
            _discard_output()
            ctx.exit(0)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                found = f"{str(error.filename)[:MAX_SUMMARY_CHARACTERS]}…"
                _print_error(f"{error.strerror}: {found} stands where a path belongs: check the arguments")
                ctx.exit(1)
            if error.errno != errno.ENOSPC:
                raise
            _discard_output()
            _print_error(f"cannot write the output: {error.strerror}. Free some space, or send the output elsewhere")
            ctx.exit(1)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.commands.get(cmd_name) or self.plugins().get(cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *self.plugins()})

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is run or completed: only here is another package imported."""
        if not ctx.resilient_parsing and args[0] in KNOWN_PLUGINS and self.get_command(ctx, args[0]) is None:
            distribution = KNOWN_PLUGINS[args[0]].distribution
            raise click.UsageError(f"`{args[0]}` is not installed: {name_extra('', distribution)}", ctx)
        refuse_other_name(self, ctx, args[0], OTHER_NAMES)
        name, command, rest = super().resolve_command(ctx, args)
        ctx.meta[ARGUMENTS] = tuple(rest)  # as they were written, for hints at the nearest right command
        if isinstance(command, PluginCommand):
            try:
                command = command.load()
            except PluginError:
                if not ctx.resilient_parsing:  # completion must print nothing but completions
                    raise
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        plugins = self.plugins()
        width = max(map(len, (*self.commands, *plugins, *KNOWN_PLUGINS)))
        for title, commands in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in _describe(commands, plugins)])
        listed = {one for commands in self.sections.values() for one in commands if isinstance(one, str)}
        if added := [plugin for name, plugin in plugins.items() if name not in listed]:
            with formatter.section("Added by other packages"):
                formatter.write_dl([(name.ljust(width), text) for name, text in _describe(added, plugins)])

    def plugins(self) -> dict[str, PluginCommand]:
        """The commands that installed packages add, by name. None replaces a command of ir3de."""
        found = sorted(entry_points(group=PLUGIN_GROUP), key=lambda entry: (entry.name, entry.value))
        return {entry.name: PluginCommand(entry) for entry in found if self._may_add(entry)}

    def _may_add(self, entry: EntryPoint) -> bool:
        known = KNOWN_PLUGINS.get(entry.name)
        is_ours = known is None or (entry.dist is not None and entry.dist.name == known.distribution)
        return entry.name not in self.commands and is_ours


def _describe(
    commands: Sequence[click.Command | str], plugins: Mapping[str, PluginCommand]
) -> Iterator[tuple[str, str]]:
    """The name and the summary of each command; of a known plugin that is not installed, what it needs."""
    for one in commands:
        command = plugins.get(one) if isinstance(one, str) else one
        if command is not None:
            yield str(command.name), command.get_short_help_str(MAX_SUMMARY_CHARACTERS)
        elif isinstance(one, str):
            yield one, f"needs {KNOWN_PLUGINS[one].distribution}"


def _discard_output() -> None:
    """Send what is still to be flushed at exit to nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _print_error(message: str) -> None:
    colour = False if os.environ.get("NO_COLOR") else None  # None: colour on a terminal
    line = " ".join(message.split())
    click.echo(click.style("error: ", fg="red", bold=True) + line, err=True, color=colour)
