"""Renew the tables of experiment 1 and its follow-up in docs/experiment-plan.md from results/; `--check` compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ir3de_lab.experiments.cells import SIGNS, gap
from ir3de_lab.experiments.gain import BOUND, RIVAL
from ir3de_lab.experiments.resampling import Difference
from ir3de_lab.experiments.results import shown_name
from ir3de_lab.experiments.standings import DEFAULT
from pages import ROOT, raw, renew_parts, write_or_compare

PAGE = ROOT / "docs" / "experiment-plan.md"
EVERY = "all"  # the part with all domains
LEAST_CUT_PERCENT = 10.0  # of the answers, to be shown


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


def gain_lengths(document: Mapping[str, Any]) -> list[str]:
    """Where the limit on the length cut a fair share of the answers, and how those scored that ended."""
    heads = ("model", "domain", "most tokens", "answers cut, %", "score of those that ended", "score of those cut")
    lines = [f"| {' | '.join(heads)} |", "|---|---|---:|---:|---:|---:|"]
    for row in document["rows"]:
        if row["cut_percent"] >= LEAST_CUT_PERCENT:
            place = f"{shown_name(row['model'])} | {shown_name(row['domain'])} | {row['most_tokens']}"
            scores = ("–" if score is None else f"{score:.1f}" for score in (row["ended_score"], row["cut_score"]))
            lines.append(f"| {place} | {row['cut_percent']:.1f} | {' | '.join(scores)} |")
    return lines


def longer_verdicts(document: Mapping[str, Any]) -> list[str]:
    return gain_verdicts(document)


def longer_scores(document: Mapping[str, Any]) -> list[str]:
    return gain_scores(document)


def longer_lengths(document: Mapping[str, Any]) -> list[str]:
    return gain_lengths(document)


def _name(row: Mapping[str, Any]) -> str:
    name, kind = row["name"], row["kind"]
    if name == DEFAULT:
        return f"**{name}**"
    return f"*{name}*" if kind == BOUND else name if kind == RIVAL else shown_name(name)


def _show_gain(row: Mapping[str, Any]) -> str:
    if row["gain"] is None:
        return ""
    low, high = row["interval"]
    return gap(Difference(row["gain"], (low, high), row["p_value"])).text + SIGNS[row["sign"] or 0]


def main() -> int:
    text = renew_parts(PAGE.read_text(encoding="utf-8"), raw("gain"), (gain_verdicts, gain_scores))
    text = renew_parts(text, raw("lengths"), (gain_lengths,))
    text = renew_parts(text, raw("gain_longer"), (longer_verdicts, longer_scores))
    text = renew_parts(text, raw("lengths_longer"), (longer_lengths,))
    return write_or_compare({PAGE: text}, __file__)


if __name__ == "__main__":
    raise SystemExit(main())
