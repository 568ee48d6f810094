"""The tutorial notebook runs in a real Jupyter kernel, and shows what is committed with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "examples" / "notebooks" / "tutorial.ipynb"


def run_check(notebook: Path) -> subprocess.CompletedProcess[str]:
    for module in ("nbclient", "ipykernel", "pandas"):
        pytest.importorskip(module)
    command = [sys.executable, str(NOTEBOOK.with_name("run.py")), "--check", str(notebook)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")])),
    }
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.nightly
@pytest.mark.clients
def test_the_tutorial_runs_and_shows_what_is_committed() -> None:
    done = run_check(NOTEBOOK)
    assert done.returncode == 0, done.stderr


@pytest.mark.clients
@pytest.mark.parametrize(
    ("source", "committed", "complaint"),
    [
        ("print(6 * 7)", "41", "cell 0: committed ['41'], found ['42\\n']"),
        pytest.param("1 / 0", "", "ZeroDivisionError", marks=pytest.mark.nightly),
    ],
)
def test_another_output_and_an_error_are_found(tmp_path: Path, source: str, committed: str, complaint: str) -> None:
    document = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    shown = {"name": "stdout", "output_type": "stream", "text": committed}
    document["cells"] = [
        {"cell_type": "code", "id": "one", "execution_count": 1, "metadata": {}, "source": source, "outputs": [shown]}
    ]
    path = tmp_path / "wrong.ipynb"
    path.write_text(json.dumps(document), encoding="utf-8")
    done = run_check(path)
    assert done.returncode == 1 and complaint in done.stderr


def test_the_notebook_is_committed_with_its_outputs_and_without_traces_of_a_machine() -> None:
    document = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert set(document["metadata"]) == {"kernelspec"}
    code = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    html = [output for cell in code for output in cell["outputs"] if "text/html" in output.get("data", {})]
    assert sum('class="ir3de' in "".join(output["data"]["text/html"]) for output in html) >= 5
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert len(text) < 60_000 and "/tmp" not in text and "/home" not in text and "<script" not in text
