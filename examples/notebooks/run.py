"""Run the tutorial notebook in a real Jupyter kernel, in an empty folder: write its outputs, or compare them (--check).

Needs `pip install nbclient ipykernel pandas`.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).with_name("tutorial.ipynb")
TIMEOUT_S = 300  # of one cell
KEPT_METADATA = ("kernelspec",)  # the rest tells of the machine


def run(notebook: Any) -> Any:
    """The notebook with the outputs of its cells; an error of a cell is raised."""
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # else a debugger that nobody uses complains
    found = nbformat.from_dict(notebook)
    for cell in found.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(found, timeout=TIMEOUT_S, record_timing=False, resources={"metadata": {"path": folder}})
        client.execute()
    found.metadata = {key: found.metadata[key] for key in KEPT_METADATA}
    return found


def describe_outputs(cell: Any) -> list[str]:
    """What a cell shows, ready to be compared: text as it is; of HTML the words, because machines round differently."""
    described = []
    for output in cell.outputs:
        data = output.get("data", {})
        if "text/html" in data:
            without_styles = re.sub(r"<style.*?</style>|<[^>]*>", " ", data["text/html"], flags=re.DOTALL)
            described.append(" ".join(re.sub(r"[+−-]?\d+([.,]\d+)*|·", "#", without_styles).split()))
        else:
            described.append(output.get("text") or data.get("text/plain", ""))
    return described


def compare(committed: Any, run_now: Any) -> list[str]:
    """The cells that show something else than what is committed."""
    problems = []
    for place, (before, now) in enumerate(zip(committed.cells, run_now.cells, strict=True)):
        if before.cell_type == "code" and describe_outputs(before) != describe_outputs(now):
            problems.append(f"cell {place}: committed {describe_outputs(before)}, found {describe_outputs(now)}")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", nargs="?", type=Path, default=NOTEBOOK)
    parser.add_argument("--check", action="store_true", help="compare the outputs with those that are committed")
    asked = parser.parse_args()
    committed = nbformat.read(asked.notebook, as_version=4)
    found = run(committed)
    if not asked.check:
        asked.notebook.write_text(nbformat.writes(found) + "\n", encoding="utf-8")
    elif problems := compare(committed, found):
        sys.exit("\n".join([*problems, f"python {Path(__file__).name} writes the outputs anew"]))


if __name__ == "__main__":
    main()
