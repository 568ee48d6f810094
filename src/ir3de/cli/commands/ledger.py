"""ledger: who gave what to which expert, and when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.options import output_options, router_argument
from ir3de.cli.output import FAINT, Output, hint, styled, table
from ir3de.errors import ArtifactError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ir3de.storage.ledger import Entry, History

MOST = 1_000  # columns of a terminal


@click.command()
@router_argument
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
    history = load_history(router_path)
    shown = [entry for entry in history if expert is None or entry.change.expert == expert]
    out.json({"router": str(router_path), "entries": [entry.to_dict() for entry in shown]})
    if not out.as_json:
        out.result(_listing(shown, out.console))
    if any(entry.change.given is not None and entry.change.given.id for entry in shown):
        out.note("", hint(f"ir3de remove {router_path} EXPERT --contribution ID", "to take one out:"))


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


def load_history(path: Path) -> History:
    from ir3de.router import Router

    history = Router.load(path).history
    if not history:
        raise ArtifactError(
            f"the router at {path} has no ledger: it is a serving copy, or its ledger.jsonl was deleted"
        )
    return history
