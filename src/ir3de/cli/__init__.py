"""The command line. rich, numpy and the rest are imported inside the commands, so that `--help` answers at once."""

from __future__ import annotations

import errno
import os
import sys
from importlib.metadata import EntryPoint, entry_points
from io import TextIOWrapper
from typing import Any

import click

from ir3de.cli import (
    calibrating,
    changing,
    completion,
    configuring,
    contributing,
    demo,
    doctor,
    embeddings,
    evaluating,
    explaining,
    fitting,
    inspecting,
    policies,
    routing,
    serving,
    sharing,
    tuning,
)
from ir3de.errors import IR3DEError

__all__ = ["cli", "main"]

SECTIONS = {
    "Start here": (demo.demo, doctor.doctor),
    "Build a router": (fitting.fit, changing.add, changing.remove, tuning.tune, calibrating.calibrate, policies.policy),
    "Use it": (routing.route, explaining.explain, evaluating.evaluate, inspecting.inspect),
    "Serve it": (serving.serve, configuring.config),
    "Share the work": (sharing.collect, sharing.merge, embeddings.embedding),
    "Answer for it": (contributing.ledger, contributing.receipt, contributing.verify),
    "Set up": (completion.completion,),
}
PLUGINS = "ir3de.commands"  # the entry points by which other packages add commands
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class Commands(click.Group):
    """A group that lists its commands by section and turns errors raised on purpose into one line."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except IR3DEError as error:
            if os.environ.get("IR3DE_DEBUG"):
                raise
            _complain(str(error))
            ctx.exit(1)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:  # the reader has seen enough, as in `… | head`
            _write_no_more()
            ctx.exit(0)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            _write_no_more()
            _complain(f"cannot write the answer: {error.strerror}. Make room, or send the output elsewhere")
            ctx.exit(1)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        if cmd_name in (plugins := _plugins()):
            loaded: click.Command = plugins[cmd_name].load()
            return loaded
        if cmd_name == "bench":
            raise click.UsageError(
                "`bench` is in the package ir3de-lab: pip install ir3de-lab, in a checkout ./lab", ctx
            )
        return None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *_plugins()})

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in self.commands)
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                rows = [(str(command.name).ljust(width), command.get_short_help_str(80)) for command in commands]
                formatter.write_dl(rows)
        if plugins := _plugins():
            with formatter.section("Added by other packages"):
                found = [(name, self.get_command(ctx, name)) for name in sorted(plugins)]
                formatter.write_dl([(name.ljust(width), one.get_short_help_str(80)) for name, one in found if one])


def _plugins() -> dict[str, EntryPoint]:
    """The commands that installed packages add, by name; none of them is imported yet."""
    return {found.name: found for found in entry_points(group=PLUGINS)}


def _write_no_more() -> None:
    """Let what is still to be flushed at exit go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _complain(message: str) -> None:
    colour = False if os.environ.get("NO_COLOR") else None  # None: colour on a terminal
    line = " ".join(message.split())
    click.echo(click.style("error: ", fg="red", bold=True) + line, err=True, color=colour)


def _show_version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"ir3de {doctor.version_of('ir3de') or '(not installed)'}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """IR3DE sends each prompt to the expert whose domain it belongs to: linear, closed-form, explainable.

    \b
      ir3de demo
      ir3de fit router maths=maths.jsonl law=law/ code=code.txt.gz
      ir3de route router "Prove that √2 is irrational."

    Every command takes --json for programs and -q for scripts. IR3DE_DEBUG=1 shows where an error came from.
    """


for _commands in SECTIONS.values():
    for _command in _commands:
        cli.add_command(_command)


def main() -> None:
    """Run the command line: exit code 0 is fine, 1 an error that was explained, 2 a wrong call, 130 Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a bar that the encoding lacks is no reason to stop
    cli(prog_name="ir3de")
