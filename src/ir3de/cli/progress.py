"""Progress on a terminal: of a fit that is solved, and of files that are read."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from ir3de.cli.held_texts import HeldTexts
from ir3de.cli.output import Output

if TYPE_CHECKING:
    from ir3de.scorers.arithmetic import Arithmetic

BAR_DELAY_S = 1.5  # a fit that takes longer shows a bar


@contextmanager
def solving(out: Output, arithmetic: Arithmetic | None = None) -> Iterator[None]:
    """Fits in this context use that arithmetic, under a spinner that becomes a bar if they take long."""
    from ir3de.scorers.arithmetic import using

    if not out.shows_progress:
        with using(arithmetic):
            yield
        return
    begun, move = perf_counter(), None
    with ExitStack() as shown:
        shown.enter_context(out.spinner("solving"))

        def report(doing: str, done: int, of: int) -> None:
            nonlocal move
            if move is None and perf_counter() - begun > BAR_DELAY_S:
                shown.close()
                move = _bar(out, shown)
            if move is not None:
                move(doing, done, of)

        with using(arithmetic, progress=report):
            yield


def _bar(out: Output, shown: ExitStack) -> Callable[[str, int, int], None]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ir3de.scorers.arithmetic import TRIALS

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30, complete_style="cyan", finished_style="green"),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}", markup=False),
        TextColumn("{task.fields[rate]}", markup=False, style="progress.data.speed"),
        TimeRemainingColumn(),
    )
    progress = shown.enter_context(Progress(*columns, console=out.progress_console, transient=True))
    task = progress.add_task("solving", total=None, rate="", unit="")
    step, begun, before = "", 0.0, 0

    def move(doing: str, done: int, of: int) -> None:
        nonlocal step, begun, before
        if done == 0 or doing != step:  # the next step, with a pace of its own
            step, begun, before = doing, perf_counter(), done
            description, unit = ("tuning", doing) if doing == TRIALS else (f"solving: {doing}", "rows")
            progress.reset(task, total=of, description=description, rate="", unit=unit)
        pace = (done - before) / max(perf_counter() - begun, 1e-9)
        progress.update(task, completed=done, total=of, rate=f"{pace:,.0f}/s" if pace else "")

    return move


def read_prompts(
    name: str, paths: Sequence[str] | HeldTexts, field: str | None, whole_files: bool, out: Output
) -> Generator[str, None, None]:
    """The texts of all paths, one by one, under a progress bar; texts that were read already as they are."""
    from ir3de.corpora import read_texts, total_bytes

    if isinstance(paths, HeldTexts):
        yield from paths.texts
        return
    with reading(out, name, total_bytes(paths)) as (on_bytes, _):
        yield from read_texts(paths, field=field, whole_files=whole_files, on_bytes=on_bytes)


@contextmanager
def reading(
    out: Output, description: str, total: int | None
) -> Iterator[tuple[Callable[[int], None], Callable[[], int]]]:
    """A bar of bytes read, on a terminal; gives the callback for `on_bytes` and the count so far."""
    read = 0

    def count(more: int) -> None:
        nonlocal read
        read += more
        if advance is not None:
            advance(more)

    advance: Callable[[int], None] | None = None
    if not out.shows_progress:
        yield count, lambda: read
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.table import Column

    whole = Column(no_wrap=True)  # in a narrow terminal it is the bar that gets shorter
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30, complete_style="cyan", finished_style="green"),
        DownloadColumn(table_column=whole),
        TransferSpeedColumn(table_column=whole),
        TimeRemainingColumn(table_column=whole),
    )
    with Progress(*columns, console=out.progress_console, transient=True) as progress:
        task = progress.add_task(description, total=total)
        advance = lambda more: progress.advance(task, more)  # noqa: E731
        yield count, lambda: read
