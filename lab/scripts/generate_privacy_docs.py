"""Renew the tables of docs/privacy.md from the raw figures in results/; `--check` only compares."""

from __future__ import annotations

from typing import Any

from pages import ROOT, circumstances, raw, renew_parts, write_or_compare

PAGE = ROOT / "docs" / "privacy.md"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def rare(document: dict[str, Any]) -> list[str]:
    leasts = list(document["rows"][0]["domains"][0]["below"])
    heads = ["once" if least == "2" else f"fewer than {least} times" for least in leasts]
    lines = [f"| suite | domain | prompts | tokens | distinct tokens | {' | '.join(heads)} |"]
    lines.append("|---|---|" + "---:|" * (3 + len(leasts)))
    for row in document["rows"]:
        for domain in row["domains"]:
            counts = " | ".join(f"{domain[name]:,}" for name in ("prompts", "tokens", "different"))
            shares = " | ".join(f"{100 * domain['below'][least] / domain['different']:.0f} %" for least in leasts)
            lines.append(f"| {row['suite']} | {domain['domain']} | {counts} | {shares} |")
    return lines


def accuracy(document: dict[str, Any]) -> list[str]:
    """A table for each suite and split: a line a setting, a column a router."""
    lines: list[str] = []
    for row in document["rows"]:
        routers = list(row["settings"][0]["accuracies"])
        for split, told in (("test", ""), ("ood", ", other sources")):
            if row["settings"][0]["accuracies"][routers[0]][split] is None:
                continue
            heads = ("distinct tokens left, %", "occurrences left, %", *routers)
            lines += ["", f"| {row['suite']}{told} | {' | '.join(heads)} |"]
            lines.append("|---|" + "---:|" * (2 + len(routers)))
            for left in row["settings"]:
                shares = f"{percent(100 * left['different'])} | {percent(100 * left['occurrences'])}"
                cells = " | ".join(percent(left["accuracies"][router][split]) for router in routers)
                lines.append(f"| {_setting(left)} | {shares} | {cells} |")
    return [*lines[1:], ""]


def _setting(left: dict[str, Any]) -> str:
    options = [f"--clip {left['clip']}"] if left["clip"] is not None else []
    options += [f"--min-count {left['min_count']}"] if left["min_count"] > 1 else []
    return f"`{' '.join(options)}`" if options else "no option"


def recovery(document: dict[str, Any]) -> list[str]:
    lines = ["| domain | equations | unknown counts | tokens that occur | wrong counts | seconds |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for row in document["rows"]:
        if (found := row["recovery"]) is not None:
            counts = " | ".join(f"{found[name]:,}" for name in ("equations", "unknowns", "occurring", "wrong"))
            lines.append(f"| {row['suite']}, {found['domain']} | {counts} | {found['seconds']} |")
    return lines


def main() -> int:
    text = renew_parts(PAGE.read_text(encoding="utf-8"), raw("privacy"), (rare, accuracy, recovery, circumstances))
    return write_or_compare({PAGE: text}, __file__)


if __name__ == "__main__":
    raise SystemExit(main())
