"""ledger, receipt, verify: the history of a router, one entry of it for others, and the check of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import ir3de
from ir3de import files
from ir3de.cli import lib
from ir3de.cli.formats import FAINT, line
from ir3de.cli.options import force_option, number_option, output_options, refuse_existing, router_argument
from ir3de.cli.output import Block, Output, Result, count_left_out, hint, split_rows, table
from ir3de.cli.saving import load_router
from ir3de.errors import ArtifactError, InputError

if TYPE_CHECKING:
    from ir3de.files.ledger import Entry, History

MAX_TABLE_COLUMNS = 1_000  # columns of a terminal
HASH_CHARACTERS = 16


@click.command()
@router_argument
@click.option("--expert", metavar="NAME", help="Only entries of this expert.")
@output_options
def ledger(router_path: Path, expert: str | None, out: Output) -> None:
    """Show the history of a router: who gave what to which expert, and when.

    Each entry names the contribution, its owner and its hash, and the router before and after. Entries are chained by
    their hashes. Texts that were counted directly have no id and cannot be removed on their own.

    \b
    Example:
      ir3de ledger router --expert law
    """
    history = _load_history(router_path)
    shown = [entry for entry in history if expert is None or entry.change.expert == expert]
    out.json({"router": str(router_path), "entries": [entry.to_dict() for entry in shown]})
    if not out.as_json:
        last, left_out = split_rows(shown[::-1])
        out.result(count_left_out(_listing(last[::-1], out.console), left_out, "the latest entries; "))
    if any(entry.change.given is not None and entry.change.given.id for entry in shown):
        out.note("", hint(f"ir3de remove {router_path} EXPERT --contribution ID", "to remove one:"))


def _listing(entries: Sequence[Entry], console: Any) -> Block:
    """One row an entry; without enough room, hashes and then the number of prompts are omitted."""
    columns = ("#", "when", "what", "expert", "contribution", "owner", "prompts", "hash", "router")
    rows, unbounded = [_row(entry) for entry in entries], console.options.update(max_width=MAX_TABLE_COLUMNS)
    for many in range(len(columns), len(columns) - 4, -1):
        listing = table(*columns[:many], right=("#", "prompts"), rows=[row[:many] for row in rows])
        listing.columns[1].min_width = len("2026-01-01")
        if console.measure(listing, options=unbounded).maximum <= console.width:
            break
    return listing


def _row(entry: Entry) -> tuple[Block, ...]:
    change, given = entry.change, entry.change.given
    return (
        str(entry.entry),
        line((change.when.replace("T", " ")[:16], FAINT)),
        line((change.action, "red" if change.action == "remove" else "green")),
        change.expert or "–",
        "–" if given is None else given.id or line(("description" if given.is_description else "texts", FAINT)),
        "–" if given is None else given.owner or "–",
        "–" if given is None else f"{given.prompts:,}",
        line(("–" if given is None else given.digest[:10], FAINT)),
        line((entry.router_after[:10], FAINT)),
    )


def _load_history(path: Path) -> History:
    history = load_router(path).history
    if not history:
        raise ArtifactError(
            f"the router at {path} has no ledger: it is a serving copy, or its ledger.jsonl was deleted"
        )
    return history


@click.command()
@router_argument
@click.option("--contribution", metavar="ID", help="Contribution to document.  [default: that of the last entry]")
@number_option("--entry", "number", help="Number of the ledger entry.")
@click.option("--output", "target", type=click.Path(path_type=Path), metavar="FILE", help="Write it to this file.")
@force_option
@output_options
def receipt(
    router_path: Path, contribution: str | None, number: int | None, target: Path | None, force: bool, out: Output
) -> None:
    """Print a receipt for a change, which others can check.

    A receipt is one entry of the ledger as a JSON document, with the hashes before and after. With the receipt and the
    router, a third party can run `ir3de verify` to see that a removed contribution is gone. With the contribution's
    file too, it shows that what is left and what was removed add up to what there was before.

    \b
    Example:
      ir3de remove router law --contribution berlin-2026
      ir3de receipt router --contribution berlin-2026 --output receipt.json
      ir3de verify router --receipt receipt.json --statistics berlin.stats
    """
    if target is not None:
        refuse_existing(target.expanduser(), force=force)
    entry = _choose_entry(_load_history(router_path), contribution, number, router_path)
    document = lib.ledger.receipt(entry)
    if target is None:
        out.json(document)
        if not out.as_json:
            click.echo(files.to_json(document).decode(), nl=False)
        return
    files.write(target.expanduser(), files.to_json(document))
    what = f"{entry.change.action} {entry.change.expert or ''}".strip()
    before, after = (entry.router_before or "nothing")[:HASH_CHARACTERS], entry.router_after[:HASH_CHARACTERS]
    summary = line((f"entry {entry.entry}: {what}", "bold"), (f"  {before} → {after}", FAINT))
    saved = line(("saved to ", ""), (str(target), "bold"))
    out.show(document, (Result(summary), saved, hint(f"ir3de verify {router_path} --receipt {target}")))


def _choose_entry(history: History, contribution: str | None, number: int | None, path: Path) -> Entry:
    if number is not None:
        if number > len(history):
            raise InputError(f"the ledger of {path} has {len(history)} entries, and no entry {number}")
        return history[number - 1]
    if contribution is None:
        return history[-1]
    found = [entry for entry in history if entry.change.given is not None and entry.change.given.id == contribution]
    if not found:
        raise InputError(f"the ledger of {path} has no contribution '{contribution}': `ir3de ledger {path}` lists them")
    return found[-1]


@click.command()
@router_argument
@click.option("--receipt", "receipt_path", type=click.Path(path_type=Path), metavar="FILE", help="A receipt to check.")
@click.option(
    "--statistics",
    type=click.Path(path_type=Path),
    metavar="FILE.stats",
    help="The contribution that the receipt is for. It and what is left must add up to what there was before.",
)
@click.option("--before", type=click.Path(path_type=Path), metavar="ROUTER", help="The router before the change.")
@output_options
def verify(
    router_path: Path, receipt_path: Path | None, statistics: Path | None, before: Path | None, out: Output
) -> None:
    """Check that a router is what it claims to be, and that a receipt is true.

    Everything is computed again: the hashes of all files, the sums of all contributions, the fit, and each link of the
    ledger. The exit code is 1 if a check fails. No check can exclude a copy elsewhere.

    \b
    Example:
      ir3de verify router
      ir3de verify router --receipt receipt.json --statistics berlin.stats
    """
    if receipt_path is None and (statistics is not None or before is not None):
        raise click.UsageError("--statistics and --before need a receipt: name it with --receipt")
    entry = None
    if receipt_path is not None:
        entry = lib.ledger.from_receipt(files.read(receipt_path.expanduser()), receipt_path)
    mine = None if statistics is None else ir3de.Contribution.load(statistics)
    with out.spinner("checking"):
        found = list(lib.evaluation.verify(router_path, receipt=entry, contribution=mine, before=before))
    wrong = [check for check in found if check.holds is False]
    document = {"router": str(router_path), "holds": not wrong, "checks": [asdict(check) for check in found]}
    marks = {True: ("✓", "green"), False: ("✗", "red"), None: ("–", "yellow")}
    cells = [(line(marks[check.holds]), check.claim, line((check.seen, FAINT))) for check in found]
    out.show(document, [Result(table("", "claim", "found", rows=cells))])
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ArtifactError(f"{router_path}: this does not hold: {wrong[0].claim}: {wrong[0].seen}{more}")
    unknown = sum(check.holds is None for check in found)
    some = f"every check that could run passed; {unknown} of {len(found)} could not run"
    out.note("", line((some, "yellow") if unknown else ("every check passed", "green")))
