"""bench signs: whether any sign of the experiments' tables depends on a seed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click

from ir3de.cli.plugins import Output, facts, output_options
from ir3de_lab.cli.shared import keep, save_option
from ir3de_lab.cli.tables import read_results, results_option, setting_option


@click.command()
@results_option
@setting_option
@save_option
@output_options
def signs(root: Path, chosen: Sequence[str], save: Path | None, out: Output) -> None:
    """Hold every sign of the experiments' tables against bootstraps with ten seeds.

    A sign changes if the 95 % interval of any of them, 1,000 resamples of whole clusters each, is not on its side of
    zero. Takes some minutes, and only the raw files.

    \b
    Example:
      ir3de bench signs --save results/signs.json
    """
    from ir3de_lab.experiments.sign_check import RESAMPLES, SEEDS, check_folder

    folders = [results.folder for results in read_results(root, chosen)[0]]
    with out.spinner("drawing"), ProcessPoolExecutor() as pool:
        found = [one for part in pool.map(check_folder, folders) for one in part]
    changed = sum(one.changes for one in found)
    document = {
        "seeds": len(SEEDS),
        "resamples": RESAMPLES,
        "signs": len(found),
        "changed": changed,
        "rows": [one.to_dict() for one in found],
    }
    keep(save, document)
    out.json(document)
    out.result(facts([("signs", f"{len(found):,}"), (f"change over {len(SEEDS)} seeds", str(changed))]))
