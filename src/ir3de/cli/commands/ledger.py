"""ledger: who gave what to which expert, and when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.options import output_options, router_argument
from ir3de.cli.output import FAINT, Output, count_left_out, hint, line, split_rows, table
from ir3de.cli.saving import load_router
from ir3de.errors import ArtifactError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ir3de.files.ledger import Entry, History

MAX_TABLE_COLUMNS = 1_000  # columns of a terminal


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
    history = load_history(router_path)
    shown = [entry for entry in history if expert is None or entry.change.expert == expert]
    out.json({"router": str(router_path), "entries": [entry.to_dict() for entry in shown]})
    if not out.as_json:
        last, left_out = split_rows(shown[::-1])
        out.result(count_left_out(_listing(last[::-1], out.console), left_out, "the latest entries; "))
    if any(entry.change.given is not None and entry.change.given.id for entry in shown):
        out.note("", hint(f"ir3de remove {router_path} EXPERT --contribution ID", "to remove one:"))


def _listing(entries: Sequence[Entry], console: Console) -> Table:
    """One row an entry; hashes, and then the number of prompts, are left out where there is no room for them."""
    columns = ("#", "when", "what", "expert", "contribution", "owner", "prompts", "hash", "router")
    rows = [_row(entry) for entry in entries]
    for many in range(len(columns), len(columns) - 4, -1):
        listing = table(*columns[:many], right=("#", "prompts"), rows=[row[:many] for row in rows])
        listing.columns[1].min_width = len("2026-01-01")
        if (
            console.measure(listing, options=console.options.update(max_width=MAX_TABLE_COLUMNS)).maximum
            <= console.width
        ):
            break
    return listing


def _row(entry: Entry) -> tuple[Text | str, ...]:
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


def load_history(path: Path) -> History:
    history = load_router(path).history
    if not history:
        raise ArtifactError(
            f"the router at {path} has no ledger: it is a serving copy, or its ledger.jsonl was deleted"
        )
    return history
