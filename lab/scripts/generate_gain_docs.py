"""Renew the tables of experiment 1 in docs/experiment-plan.md from results/gain.json; `--check` only compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ir3de_lab.experiments.cells import SIGNS, gap
from ir3de_lab.experiments.gain import BOUND
from ir3de_lab.experiments.resampling import Difference
from ir3de_lab.experiments.results import shown_name
from ir3de_lab.experiments.standings import DEFAULT
from pages import ROOT, raw, renew_parts, write_or_compare

PAGE = ROOT / "docs" / "experiment-plan.md"
EVERY = "all"  # the part with all domains


def gain_verdicts(document: Mapping[str, Any]) -> list[str]:
    """The verdicts of both families, over all domains and over fewer."""
    heads = "| domains | best single expert, in hindsight | above it and the base model | no rival surely above |"
    lines = [heads, "|---|---|---|---|"]
    for name, part in document["parts"].items():
        verdicts = f"**{part['verdict']}** | **{part['rivals_verdict']}**"
        lines.append(f"| {name} | {shown_name(part['best_expert'])} | {verdicts} |")
    return lines


def gain_scores(document: Mapping[str, Any]) -> list[str]:
    """The mean score of every model and router, and how far the router is above it."""
    parts = document["parts"]
    every, others = parts[EVERY], {name: part for name, part in parts.items() if name != EVERY}
    seeds = [f"seed {number}" for number in range(len(document["seeds"]))]
    heads = [*map(shown_name, every["domains"]), "mean", *seeds, f"{DEFAULT} above it"]
    heads += [f"{DEFAULT} above it, {name}" for name in others]
    lines = [f"| model or router | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for place, row in enumerate(every["rows"]):
        scores = [*row["scores"].values(), row["mean"], *row["by_seed"]]
        above = [_show_gain(part["rows"][place]) for part in (every, *others.values())]
        lines.append(f"| {_name(row)} | {' | '.join([*(f'{score:.1f}' for score in scores), *above])} |")
    return lines


def _name(row: Mapping[str, Any]) -> str:
    name = shown_name(row["name"])
    return f"**{name}**" if name == DEFAULT else f"*{name}*" if row["kind"] == BOUND else name


def _show_gain(row: Mapping[str, Any]) -> str:
    if row["gain"] is None:
        return ""
    low, high = row["interval"]
    return gap(Difference(row["gain"], (low, high), row["p_value"])).text + SIGNS[row["sign"] or 0]


def main() -> int:
    text = renew_parts(PAGE.read_text(encoding="utf-8"), raw("gain"), (gain_verdicts, gain_scores))
    return write_or_compare({PAGE: text}, __file__)


if __name__ == "__main__":
    raise SystemExit(main())
