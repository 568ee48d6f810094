"""The renderer of all commands. A result is one dictionary: --json prints it, and a view describes it for people.

A view is a generator of blocks: titles, facts, tables, bars and hints. rich is imported when the first one is drawn.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from ir3de.cli import lib
from ir3de.cli.formats import FAINT, json_text, line, name_others, size

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType
    from rich.table import Table
    from rich.text import Text


Row = TypeVar("Row")

MOST_ROWS = 15  # of a table with a row for each expert
THEME = {f"progress.{name}": FAINT for name in ("download", "data.speed", "remaining", "elapsed")}
MIN_COLUMN_WIDTH = 6  # of a column of words
PIPE_WIDTH = 100  # of output into a pipe or a file, except for tables that need more
MAX_PIPE_WIDTH = 10_000
NARROW_WIDTH = 60  # of a terminal; below it tables omit their optional columns
LEAST_WIDTH = 40  # of a terminal; a narrower one, or one that reports 0, breaks the lines itself


Block: TypeAlias = "RenderableType"  # of a view


class Result(NamedTuple):
    """A block of a view that --quiet prints, too."""

    block: Block

    def __rich__(self) -> Block:
        return self.block


@dataclass(frozen=True)
class Output:
    """Prints a command's result: the document with --json, else the view; with --quiet only the view's `Result`s."""

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

    def show(self, document: object, view: Iterable[Block] = ()) -> None:
        """Print the document as JSON with --json, else its view, block by block."""
        self.json(document)
        if not self.as_json:
            for block in view:
                self.result(block.block) if isinstance(block, Result) else self.note(block)

    def json(self, document: object) -> None:
        """Print the document with --json, indented on a terminal."""
        if self.as_json:
            indent = 2 if sys.stdout.isatty() else None
            print(json_text(document, sys.stdout.encoding, indent=indent))

    def result(self, *blocks: Block) -> None:
        """Print blocks, unless --json is given."""
        if not self.as_json:
            for block in blocks:
                wraps, width = getattr(block, "no_wrap", None) is not True, self.console.width
                self.console.width = self._find_width(block)
                self.console.print(block, soft_wrap=not wraps)
                self.console.width = width

    def note(self, *blocks: Block) -> None:
        """Print details, unless --quiet or --json is given."""
        if not self.quiet:
            self.result(*blocks)

    def remark(self, message: str) -> None:
        """Log to standard error, unless --quiet is given."""
        if not self.quiet:
            self._log(line((message, "")))

    def warn(self, message: str, *, quiet: bool | None = None) -> None:
        """Warn on standard error; with `quiet=False` even if --quiet is given."""
        if not (self.quiet if quiet is None else quiet):
            self._log(line(("warning: ", "yellow"), (message, "")))

    def _log(self, text: Text) -> None:
        """Print on standard error; without a terminal on a single line, because logs are searched line by line."""
        self.progress_console.print(text, soft_wrap=not self.progress_console.is_terminal)

    @property
    def table_width(self) -> int:
        """The largest width of a table: unlimited in practice if there is no terminal."""
        fixed = self.console.is_terminal or "COLUMNS" in os.environ
        return self.console.width if fixed else MAX_PIPE_WIDTH

    def _find_width(self, block: Block) -> int:
        """The width of the console; without a terminal, enough for the whole table."""
        from rich.console import Group
        from rich.table import Table

        is_table = isinstance(block, Group) or (isinstance(block, Table) and block.box is not None)
        if not is_table or self.table_width <= self.console.width:
            return self.console.width
        unbounded = self.console.options.update(max_width=self.table_width)
        return max(self.console.width, self.console.measure(block, options=unbounded).maximum)

    @contextmanager
    def spinner(self, doing: str) -> Iterator[None]:
        """Show a spinner on a terminal while something runs."""
        status = self.progress_console.status(line((f"{doing}…", FAINT)), spinner="dots")
        with status if self.shows_progress else nullcontext():
            yield


def console_for(stream: IO[str]) -> Console:
    """A console that prints text as it is: no markup, no emoji codes, no highlighting."""
    from rich.console import Console
    from rich.theme import Theme

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise  # called while handling the error: the command line as a whole knows what to do

    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    made = Plain(file=stream, markup=False, emoji=False, highlight=False, width=width, theme=Theme(THEME))
    if made.width < LEAST_WIDTH:
        made.width = LEAST_WIDTH
    return made


def heading(text: str, about: str = "") -> Text:
    """A bold title after an empty line, and what it is about."""
    return line(("\n", ""), (text, "bold"), (f"  {about}" if about else "", FAINT))


def hint(command: str, purpose: str = "next:") -> Text:
    """The command to type next, on one line whatever its length, so that it can be copied."""
    text = line((f"{purpose} ", FAINT), (command, "cyan"))
    text.no_wrap = True
    return text


def table(*columns: str, right: Sequence[str] = (), rows: Iterable[Sequence[Block]] = ()) -> Table:
    """A table without lines between its rows; the columns named in `right` are aligned to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD, header_style="bold", border_style=FAINT, pad_edge=False, show_edge=False)
    for column in columns:
        fixed = column in right or not column  # numbers and bars are never broken
        made.add_column(
            column,
            justify="right" if column in right else "left",
            overflow="crop" if not column else "ellipsis" if fixed else "fold",  # a number that is cut must look cut
            no_wrap=fixed,
            min_width=None if fixed else min(len(column), MIN_COLUMN_WIDTH),  # room for names on a narrow terminal
        )
    for row in rows:
        made.add_row(*row)
    return made


