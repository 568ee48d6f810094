"""bench proof: does the proof after a fit foretell the accuracy on test prompts?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import Output, output_options, percent, table
from ir3de_lab.cli.shared import keep, save_option

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de.evaluation import Estimate
    from ir3de_lab.benchmarks.proofs import ProofRow


@click.command()
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True,
              help="Folder with sets of intents in `intents/`.")  # fmt: skip
@click.option("--only", multiple=True, metavar="NAME", help="Measure only this set; may be repeated.")
@save_option
@output_options
def proof(data: Path, only: Sequence[str], save: Path | None, out: Output) -> None:
    """What the proof after a fit says, beside the accuracy on test prompts.

    \b
    Example:
      ir3de bench proof --data suites/ --save results/proof.json
    """
    from ir3de_lab.benchmarks.defaults import read_material
    from ir3de_lab.benchmarks.measurement import circumstances
    from ir3de_lab.benchmarks.proofs import measure_proof

    rows: list[ProofRow] = []
    for material in read_material(data):
        if not material.by_expert and (not only or material.name in only):
            with out.spinner(f"proving {material.name}"):
                rows.append(measure_proof(material))
    document = {"circumstances": circumstances(), "rows": [row.to_dict() for row in rows]}
    keep(save, document)
    out.json(document)
    out.result(_table(rows))


HEADS = (
    "foretold", "chosen anew", "test", "abstains, foretold", "test ", "doubling, foretold", "brought", "fit, s",
    "proof, s",
)  # fmt: skip


def _table(rows: Sequence[ProofRow]) -> Table:
    shown = table("data", *HEADS, right=HEADS)
    for row in rows:
        gain = "" if row.doubling_foretold is None else _span(row.doubling_foretold)
        shares = map(percent, (row.chosen_anew, row.test.value, row.abstained_foretold, row.abstained_test))
        costs = (f"{row.fit_s:.1f}", f"{row.proof_s:.1f}")
        shown.add_row(row.data, _span(row.foretold), *shares, gain, f"{100 * row.doubling:+.1f}", *costs)
    return shown


def _span(found: Estimate) -> str:
    return f"{100 * found.value:.1f} ({100 * found.low:.1f} – {100 * found.high:.1f})"
