"""What users install: the product without the laboratory, and all that the product needs."""

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from surface import ROOT

pytestmark = pytest.mark.slow

WITHOUT_LAB = """
import sys
sys.modules["ir3de_lab"] = None  # whoever imports it now gets an ImportError
from ir3de import cli
cli.entry_points = lambda **_: ()
sys.argv = ["ir3de", "demo", "-q"]
cli.main()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(next(iter(WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel"))))))


def test_the_wheel_has_the_product_and_nothing_of_the_laboratory(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"ir3de"}
    expected = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "ir3de").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == expected
    for name in (
        "py.typed",
        "corpora/background.jsonl",
        "embedding/bundled/v1/matrix.safetensors",
        "embedding/bundled/v2/matrix.safetensors",
        "gateway/http/page/index.html",
        "gateway/http/openapi.json",
        "gateway/config/template.yaml",
    ):
        assert f"ir3de/{name}" in names


def test_the_product_names_the_laboratory_in_no_import() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom | ast.Import):
                named = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                assert not any(str(name).startswith("ir3de_lab") for name in named), path


def test_the_wheel_runs_without_the_laboratory(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT_LAB],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
