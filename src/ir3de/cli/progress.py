"""Progress bars on a terminal: for a fit that is solved, and for files that are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

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
        if done == 0 or doing != step:  # the next step has its own rate
            step, begun, before = doing, perf_counter(), done
            description, unit = ("tuning", doing) if doing == TRIALS else (f"solving: {doing}", "rows")
            progress.reset(task, total=of, description=description, rate="", unit=unit)
        rate = (done - before) / max(perf_counter() - begun, 1e-9)
        progress.update(task, completed=done, total=of, rate=f"{rate:,.0f}/s" if rate else "")

    return move


@contextmanager
def reading(out: Output, description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar of the bytes read, on a terminal; yields the callback for `on_bytes`."""
    if not out.shows_progress:
        yield lambda more: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.table import Column

    whole = Column(no_wrap=True)  # on a narrow terminal the bar gets shorter, not the numbers
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30, complete_style="cyan", finished_style="green"),
        DownloadColumn(table_column=whole),
        TransferSpeedColumn(table_column=whole),
        TimeRemainingColumn(table_column=whole),
    )
    with Progress(*columns, console=out.progress_console, transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda more: progress.advance(task, more)
