"""Tables of what `Router.fit` reaches with its defaults, from results/defaults.json and results/strong_weak.json."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

COLUMNS = {"test": "test", "first 32": "first 32 tokens", "ood": "other sources"}
# data, prompts of each expert, column of accuracies, target in percent
TARGETS = (
    ("banking77", None, "test", 91.3),
    ("trec_qc", None, "test", 89.0),
    ("stackoverflow20", None, "test", 89.0),
    ("clm", None, "test", 97.2),
    ("clm", None, "first 32", 92.0),
    ("clm_large", None, "test", 99.3),
    ("clm_large", None, "first 32", 96.2),
    ("reasoning", None, "test", 99.4),
    ("reasoning", None, "ood", 88.5),
    ("reasoning", 30, "test", 97.4),
    ("reasoning", 30, "ood", 82.0),
    ("banking77", 8, "test", 68.0),
    ("stackoverflow20", 8, "test", 71.0),
)
GAIN_TARGETS = {"mmlu": 0.64, "gsm8k": 0.60}  # area under the share of the performance gap that is recovered


def find_accuracies(document: dict[str, Any], data: str, prompts: int | None, router: str) -> dict[str, float]:
    """The accuracies of one router, or of none if it was not measured on these data."""
    rows = (row for row in document["rows"] if (row["data"], row["prompts"], row["router"]) == (data, prompts, router))
    found: dict[str, float] = next(rows, {"accuracy": {}})["accuracy"]
    return found


def tabulate_defaults(document: dict[str, Any]) -> list[str]:
    """Closed form and default side by side, with what was chosen."""
    lines = ["| data | prompts of each expert | closed form | default | chosen |", "|---|---:|---:|---:|---|"]
    for row in document["rows"]:
        if row["router"] == "default":
            closed = find_accuracies(document, row["data"], row["prompts"], "closed form")
            cells = [
                " / ".join(f"{one[name]:.1f}" for name in COLUMNS if name in one) for one in (closed, row["accuracy"])
            ]
            chosen = "differs by draw" if row["chosen"].count("(") > 1 else f"`{row['chosen']}`"
            lines.append(f"| {row['data']} | {row['prompts'] or 'all'} | {' | '.join(cells)} | {chosen} |")
    return lines


def tabulate_targets(defaults: dict[str, Any], gains: dict[str, Any]) -> list[str]:
    """Every target, what was reached, and whether that is enough."""
    return ["| data | target | closed form | default | |", "|---|---:|---:|---:|---|", *_compare(defaults, gains)]


def _compare(defaults: dict[str, Any], gains: dict[str, Any]) -> Iterator[str]:
    for data, prompts, column, target in TARGETS:
        own, closed = (
            find_accuracies(defaults, data, prompts, router)[column] for router in ("default", "closed form")
        )
        few = f", {prompts} prompts of each expert" if prompts else ""
        yield f"| {data}{few}, {COLUMNS[column]}, % | {target:.1f} | {closed:.2f} | {own:.2f} | {_judge(own, target)} |"
    for row in gains["rows"]:
        target = GAIN_TARGETS[row["name"]]
        shown = f"{row['apgr']:.3f} ± {row['error']:.3f}"
        yield f"| RouteLLM {row['name']}, APGR | {target:.2f} | – | {shown} | {_judge(row['apgr'], target)} |"


def _judge(value: float, target: float) -> str:
    return "reached" if value >= target else "missed"
