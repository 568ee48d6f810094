"""The laboratory stands on the public surface alone."""

from pathlib import Path

import pytest

import ir3de_lab
from surface import ROOT, check_no_circles, find_private_imports

LAB = ROOT / "lab"
FILES = sorted([*(LAB / "src").rglob("*.py"), *(LAB / "scripts").glob("*.py"), *(LAB / "tests").glob("*.py")])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(LAB)))
def test_it_uses_the_public_surface_alone(path: Path) -> None:
    assert list(find_private_imports(path.read_text(encoding="utf-8"))) == []


def test_no_modules_import_each_other() -> None:
    check_no_circles(Path(ir3de_lab.__file__).parent)
