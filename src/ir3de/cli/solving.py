"""A fit under a spinner and, where it takes long, a bar of the rows it has gone through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

import click

from ir3de.cli.arguments import Function
from ir3de.cli.output import Output

if TYPE_CHECKING:
    from ir3de.scorers.arithmetic import Arithmetic, Progress

PATIENCE = 1.5  # seconds of a fit before it shows how far it is


def device_option(function: Function) -> Function:
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


@contextmanager
def solving(out: Output, arithmetic: Arithmetic | None = None) -> Iterator[None]:
    """Fits in here use that arithmetic, and say how far they are."""
    from ir3de.scorers.arithmetic import using

    if not out.shows_progress:
        with using(arithmetic):
            yield
        return
    with ExitStack() as shown:
        shown.enter_context(out.spinner("solving"))
        with using(arithmetic, progress=_shown_after(PATIENCE, out, shown)):
            yield


def _shown_after(patience: float, out: Output, shown: ExitStack) -> Progress:
    """What is told of progress; after a while the bar takes the place of what was `shown` before."""
    begun, bar = perf_counter(), None

    def tell(doing: str, done: int, of: int) -> None:
        nonlocal bar
        if bar is None and perf_counter() - begun > patience:
            shown.close()
            bar = _bar(out, shown)
        if bar is not None:
            bar(doing, done, of)

    return tell


def _bar(out: Output, shown: ExitStack) -> Callable[[str, int, int], None]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30, complete_style="cyan", finished_style="green"),
        MofNCompleteColumn(),
        TextColumn("rows"),
        TextColumn("{task.fields[rate]}", markup=False, style="progress.data.speed"),
        TimeRemainingColumn(),
    )
    progress = shown.enter_context(Progress(*columns, console=out.progress_console, transient=True))
    task = progress.add_task("solving", total=None, rate="")
    step, begun, before = "", 0.0, 0

    def move(doing: str, done: int, of: int) -> None:
        nonlocal step, begun, before
        if done == 0 or doing != step:  # the next step, with a pace of its own
            step, begun, before = doing, perf_counter(), done
            progress.reset(task, total=of, description=f"solving: {doing}", rate="")
        pace = (done - before) / max(perf_counter() - begun, 1e-9)
        progress.update(task, completed=done, total=of, rate=f"{pace:,.0f}/s" if pace else "")

    return move
