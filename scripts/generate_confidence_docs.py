"""Renew the tables of docs/confidence.md from the raw figures in results/; `--check` only compares."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "confidence.md"


def rows(name: str) -> list[dict[str, Any]]:
    content: dict[str, Any] = json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = content["rows"]
    return found


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def calibration() -> list[str]:
    lines = ["| suite | tokens read | prompts | not calibrated | calibrated |", "|---|---:|---:|---:|---:|"]
    for row in rows("confidence"):
        figures = f"{row['prompts']:,} | {row['plain']:.1f} | {row['calibrated']:.1f}"
        lines.append(f"| {row['suite']} | {row['cap']:,} | {figures} |")
    return lines


def promises() -> list[str]:
    lines = [
        "| suite | tokens read | promised | wrong | 19 in 20 below | answered | wrong without |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows("confidence"):
        for one in row["promises"]:
            names = ("error", "wrong", "wrong_at_worst", "answered", "without")
            shares = " | ".join(percent(one[name]) for name in names)
            lines.append(f"| {row['suite']} | {row['cap']:,} | {shares} |")
    return lines


def novelty() -> list[str]:
    lines = [
        "| router of | strangers | unlike | … or unsure (1 %) | area, familiarity | area, confidence |",
        "|---|---|---:|---:|---:|---:|",
    ]
    found = [row for row in rows("novelty") if row["cap"] > 32]
    for suite in dict.fromkeys(row["suite"] for row in found):
        part = [row for row in found if row["suite"] == suite]
        own = part[0]
        alarms = f"{percent(own['own_unlike'])} | {percent(own['own_recognised_at_1'])}"
        lines.append(f"| {suite} | *its own prompts: false alarms* | {alarms} | | |")
        for row in part:
            shares = f"{percent(row['unlike'])} | {percent(row['recognised_at_1'])}"
            areas = f"{row['familiarity_area']:.3f} | {row['confidence_area']:.3f}"
            lines.append(f"| | {row['strangers']} | {shares} | {areas} |")
    return lines


def renewed(text: str) -> str:
    for name, made in (("calibration", calibration()), ("promises", promises()), ("novelty", novelty())):
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = pattern.sub(lambda m, made=made: m[1] + "\n".join(made) + "\n" + m[2], text)  # type: ignore[misc]
    return text


def main() -> int:
    current = PAGE.read_text(encoding="utf-8")
    wanted = renewed(current)
    if "--check" in sys.argv[1:]:
        if wanted != current:
            print("docs/confidence.md is not what results/ says: run scripts/generate_confidence_docs.py")
        return int(wanted != current)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
