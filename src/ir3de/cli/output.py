"""How things look: JSON for programs, tables, bars and colours for people. Nothing here imports rich until it draws."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from ir3de.routing.decision import Decision

# the terminal's own colours, so that they suit its theme; the order keeps neighbours apart
_COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red")
PALETTE = (*_COLOURS, *(f"bright_{name}" for name in _COLOURS))
FAINT = "bright_black"
THEME = {f"progress.{name}": FAINT for name in ("download", "data.speed", "remaining", "elapsed")}
TURNS = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # they turn the direction of the line
LEAST_WIDTH = 6  # of a column of words
PIPE_WIDTH = 100  # of output that no terminal shows


@dataclass(frozen=True)
class Output:
    """Where a command's answers go: `result` always, `note` unless quiet, `json` alone when asked for."""

    as_json: bool = False
    quiet: bool = False

    @cached_property
    def console(self) -> Console:
        return console_for(sys.stdout)

    @cached_property
    def progress_console(self) -> Console:
        return console_for(sys.stderr)

    @property
    def shows_progress(self) -> bool:
        return not self.quiet and self.progress_console.is_terminal

    def json(self, document: object) -> None:
        """Print the one JSON document, indented where a person may be reading."""
        if self.as_json:
            indent = 2 if sys.stdout.isatty() else None
            print(json_text(document, sys.stdout.encoding, indent=indent))

    def result(self, *renderables: RenderableType) -> None:
        """Show what was asked for."""
        if not self.as_json:
            for renderable in renderables:
                self.console.print(renderable)

    def note(self, *renderables: RenderableType) -> None:
        """Show what is good to know: left out with --quiet."""
        if not self.quiet:
            self.result(*renderables)

    def remark(self, message: str) -> None:
        """Say on standard error what is going on."""
        if not self.quiet:
            self.progress_console.print(styled((message, "")))

    def warn(self, message: str, *, quiet: bool | None = None) -> None:
        """Say it on standard error, where it disturbs no program; what must never be silent is not `quiet`."""
        if not (self.quiet if quiet is None else quiet):
            self.progress_console.print(styled(("warning: ", "yellow"), (message, "")))

    @contextmanager
    def spinner(self, doing: str) -> Iterator[None]:
        """Turn while something takes a moment."""
        if not self.shows_progress:
            yield
            return
        with self.progress_console.status(styled((f"{doing}…", FAINT)), spinner="dots"):
            yield


def console_for(stream: IO[str]) -> Console:
    """A console that prints what it is given: no markup, no emoji codes, no guessing at colours."""
    from rich.console import Console
    from rich.theme import Theme

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise  # called while handling the error: the command line as a whole knows what to do

    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Plain(file=stream, markup=False, emoji=False, highlight=False, width=width, theme=Theme(THEME))


def json_text(document: object, encoding: str | None = "utf-8", *, indent: int | None = None) -> str:
    """The document as JSON in plain characters, escaped only where the encoding cannot hold them."""
    text = json.dumps(document, ensure_ascii=False, default=str, indent=indent)
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:  # half a surrogate pair, or a stream that is not UTF-8
        text = json.dumps(document, default=str, indent=indent)
    return text


def styled(*parts: tuple[str, str]) -> Text:
    """A line of (text, style) parts."""
    from rich.text import Text

    return Text.assemble(*parts)


def heading(text: str) -> Text:
    """A bold line with a blank one above it."""
    return styled(("\n", ""), (text, "bold"))


def hint(command: str, purpose: str = "next:") -> Text:
    """What to type next."""
    return styled((f"{purpose} ", FAINT), (command, "cyan"))


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """An airy table; the columns named in `right` are aligned to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD, header_style="bold", border_style=FAINT, pad_edge=False, show_edge=False)
    for column in columns:
        fixed = column in right or not column  # numbers and bars are never broken
        made.add_column(
            column,
            justify="right" if column in right else "left",
            overflow="crop" if not column else "ellipsis" if fixed else "fold",  # a number that is cut must look so
            no_wrap=fixed,
            min_width=None if fixed else min(len(column), LEAST_WIDTH),  # or a narrow terminal has no room for names
        )
    return made


def facts(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Names and values without lines."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    made.add_column(style=FAINT, no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(name, value)
    return made


def bar(share: float, width: int, style: str) -> Text:
    """A share of one as a bar, to an eighth of a character."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    blocks = "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
    return styled((blocks.ljust(width), style))


def colour_of(index: int) -> str:
    """The colour of the expert at that place."""
    return PALETTE[index % len(PALETTE)]


def size(count: float) -> str:
    """Bytes for people: 512 B, 1.5 kB, 3.0 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def percent(share: float | None) -> str:
    """A share as a percentage, or a dash where there is none."""
    return "–" if share is None else f"{100 * share:.1f} %"


def worth(decision: Decision, share: float) -> str:
    """A share as a percentage, or as the score it is where the router expects scores."""
    return f"{share:.3f}" if decision.expects_quality else percent(share)


def printable(text: str) -> str:
    """Control characters as the pictures of themselves, so that no text can steer the terminal."""
    if text.isprintable():
        return text
    return "".join(_picture(character) for character in text)


def one_line(text: str, width: int) -> str:
    """The text on one line of at most `width` characters."""
    line = printable(" ".join(text[: 4 * width].split()))
    return line if len(line) <= width else line[: width - 1] + "…"


def _picture(character: str) -> str:
    point = ord(character)
    if point < 0x20 and character != "\n":
        return chr(0x2400 + point)
    return "\ufffd" if 0x7F <= point <= 0x9F or 0xD800 <= point <= 0xDFFF or character in TURNS else character
