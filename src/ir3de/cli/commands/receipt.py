"""receipt: one entry of the ledger for others to check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.commands.ledger import load_history
from ir3de.cli.options import force_option, number_option, output_options, refuse_existing, router_argument
from ir3de.cli.output import FAINT, Output, hint, line
from ir3de.errors import InputError

if TYPE_CHECKING:
    from ir3de.files.ledger import Entry, History

HASH_CHARACTERS = 16


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
    from ir3de import files
    from ir3de.files.ledger import receipt as written

    if target is not None:
        refuse_existing(target.expanduser(), force=force)
    entry = _choose_entry(load_history(router_path), contribution, number, router_path)
    document = written(entry)
    if target is not None:
        files.write(target.expanduser(), files.to_json(document))
    out.json(document)
    if target is None and not out.as_json:
        click.echo(files.to_json(document).decode(), nl=False)
    elif target is not None:
        what = f"{entry.change.action} {entry.change.expert or ''}".strip()
        before, after = (entry.router_before or "nothing")[:HASH_CHARACTERS], entry.router_after[:HASH_CHARACTERS]
        out.result(line((f"entry {entry.entry}: {what}", "bold"), (f"  {before} → {after}", FAINT)))
        out.note(line(("saved to ", ""), (str(target), "bold")))
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
