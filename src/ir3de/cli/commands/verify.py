"""verify: check a router, and a receipt against it."""

from __future__ import annotations

from pathlib import Path

import click

from ir3de.cli.options import output_options, router_argument
from ir3de.cli.output import FAINT, Output, styled, table
from ir3de.errors import ArtifactError


@click.command()
@router_argument
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
    summary = (
        f"every check that could run passed; {unknown} of {len(found)} could not" if unknown else "every check passed"
    )
    out.note("", styled((summary, "yellow" if unknown else "green")))
