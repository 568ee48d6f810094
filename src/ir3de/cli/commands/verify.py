"""verify: check a router, and a receipt against it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from ir3de.cli.options import output_options, router_argument
from ir3de.cli.output import FAINT, Output, line, table
from ir3de.errors import ArtifactError


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
    ledger. The exit code is 1 if a check fails. No check can show that nobody kept a copy elsewhere.

    \b
    Example:
      ir3de verify router
      ir3de verify router --receipt receipt.json --statistics berlin.stats
    """
    from ir3de import files
    from ir3de.evaluation.verification import verify as checks
    from ir3de.files.ledger import from_receipt
    from ir3de.statistics.contributions import Contribution

    if receipt_path is None and (statistics is not None or before is not None):
        raise click.UsageError("--statistics and --before are checked against a receipt: name it with --receipt")
    entry = None if receipt_path is None else from_receipt(files.read(receipt_path.expanduser()), receipt_path)
    mine = None if statistics is None else Contribution.load(statistics)
    with out.spinner("checking"):
        found = list(checks(router_path, receipt=entry, contribution=mine, before=before))
    wrong = [check for check in found if check.holds is False]
    out.json({"router": str(router_path), "holds": not wrong, "checks": [asdict(check) for check in found]})
    marks = {True: ("✓", "green"), False: ("✗", "red"), None: ("–", "yellow")}
    cells = [(line(marks[check.holds]), check.claim, line((check.seen, FAINT))) for check in found]
    out.result(table("", "claim", "found", rows=cells))
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ArtifactError(f"{router_path}: this does not hold: {wrong[0].claim}: {wrong[0].seen}{more}")
    unknown = sum(check.holds is None for check in found)
    some = f"every check that could run passed; {unknown} of {len(found)} could not run"
    out.note("", line((some, "yellow") if unknown else ("every check passed", "green")))
