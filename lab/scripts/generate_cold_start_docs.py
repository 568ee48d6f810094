"""Renew the tables of docs/few-prompts.md from results/cold_start.json, once it is there; `--check` only compares."""

from __future__ import annotations

from typing import Any

from pages import ROOT, circumstances, raw, renew_parts, write_or_compare

PAGE = ROOT / "docs" / "few-prompts.md"
RAW = ROOT / "results" / "cold_start.json"
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
    if not RAW.exists():
        return 0
    text = PAGE.read_text(encoding="utf-8")
    return write_or_compare({PAGE: renew_parts(text, raw("cold_start"), (few, limits, circumstances))}, __file__)


if __name__ == "__main__":
    raise SystemExit(main())
