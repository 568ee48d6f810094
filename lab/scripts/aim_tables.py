"""What was aimed at and what was reached, for the end of the benchmarks page: a count for each file, and every miss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")


def tabulate_aims(documents: Mapping[str, dict[str, Any]]) -> list[str]:
    """How many aims each file reached, then each one that was missed."""
    counted, missed = ["| raw file | aims | reached |", "|---|---:|---:|"], list(_find_misses(documents))
    for name, document in documents.items():
        verdicts = [figure["reached"] for figure in document["figures"] if figure["reached"] is not None]
        if verdicts:
            counted.append(f"| [results/{name}.json](../results/{name}.json) | {len(verdicts)} | {sum(verdicts)} |")
    if not missed:
        return [*counted, "", "None of these was missed."]
    return [*counted, "", "Missed:", "", "| figure | measured | aim |", "|---|---:|---:|", *missed]


def _find_misses(documents: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    for document in documents.values():
        for figure in document["figures"]:
            if figure["reached"] is False:
                sign, unit = "≥" if figure["higher_is_better"] else "≤", figure["unit"]
                aim = f"{sign} {number(figure['bar'])} {unit}".strip()
                yield f"| {figure['name']} | {number(figure['value'])} {unit} | {aim} |"
