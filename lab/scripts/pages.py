"""Read the raw figures in results/, put text between marks of a page, and write or compare pages."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MARK = " ⚠ *older than the code*"
LINKED = re.compile(rf"(\]\((?:\.\./)?(?:results|(?:docs/)?images)/([\w-]+\.\w+)\))(?:{re.escape(MARK)})?")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def raw(name: str) -> dict[str, Any]:
    """The raw figures of that name."""
    content: dict[str, Any] = json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return content


def renewed(text: str, name: str, content: str, glue: str = "") -> str:
    """The text with what stands between the marks of that name replaced."""
    pattern = re.compile(rf"(<!-- {name} -->).*?(<!-- /{name} -->)", re.DOTALL)
    return pattern.sub(lambda found: f"{found[1]}{glue}{content}{glue}{found[2]}", text)


def renew_parts(text: str, document: dict[str, Any], parts: Sequence[Callable[[dict[str, Any]], list[str]]]) -> str:
    """The text with the lines of each part between the marks of the part's name."""
    for part in parts:
        text = renewed(text, part.__name__, "\n".join(part(document)), "\n")
    return text


def circumstances(document: dict[str, Any]) -> list[str]:
    """The machine, the versions and the day of a measurement."""
    c = document["circumstances"]
    return [f"{c['processor']}, {c['cores']} cores; Python {c['python']}, numpy {c['numpy']}; {c['date']}."]


def mark(text: str, stale: Collection[str] = ()) -> str:
    """The text with a mark behind every result and picture of these names, and behind no other.

    >>> mark("[speed](../results/speed.json) and [big](../results/big.json)", ["speed.json"])
    '[speed](../results/speed.json) ⚠ *older than the code* and [big](../results/big.json)'
    """
    return LINKED.sub(lambda found: found[1] + (MARK if found[2] in stale else ""), text)


def write_or_compare(wanted: Mapping[Path, str], script: str) -> int:
    """Write the pages that are not as wanted; with --check on the command line only name them. The exit status.

    Marks of stale results are the business of generate_stale_marks.py: here they make no difference.
    """
    stale = [path for path, text in wanted.items() if not path.is_file() or mark(read(path)) != mark(text)]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what results/ says: run lab/scripts/{Path(script).name}")
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
    return 0
