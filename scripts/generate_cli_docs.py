"""Write docs/cli.md from the help of every command; `--check` only compares."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from ir3de.cli import SECTIONS, cli

TARGET = Path(__file__).parent.parent / "docs" / "cli.md"
WIDTH = 100
INTRODUCTION = """# The command line

Every command takes `--json`, which prints one JSON document (JSON lines where there are many prompts) on standard
output and nothing else, and `-q`, which leaves the bare result. Results go to standard output; progress and warnings
go to standard error. Colours are used on a terminal only, and never when `NO_COLOR` is set.

| exit code | meaning |
|---:|---|
| 0 | done |
| 1 | an error, explained in one line on standard error; `IR3DE_DEBUG=1` shows where it came from |
| 2 | the command was called the wrong way |
| 130 | interrupted with Ctrl-C; nothing half written is left behind |

This page is written by `scripts/generate_cli_docs.py` from the commands' own help.
"""


def document() -> str:
    """The whole page: the commands of the library and of the gateway, whatever other packages add to them here."""
    ours = {name: plugin for name, plugin in cli.plugins().items() if name in _list_gateway_commands()}
    cli.plugins = lambda: ours  # type: ignore[method-assign]
    parts = [INTRODUCTION, _block(cli, "ir3de")]
    for title, commands in SECTIONS.items():
        parts.append(f"\n## {title}\n")
        for named in commands:
            command = named if isinstance(named, click.Command) else ours[named].load()
            parts.extend(_sections(command, f"ir3de {command.name}"))
    return "".join(parts)


def _list_gateway_commands() -> list[str]:
    return [name for commands in SECTIONS.values() for name in commands if isinstance(name, str)]


def _sections(command: click.Command, name: str) -> Iterator[str]:
    yield f"\n### {name}\n{_block(command, name)}"
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            yield from _sections(inner, f"{name} {inner.name}")


def _block(command: click.Command, name: str) -> str:
    context = click.Context(
        command, info_name=name, terminal_width=WIDTH, max_content_width=WIDTH, help_option_names=["-h", "--help"]
    )
    lines = [line.rstrip() for line in command.get_help(context).splitlines()]
    return "\n```text\n" + "\n".join(lines) + "\n```\n"


def main() -> int:
    made = document()
    if "--check" in sys.argv[1:]:
        if TARGET.is_file() and TARGET.read_text(encoding="utf-8") == made:
            return 0
        print(f"docs/{TARGET.name} is out of date: run python scripts/generate_cli_docs.py", file=sys.stderr)
        return 1
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
