"""docs/integrations.md shows the examples as they are; tests/docs runs its sessions."""

import re

from surface import ROOT

EXAMPLES = ROOT / "examples" / "integrations"
MOST_LINES = 60  # an example that needs more is no example


def test_the_page_shows_every_example_as_it_is() -> None:
    page = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
    blocks = [
        block for block in re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE) if ">>>" not in block
    ]
    files = {path.read_text(encoding="utf-8"): path.name for path in EXAMPLES.glob("*.py")}
    assert sorted(files[block] for block in blocks) == sorted(files.values())


def test_examples_are_short() -> None:
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES, path.name
