"""bench stale and bench renew: which published figures are older than the code, and making them again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import FAINT, Output, hint, line, output_options, table
from ir3de_lab.cli.shared import data_option
from ir3de_lab.cli.tables import results_option

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de_lab.catalogue import Standing

Places = dict[str, Path | str | None]  # the folders of this machine that stand for DIR, FOLDER and SOURCE
COLOURS = {"fresh": "green", "stale": "red", "unknown": "yellow", "kept": FAINT}
SHOWN_CHANGES = 3


@click.command()
@results_option
@data_option
@click.option("--all", "everything", is_flag=True, help="Also list those that are fresh.")
@click.option("--check", is_flag=True, help="Exit with 1 if a result is stale.")
@output_options
def stale(root: Path, data: Path | None, everything: bool, check: bool, out: Output) -> None:
    """List the published results whose code has changed since they were measured.

    Each result records a digest of the modules that it measures and, with --data, of its texts. A comment or a
    docstring changes no digest. A result that recorded none is unknown, and counts as stale.

    \b
    Example:
      ir3de bench stale
      ir3de bench renew --data suites/
    """
    from ir3de_lab.catalogue import find_standings

    found = find_standings(root, data)
    old = [one for one in found if one.is_stale]
    out.json({"stale": len(old), "results": [_describe(one) for one in found]})
    if shown := found if everything else old:
        out.result(_tabulate(shown))
    out.result(line((f"{len(old)} of {len(found)} results are older than the code", "red" if old else "green")))
    if old:
        out.note(hint("ir3de bench renew --data DIR", "make them again:"))
    if check and old:
        raise click.exceptions.Exit(1)


@click.command()
@results_option
@data_option
@click.option("--only", multiple=True, metavar="NAME", help="Only this file or setting; may be repeated.")
@click.option("--all", "everything", is_flag=True, help="Also those that are fresh.")
@click.option("--plan", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--busy", is_flag=True, help="Take times although other programs run.")
@click.option("--encoder", metavar="SOURCE", help="An encoder, for the benchmarks of other routers.")
@click.option("--environments", metavar="DIR", help="Environments of other routers, for bench alternatives.")
@click.option("--answers", metavar="DIR", help="Where bench alternatives keeps the answers of other routers.")
@click.option("--before", metavar="FOLDER", help="A checkout of the earlier version, for bench versions.")
@output_options
def renew(
    root: Path,
    data: Path | None,
    only: Sequence[str],
    everything: bool,
    plan: bool,
    busy: bool,
    encoder: str | None,
    environments: str | None,
    answers: str | None,
    before: str | None,
    out: Output,
) -> None:
    """Make stale results again, one after another, as far as this machine can.

    What needs an accelerator, a server or a folder that is not here is left out, with the reason. A benchmark that
    takes times waits until the machine is quiet. The time left is estimated from the last run of each.

    \b
    Example:
      ir3de bench renew --data suites/ --plan
      ir3de bench renew --data suites/ --only speed.json
    """
    from ir3de_lab.catalogue import find_standings
    from ir3de_lab.catalogue.renewing import find_missing

    places: Places = {
        "data": data,
        "encoder": encoder,
        "environments": environments,
        "answers": answers,
        "before": before,
    }
    wanted = [one for one in find_standings(root) if (everything or one.is_stale) and one.state != "kept"]
    wanted = [one for one in wanted if not only or one.file in only]
    reasons = {one: find_missing(one.needs, places) for one in wanted}
    todo = [one for one in wanted if reasons[one] is None]
    failed = {} if plan else _renew_all(todo, places, busy, out)
    out.json({
        "renewed": [_describe(one) for one in todo if one not in failed],
        "failed": {one.command: why for one, why in failed.items()},
        "left out": {one.command: reasons[one] for one in wanted if reasons[one] is not None},
    })  # fmt: skip
    if plan:
        out.result(_tabulate(todo))
        out.note(line((f"about {_estimate(todo)}", FAINT)))
    for one in wanted:
        if reasons[one] is not None:
            out.warn(f"left out {one.file}: {reasons[one]}")
    for one, why in failed.items():
        out.warn(f"{one.file} was not renewed: {why.strip()}")
    if failed:
        raise click.exceptions.Exit(1)


def _renew_all(todo: Sequence[Standing], places: Places, busy: bool, out: Output) -> dict[Standing, str]:
    """Run every command in turn; why some did not work."""
    from ir3de_lab.catalogue.renewing import renew as run
    from ir3de_lab.catalogue.renewing import wait_for_quiet

    failed = {}
    for place, one in enumerate(todo):
        out.note(line((f"{place + 1} of {len(todo)}  ", FAINT), (one.file, "bold"), (f"  {one.command}", FAINT)))
        if one.is_timed and not busy and not wait_for_quiet():
            failed[one] = "the machine is busy with other programs: stop them, or take times all the same with --busy"
            continue
        begin = time.monotonic()
        with out.spinner(f"{one.file}, about {_estimate(todo[place:])} left in all"):
            problem = run(one.command, places)
        if problem is not None:
            failed[one] = problem
        out.note(line((f"  {'failed' if problem else 'done'} in {time.monotonic() - begin:.0f} s", FAINT)))
    return failed


def _estimate(some: Sequence[Standing]) -> str:
    known = [one.seconds for one in some if one.seconds is not None]
    unknown = len(some) - len(known)
    return f"{sum(known) / 60:.0f} min{f' and {unknown} of unknown length' if unknown else ''}"


def _tabulate(found: Sequence[Standing]) -> Table:
    shown = table("result", "", "what has changed", "made by")
    for one in found:
        more = len(one.changed) - SHOWN_CHANGES
        changed = ", ".join(one.changed[:SHOWN_CHANGES]) + (f" and {more} more" if more > 0 else "")
        shown.add_row(one.file, line((one.state, COLOURS[one.state])), changed, one.command)
    return shown


def _describe(one: Standing) -> dict[str, object]:
    return {"file": one.file, "state": one.state, "changed": list(one.changed), "command": one.command}
