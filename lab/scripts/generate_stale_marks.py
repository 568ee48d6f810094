"""Mark in README.md and docs/ every result and picture that is older than the code; `--check` only compares.

A mark says nothing of the figures. It goes once the result is made again: `ir3de bench renew`.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

from ir3de_lab.catalogue import find_standings, published
from pages import ROOT, mark, read


def find_wrong(root: Path, stale: Collection[str]) -> dict[Path, str]:
    """The pages whose marks are not right, with what they should say."""
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return {page: text for page in pages if (text := mark(read(page), stale)) != read(page)}


def main() -> int:
    stale = [one.file for one in find_standings(ROOT / "results") if one.is_stale]
    drawn = [picture for file in stale if file in published() for picture in published()[file].pictures]
    wrong = find_wrong(ROOT, [*stale, *drawn])
    for page, text in wrong.items():
        if "--check" in sys.argv[1:]:
            print(f"{page.relative_to(ROOT)} has wrong marks of stale results: run lab/scripts/{Path(__file__).name}")
        else:
            page.write_text(text, encoding="utf-8")
    return 1 if wrong and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    raise SystemExit(main())
