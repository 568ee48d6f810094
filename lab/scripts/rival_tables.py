"""Tables of the routers that people compare with, from results/rivals.json."""

from __future__ import annotations

from typing import Any

from aim_tables import number


def rival_tables(document: dict[str, Any]) -> list[str]:
    """Every router on every suite, IR3DE's own rows first."""
    lines = []
    for suite, shots in dict.fromkeys((row["suite"], row["shots"]) for row in document["rows"]):
        rows = [row for row in document["rows"] if (row["suite"], row["shots"]) == (suite, shots)]
        few = f", {shots} prompts per domain, mean of ten draws" if shots else ""
        lines += [f"### {suite}{few}", ""]
        lines.append("| router | test | first 32 tokens | other sources | fit, s | µs per prompt |")
        lines.append("|---|---:|---:|---:|---:|---:|")
        columns = ("test", "first_32", "ood")
        best = {column: max((row[column] for row in rows if row[column]), default=None) for column in columns}
        for row in sorted(rows, key=lambda row: not row["router"].startswith("ir3de")):
            cells = [_with_spread(row, column, row[column] == best[column]) for column in columns]
            route = "" if row["route_us"] is None else number(row["route_us"])
            lines.append(f"| {row['router']} | {' | '.join(cells)} | {number(row['fit_seconds'])} | {route} |")
        lines.append("")
    return lines


def _with_spread(row: dict[str, Any], column: str, best: bool) -> str:
    if row[column] is None:
        return "–"
    spread = row["deviations"].get(column)
    text = f"{row[column]:.1f}" + ("" if spread is None else f" ± {spread:.1f}")
    return f"**{text}**" if best else text
