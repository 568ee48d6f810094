"""The laboratory stands on the public surface alone; the pages that it generates are up to date."""

import subprocess
import sys
from pathlib import Path

import pytest

import ir3de_lab
from surface import ROOT, check_no_circles, find_private_imports

LAB = ROOT / "lab"
FILES = sorted([*(LAB / "src").rglob("*.py"), *(LAB / "scripts").glob("*.py"), *(LAB / "tests").glob("*.py")])
PAGES = ("benchmark_docs", "confidence_docs", "privacy_docs", "results_readme")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(LAB)))
def test_it_uses_the_public_surface_alone(path: Path) -> None:
    assert list(find_private_imports(path.read_text(encoding="utf-8"))) == []


def test_no_modules_import_each_other() -> None:
    check_no_circles(Path(ir3de_lab.__file__).parent)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_generated_pages_are_up_to_date(page: str) -> None:
    done = subprocess.run(
        [sys.executable, str(LAB / "scripts" / f"generate_{page}.py"), "--check"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
