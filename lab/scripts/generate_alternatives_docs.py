"""Write the tables of docs/why-not.md and one of README.md; `--check` only compares.

They are made from results/alternatives.json, and that of CPU times from results/alternatives_speed.json.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ir3de_lab.cli.shared import number
from pages import ROOT, circumstances, raw, renew_parts, renewed, write_or_compare

PAGE, README = ROOT / "docs" / "why-not.md", ROOT / "README.md"
SETS = {
    "banking77": "banking77, 77 experts",
    "stackoverflow20": "stackoverflow20, 20",
    "trec_qc": "trec_qc, 6",
    "reasoning": "reasoning, 4",
}
SIX, FEW = 6, 8


def accuracy_cells(document: dict[str, Any], router: dict[str, Any], prompts: int | None) -> list[str]:
    """The accuracy of a router on each set; bold where it is surely better than all of ours that cost no more."""
    cells = []
    for name in SETS:
        found = [
            row
            for row in document["rows"]
            if (row["data"], row["prompts"], row["router"]) == (name, prompts, router["name"])
        ]
        cell = f"{found[0]['accuracy']:.1f}" if found else "not run"
        cells.append(f"**{cell}**" if found and is_better(found[0], router, document) else cell)
    return cells


def is_better(row: dict[str, Any], router: dict[str, Any], document: dict[str, Any]) -> bool:
    """Whether a router of others is surely better than all of ours; one without an encoder, than ours without one."""
    if router["name"].startswith("ir3de"):
        return False
    costs = {one["name"]: one.get("runs_encoder", False) for one in document["alternatives"]}
    runs_encoder = router["runs_encoder"] if "runs_encoder" in router else router["torch"]
    ours = row.get("against") or {"ir3de": (row["low"], row["difference"], row["high"])}
    return all(low > 0 for name, (low, _, _) in ours.items() if runs_encoder or not costs[name])


def accuracy_table(document: dict[str, Any], prompts: int | None) -> list[str]:
    lines = [f"| accuracy, % | {' | '.join(SETS.values())} |", "|---|" + "---:|" * len(SETS)]
    return lines + [
        f"| {one['name']} | {' | '.join(accuracy_cells(document, one, prompts))} |" for one in document["alternatives"]
    ]


def all_prompts(document: dict[str, Any]) -> list[str]:
    return accuracy_table(document, None)


def few_prompts(document: dict[str, Any]) -> list[str]:
    return accuracy_table(document, FEW)


def six_prompts(document: dict[str, Any]) -> list[str]:
    return accuracy_table(document, SIX)


def strangers(document: dict[str, Any]) -> list[str]:
    """How well confidence tells prompts of other sets from prompts of the own one."""
    lines = [f"| AUROC, % | {' | '.join(SETS.values())} |", "|---|" + "---:|" * len(SETS)]
    for one in document["alternatives"]:
        rows = {
            row["data"]: row["strange"]
            for row in document["rows"]
            if row["router"] == one["name"] and not row["prompts"]
        }
        cells = [f"{rows[name]:.1f}" if name in rows else "not run" for name in SETS]
        lines.append(f"| {one['name']} | {' | '.join(cells)} |")
    return lines


def weights(document: dict[str, Any]) -> list[str]:
    """What is installed, how long things take, and what each can do."""
    lines = [
        "| | packages | MB | torch | fit, s | add an expert, s | one prompt, µs | explains | abstains |",
        "|---|---:|---:|---|---:|---:|---:|---|---|",
    ]
    return lines + [f"| {one['name']} | {' | '.join(_facts(one))} |" for one in document["alternatives"]]


def _facts(one: dict[str, Any]) -> Sequence[str]:
    times = one["times"]
    taken = [number(times[name]) for name in ("fit_s", "add_s", "route_us")] if times else ["not timed"] * 3
    megabytes = f"{one['megabytes'] + one['model_mb']:,.0f}"
    return (str(one["packages"]), megabytes, "yes" if one["torch"] else "no", *taken, one["explains"], one["abstains"])


def machines(document: dict[str, Any]) -> list[str]:
    """Where the times were taken, and where prompts were answered."""
    places = dict.fromkeys(
        f"{one['answered_on']['processor']} ({one['answered_on']['machine']}, Python {one['answered_on']['python']})"
        for one in document["alternatives"]
        if one["answered_on"]
    )
    versions = dict.fromkeys(
        f"{name} {version}" for one in document["alternatives"] for name, version in one["versions"].items() if version
    )
    return [f"Times: {circumstances(document)[0]} Accuracies: {'; '.join(places)}. Versions: {', '.join(versions)}."]


def cpu_times(document: dict[str, Any]) -> list[str]:
    """What a fit, an expert and a prompt take of a processor, in a later run than the rest."""
    lines = [
        "| CPU time | fit, s | add an expert, s | one prompt, µs | one prompt by the clock, µs |",
        "|---|---:|---:|---:|---:|",
    ]
    for one in document["alternatives"]:
        cells = [number(one["times"][name]) for name in ("fit_cpu_s", "add_cpu_s", "route_cpu_us", "route_us")]
        lines.append(f"| {one['name']} | {' | '.join(cells)} |")
    loads = [one["timed_on"]["load"] for one in document["alternatives"]]
    busy = f"Load averages while they were taken: {min(loads):g} to {max(loads):g}."
    return [*lines, "", f"{circumstances(document)[0]} {busy}"]


def summary(document: dict[str, Any]) -> list[str]:
    """For the README: one line a router."""
    lines = [
        "| | accuracy, % | with 8 prompts an expert | one prompt, µs | add an expert, s | packages | MB | torch |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for one in document["alternatives"]:
        packages, megabytes, torch, _, add, route, *_ = _facts(one)
        accuracies = [accuracy_cells(document, one, prompts)[0] for prompts in (None, FEW)]
        lines.append(f"| {one['name']} | {' | '.join([*accuracies, route, add, packages, megabytes, torch])} |")
    return lines


def main() -> int:
    document = raw("alternatives")
    page = renew_parts(
        PAGE.read_text(encoding="utf-8"), document, (all_prompts, few_prompts, strangers, weights, machines)
    )
    page = renew_parts(page, raw("alternatives_speed"), (cpu_times,))
    readme = renewed(README.read_text(encoding="utf-8"), "why-not", "\n".join(summary(document)), "\n")
    return write_or_compare({PAGE: page, README: readme}, __file__)


if __name__ == "__main__":
    sys.exit(main())
