"""receipt: one entry of the ledger for others to check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.commands.ledger import load_history
from ir3de.cli.options import output_options, router_argument
from ir3de.cli.output import FAINT, Output, hint, styled
from ir3de.errors import InputError

if TYPE_CHECKING:
    from ir3de.storage.ledger import Entry, History

HASH_SHOWN = 16


@click.command()
@router_argument
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

    entry = _choose_entry(load_history(router_path), contribution, number, router_path)
    document = written(entry)
    if target is not None:
        files.write(target.expanduser(), files.to_json(document))
    out.json(document)
    if target is None and not out.as_json:
        click.echo(files.to_json(document).decode(), nl=False)
    elif target is not None:
        out.result(_summarise(entry))
        out.note(styled(("saved to ", ""), (str(target), "bold")))
        out.note(hint(f"ir3de verify {router_path} --receipt {target}"))


def _choose_entry(history: History, contribution: str | None, number: int | None, path: Path) -> Entry:
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


def _summarise(entry: Entry) -> Any:
    change = entry.change
    what = f"{change.action} {change.expert or ''}".strip()
    before, after = (entry.router_before or "nothing")[:HASH_SHOWN], entry.router_after[:HASH_SHOWN]
    return styled((f"entry {entry.entry}: {what}", "bold"), (f"  {before} → {after}", FAINT))
