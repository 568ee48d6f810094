"""Renew the tables of docs/confidence.md from the raw figures in results/; `--check` only compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pages import ROOT, raw, renewed, write_or_compare

PAGE = ROOT / "docs" / "confidence.md"


def rows(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = raw(name)["rows"]
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
        "| suite | tokens read | error rate | wrong | 95th percentile | answered | wrong without threshold |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows("confidence"):
        for one in row["promises"]:
            names = ("error", "wrong", "wrong_at_worst", "answered", "without")
            shares = " | ".join(percent(one[name]) for name in names)
            lines.append(f"| {row['suite']} | {row['cap']:,} | {shares} |")
    return lines


def unknowns() -> list[str]:
    """The means over the experts left out, each with the figure before in brackets; and the languages."""
    document = raw("unknowns")
    lines = [
        "| left out in turn | area under the curve | over 90 % sure | told by default | false alarms | "
        "told at 5 % false alarms | calibration error, known | accuracy, known |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in document["means"].items():

        def pair(key: str, digits: int = 1, row: Mapping[str, float] = row) -> str:
            return f"{row[key]:.{digits}f} ({row[f'{key}_before']:.{digits}f})"

        lines.append(
            f"| {name} | {pair('area', 3)} | {pair('sure')} | {row['told']:.1f} | {row['false_alarms']:.1f} | "
            f"{row['told_at_5']:.1f} | {pair('calibration_error')} | {pair('accuracy')} |"
        )
    lines += ["", "| language of the prompts, fitted on English | over 90 % sure | abstained |", "|---|---:|---:|"]
    lines += [f"| {one['language']} | {one['sure']:.1f} | {one['told']:.1f} |" for one in document["languages"]]
    return lines


def novelty() -> list[str]:
    lines = [
        "| router of | prompts | out of domain | or unsure (1 %) | AUC, familiarity | AUC, confidence |",
        "|---|---|---:|---:|---:|---:|",
    ]
    found = [row for row in rows("novelty") if row["cap"] > 32]
    for suite in dict.fromkeys(row["suite"] for row in found):
        part = [row for row in found if row["suite"] == suite]
        own = part[0]
        alarms = f"{percent(own['own_out_of_domain'])} | {percent(own['own_recognised_at_1'])}"
        lines.append(f"| {suite} | *its own prompts: false alarms* | {alarms} | | |")
        for row in part:
            shares = f"{percent(row['out_of_domain'])} | {percent(row['recognised_at_1'])}"
            areas = f"{row['familiarity_area']:.3f} | {row['confidence_area']:.3f}"
            lines.append(f"| | {row['strangers']} | {shares} | {areas} |")
    return lines


def page(text: str) -> str:
    for part in (calibration, promises, unknowns, novelty):
        text = renewed(text, part.__name__, "\n".join(part()), "\n")
    return text


def main() -> int:
    return write_or_compare({PAGE: page(PAGE.read_text(encoding="utf-8"))}, __file__)


if __name__ == "__main__":
    raise SystemExit(main())