def facts(rows: Iterable[tuple[str, Block]], style: str = FAINT) -> Table:
    """Names and values without lines."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    made.add_column(style=style, no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(name, value)
    return made


def split_rows(rows: Sequence[Row]) -> tuple[Sequence[Row], int]:
    """The first rows of a table, all of them if they are few, and how many are left out."""
    kept = len(rows) if len(rows) <= MOST_ROWS + 1 else MOST_ROWS
    return rows[:kept], len(rows) - kept


def count_left_out(shown: Block, count: int, what: str = "") -> Group:
    """The table and, below it, how many rows it leaves out. `what` describes the rows that it shows."""
    from rich.console import Group

    return Group(shown, *([line((f"{what}{name_others(count)}: --json has them all", FAINT))] if count else ()))


def short_table(*columns: str, rows: Sequence[Sequence[Block]], what: str = "", **more: Any) -> Group:
    """A table of the first rows, and how many are left out; `what` describes the rows that it shows."""
    first, left_out = split_rows(rows)
    return count_left_out(table(*columns, rows=first, **more), left_out, what)


def saved_line(path: object, count: float, kind: str = "saved to") -> Text:
    """Where something was saved, and its size in bytes."""
    return line((f"{kind} ", ""), (str(path), "bold"), (f"  {size(count)}", FAINT))


# progress on a terminal ----------------------------------------------------------------------------------------------


@contextmanager
def solving(out: Output, arithmetic: lib.arithmetic.Arithmetic | None = None) -> Iterator[None]:
    """Fits in this context use that arithmetic, under a bar of their steps on a terminal."""
    with _bar(out, "solving", None, "MofNCompleteColumn") as update:

        def report(doing: str, done: int, of: int) -> None:
            what = "tuning" if doing == lib.arithmetic.TRIALS else f"solving: {doing}"
            update(description=what, completed=done, total=of)

        with lib.arithmetic.using(arithmetic, progress=report if out.shows_progress else None):
            yield


@contextmanager
def reading(out: Output, description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar of the bytes read, on a terminal; yields the callback for `on_bytes`."""
    with _bar(out, description, total, "DownloadColumn", "TransferSpeedColumn") as update:
        yield lambda more: update(advance=more)


@contextmanager
def _bar(out: Output, description: str, total: int | None, *numbers: str) -> Iterator[Callable[..., None]]:
    """A bar on a terminal, with these columns of rich and the time that is left; yields the function that moves it."""
    if not out.shows_progress:
        yield lambda **values: None
        return
    from rich import progress
    from rich.table import Column

    whole = Column(no_wrap=True)  # on a narrow terminal the bar gets shorter, not the numbers
    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=30, complete_style="cyan", finished_style="green"),
        *(getattr(progress, name)(table_column=whole) for name in (*numbers, "TimeRemainingColumn")),
    )
    with progress.Progress(*columns, console=out.progress_console, transient=True) as shown:
        yield partial(shown.update, shown.add_task(description, total=total))
