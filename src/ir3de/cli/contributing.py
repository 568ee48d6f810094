"""ledger, receipt, verify: who gave what, what became of it, and how others can check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.arguments import output_options
from ir3de.cli.output import FAINT, Output, hint, styled, table
from ir3de.errors import ArtifactError, InputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ir3de.storage.ledger import Entry, History

HASH_SHOWN = 16
MOST = 1_000  # columns of a terminal


@click.command()
@click.argument("router_path", metavar="ROUTER", type=click.Path(path_type=Path))
@click.option("--expert", metavar="NAME", help="Only entries of this expert.")
@output_options
def ledger(router_path: Path, expert: str | None, out: Output) -> None:
    """Show who gave what to which expert, and when.

    Each entry names the contribution, its owner and its hash, and the router before and after; entries are chained by
    their hashes. Texts that were counted on the spot have no id and cannot be taken out on their own.

    \b
    Example:
      ir3de ledger router --expert law
    """
    history = _history(router_path)
    shown = [entry for entry in history if expert is None or entry.change.expert == expert]
    out.json({"router": str(router_path), "entries": [entry.to_dict() for entry in shown]})
    if not out.as_json:
        out.result(_listing(shown, out.console))
    if any(entry.change.given is not None and entry.change.given.id for entry in shown):
        out.note("", hint(f"ir3de remove {router_path} EXPERT --contribution ID", "to take one out:"))


@click.command()
@click.argument("router_path", metavar="ROUTER", type=click.Path(path_type=Path))
@click.option("--contribution", metavar="ID", help="The contribution it is for.  [default: that of the last entry]")
@click.option("--entry", "number", type=click.IntRange(min=1), metavar="N", help="The entry of the ledger, by number.")
@click.option("--output", "target", type=click.Path(path_type=Path), metavar="FILE", help="Write it to a file.")
@output_options
def receipt(router_path: Path, contribution: str | None, number: int | None, target: Path | None, out: Output) -> None:
    """Print a receipt for a change, which others can check.

    A receipt is one entry of the ledger as a JSON document, with the hashes before and after. With it and the router,
    `ir3de verify` shows a third party that what was taken out is out; with the contribution's own file, that what is
    left and what was taken out add up to what there was.

    \b
    Example:
      ir3de remove router law --contribution berlin-2026
      ir3de receipt router --contribution berlin-2026 --output receipt.json
      ir3de verify router --receipt receipt.json --statistics berlin.stats
    """
    from ir3de.storage import files
    from ir3de.storage.ledger import receipt as written

    entry = _chosen(_history(router_path), contribution, number, router_path)
    document = written(entry)
    if target is not None:
        files.write(target.expanduser(), files.to_json(document))
    out.json(document)
    if target is None and not out.as_json:
        click.echo(files.to_json(document).decode(), nl=False)
    elif target is not None:
        out.result(_told(entry))
        out.note(styled(("saved to ", ""), (str(target), "bold")))
        out.note(hint(f"ir3de verify {router_path} --receipt {target}"))


@click.command()
@click.argument("router_path", metavar="ROUTER", type=click.Path(path_type=Path))
@click.option("--receipt", "receipt_path", type=click.Path(path_type=Path), metavar="FILE", help="A receipt to check.")
@click.option(
    "--statistics",
    type=click.Path(path_type=Path),
    metavar="FILE.stats",
    help="The contribution the receipt is for: what is left and it must add up to what there was.",
)
@click.option("--before", type=click.Path(path_type=Path), metavar="ROUTER", help="The router as it was before.")
@output_options
def verify(
    router_path: Path, receipt_path: Path | None, statistics: Path | None, before: Path | None, out: Output
) -> None:
    """Check that a router is what it says, and that a receipt is true.

    Everything is computed anew: hashes of all files, sums of all contributions, the fit itself, the ledger link by
    link. The exit status is 1 if anything does not hold. Nobody can check that no copy was kept elsewhere.

    \b
    Example:
      ir3de verify router
      ir3de verify router --receipt receipt.json --statistics berlin.stats
    """
    from ir3de.evaluation.verification import verify as checks
    from ir3de.statistics.contributions import Contribution
    from ir3de.storage import files
    from ir3de.storage.ledger import from_receipt

    if receipt_path is None and (statistics is not None or before is not None):
        raise click.UsageError("--statistics and --before are checked against a receipt: name it with --receipt")
    entry = None if receipt_path is None else from_receipt(files.read(receipt_path.expanduser()), receipt_path)
    mine = None if statistics is None else Contribution.load(statistics)
    with out.spinner("checking"):
        found = list(checks(router_path, receipt=entry, contribution=mine, before=before))
    wrong = [check for check in found if check.holds is False]
    rows = [{"claim": check.claim, "holds": check.holds, "seen": check.seen} for check in found]
    out.json({"router": str(router_path), "holds": not wrong, "checks": rows})
    marks = {True: ("✓", "green"), False: ("✗", "red"), None: ("–", "yellow")}
    listing = table("", "claim", "seen")
    for check in found:
        listing.add_row(styled(marks[check.holds]), check.claim, styled((check.seen, FAINT)))
    out.result(listing)
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ArtifactError(f"{router_path}: this does not hold: {wrong[0].claim}: {wrong[0].seen}{more}")
    unknown = sum(check.holds is None for check in found)
    told = f"all that can be told holds; {unknown} of {len(found)} cannot" if unknown else "all of it holds"
    out.note("", styled((told, "yellow" if unknown else "green")))


def _listing(entries: Sequence[Entry], console: Console) -> Table:
    """One row an entry; hashes, and then the number of prompts, are left out where there is no room for them."""
    columns = ("#", "when", "what", "expert", "contribution", "owner", "prompts", "hash", "router")
    rows = [_row(entry) for entry in entries]
    for many in range(len(columns), len(columns) - 4, -1):
        listing = table(*columns[:many], right=("#", "prompts"))
        for row in rows:
            listing.add_row(*row[:many])
        listing.columns[1].min_width = len("2026-01-01")
        if console.measure(listing, options=console.options.update(max_width=MOST)).maximum <= console.width:
            break
    return listing


def _row(entry: Entry) -> tuple[Text | str, ...]:
    change, given = entry.change, entry.change.given
    return (
        str(entry.entry),
        styled((change.when.replace("T", " ")[:16], FAINT)),
        styled((change.action, "red" if change.action == "remove" else "green")),
        change.expert or "–",
        "–" if given is None else given.id or styled(("texts", FAINT)),
        "–" if given is None else given.owner or "–",
        "–" if given is None else f"{given.prompts:,}",
        styled(("–" if given is None else given.digest[:10], FAINT)),
        styled((entry.router_after[:10], FAINT)),
    )


def _history(path: Path) -> History:
    from ir3de.router import Router

    history = Router.load(path).history
    if not history:
        raise ArtifactError(
            f"the router at {path} has no ledger: it is a serving copy, or its ledger.jsonl was deleted"
        )
    return history


def _chosen(history: History, contribution: str | None, number: int | None, path: Path) -> Entry:
    if number is not None:
        if number > len(history):
            raise InputError(f"the ledger of {path} has {len(history)} entries, and no entry {number}")
        return history[number - 1]
    if contribution is None:
        return history[-1]
    found = [entry for entry in history if entry.change.given is not None and entry.change.given.id == contribution]
    if not found:
        raise InputError(
            f"the ledger of {path} knows no contribution '{contribution}': `ir3de ledger {path}` lists them"
        )
    return found[-1]


def _told(entry: Entry) -> Any:
    change = entry.change
    what = f"{change.action} {change.expert or ''}".strip()
    before, after = (entry.router_before or "nothing")[:HASH_SHOWN], entry.router_after[:HASH_SHOWN]
    return styled((f"entry {entry.entry}: {what}", "bold"), (f"  {before} → {after}", FAINT))
