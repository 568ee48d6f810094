"""Renew the tables of docs/few-prompts.md from results/cold_start.json; `--check` only compares."""

from __future__ import annotations

from typing import Any

from pages import ROOT, circumstances, raw, renew_parts, write_or_compare

PAGE = ROOT / "docs" / "few-prompts.md"
SPLITS = {"test": "", "ood": ", other sources"}


def few(document: dict[str, Any]) -> list[str]:
    lines = [
        "| prompts | prompts of each expert | router | right, % | ± | over 0.9 sure and wrong, % | abstained, % |",
        "|---|---:|---|---:|---:|---:|---:|",
    ]
    for row in document["few"]:
        if row["missing"] is None:
            figures = [_write(row[name]) for name in ("accuracy", "standard_error", "sure_and_wrong", "abstained")]
            name = f"{row['data']}{SPLITS[row['split']]}"
            lines.append(f"| {name} | {row['prompts']} | {row['router']} | {' | '.join(figures)} |")
    return lines


def all_prompts(document: dict[str, Any]) -> list[str]:
    lines = [
        "| prompts | router | right, % | first 32 tokens | other sources | calibration error, points |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in document["all"]:
        figures = [_write(row["accuracy"].get(split)) for split in ("test", "first 32", "ood")]
        figures.append(_write(row["calibration_error"]))
        lines.append(f"| {row['data']} | {row['router']} | {' | '.join(figures)} |")
    return lines


def unknowns(document: dict[str, Any]) -> list[str]:
    lines = [
        "| left out of | router | area | found by default, % | over 0.9 sure, % | found at 5 % false alarms, % |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for router, found in document["unknowns"].items():
        for data, row in found["means"].items():
            figures = " | ".join(_write(row[name]) for name in ("told", "sure", "told_at_5"))
            lines.append(f"| {data} | {router} | {row['area']:.3f} | {figures} |")
    return lines


def limits(document: dict[str, Any]) -> list[str]:
    lines = [
        "| router of | router | prompts | abstained, % | over its test prompts, points | worst domain |",
        "|---|---|---|---:|---:|---|",
    ]
    for row in document["limits"]:
        worst = f"{row['worst_domain']}, {row['worst']:.1f}"
        over = _write(row["over_originals"])
        lines.append(f"| {row['data']} | {row['router']} | {row['kind']} | {row['abstained']:.1f} | {over} | {worst} |")
    return lines


def _write(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def main() -> int:
    document = raw("cold_start")
    text = PAGE.read_text(encoding="utf-8")
    parts = (few, all_prompts, limits, unknowns, circumstances)
    return write_or_compare({PAGE: renew_parts(text, document, parts)}, __file__)


if __name__ == "__main__":
    raise SystemExit(main())
