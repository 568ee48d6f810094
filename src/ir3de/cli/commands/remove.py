"""remove: take experts, or one contribution of an expert, out of a router."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import click

from ir3de.cli.changes import scorer_choice_option
from ir3de.cli.options import device_option, load_arithmetic, output_options, router_argument
from ir3de.cli.output import Output, hint
from ir3de.cli.progress import solving
from ir3de.cli.saving import changing, save_and_report

if TYPE_CHECKING:
    from ir3de.fitting.domains import ScorerChoice


@click.command()
@router_argument
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--contribution", metavar="ID", help="Remove only this contribution, and keep the expert.")
@scorer_choice_option
@device_option
@output_options
def remove(
    router_path: Path,
    names: tuple[str, ...],
    contribution: str | None,
    scorer_choice: ScorerChoice,
    device: str | None,
    out: Output,
) -> None:
    """Remove experts from a router, or one contribution from an expert.

    What is left is, bit for bit, the router with this scorer that never saw them; with --scorer choose, the scorer is
    chosen without them, too. Printed are accuracy and confidence before and after, and which kept prompts go elsewhere.
    `ir3de receipt` then prints what others can check.

    \b
    Example:
      ir3de remove router cooking
      ir3de remove router law --contribution berlin-2026
      ir3de remove router law --scorer choose
    """
    if contribution is not None and len(names) > 1:
        raise click.UsageError("--contribution is taken from one expert: name only that one")
    arithmetic = load_arithmetic(device)
    begun = perf_counter()
    with changing(router_path) as router:
        before = copy(router)
        with solving(out, arithmetic):
            router.remove(*dict.fromkeys(names), contribution=contribution, scorer=scorer_choice)
        save_and_report(out, router, [router_path.expanduser()], perf_counter() - begun, before=before)
    if contribution is not None:
        out.note(hint(f"ir3de receipt {router_path} --contribution {contribution}", "the receipt:"))
