"""Write the tables of docs/why-not.md and one of README.md; `--check` only compares.

They are made from results/alternatives.json and alternatives_setfit.json: SetFit needs an accelerator.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ir3de_lab.cli.shared import number
from ir3de_lab.experiments.resampling import FALSE_SIGNS, Difference, find_signs
from pages import ROOT, circumstances, raw, renew_parts, renewed, write_or_compare

PAGE, README = ROOT / "docs" / "why-not.md", ROOT / "README.md"
SETS = {
    "banking77": "banking77, 77 experts",
    "stackoverflow20": "stackoverflow20, 20",
    "trec_qc": "trec_qc, 6",
    "reasoning": "reasoning, 4",
}
SIX, FEW = 6, 8
SURELY, PERHAPS = "surely", "perhaps"
MARKS = {SURELY: "**", PERHAPS: "*", "": ""}
TITLES = {None: "all prompts", FEW: f"{FEW} prompts an expert", SIX: "six utterances an expert"}
WORDS = "it learns from the words of the prompts alone, where ours begin with a table made from other texts"
ENCODER = "it shows every prompt to an encoder, and ours only those of which the table is unsure"
TRAINED = "it trains all of the encoder on pairs of the labelled prompts, on an accelerator; ours leave it as it is"
REASONS = {  # why a router of others can be better than ours of the same cost
    "scikit-learn, TF-IDF + logistic regression": WORDS,
    "fastText": WORDS,
    "MiniLM, nearest prompts": ENCODER,
    "MiniLM + logistic regression": ENCODER,
    "semantic-router, MiniLM": ENCODER,
    "LiteLLM auto-router, MiniLM": ENCODER,
    "SetFit, MiniLM": TRAINED,
}


def read_document() -> dict[str, Any]:
    """What was measured of all; SetFit comes last."""
    document, setfit = raw("alternatives"), raw("alternatives_setfit")
    return {**document, **{part: [*document[part], *setfit[part]] for part in ("alternatives", "rows")}}


def find_better(document: dict[str, Any], prompts: int | None) -> dict[tuple[str, str], str]:
    """The routers of others with the sets on which they are better than all of ours that cost no more, and how surely.

    Surely is by Holm's rule over the cells of the table; perhaps is by the cell alone, with the draws as they are.
    """
    runs_encoder = {one["name"]: one["runs_encoder"] for one in document["alternatives"]}
    rows = [row for row in document["rows"] if row["prompts"] == prompts and not row["router"].startswith("ir3de")]
    signs = find_signs(_find_lead(row, runs_encoder, "p_value") for row in rows)
    better = {}
    for row, sign in zip(rows, signs, strict=True):
        of_these = _find_lead(row, runs_encoder, "p_value_of_these_draws")
        if sign > 0:
            better[row["router"], row["data"]] = SURELY
        elif of_these is not None and of_these.value > 0 and of_these.p_value < FALSE_SIGNS:
            better[row["router"], row["data"]] = PERHAPS
    return better


def _find_lead(row: dict[str, Any], runs_encoder: dict[str, bool], kind: str) -> Difference | None:
    """How far a router is above the best of ours; one without an encoder, above the best of ours without one."""
    costly = runs_encoder[row["router"]]
    ours = [beside for name, beside in row["against"].items() if costly or not runs_encoder[name]]
    if not ours:
        return None
    least = min(ours, key=lambda one: one["points"])
    low, high = least["interval"]
    return Difference(least["points"], (low, high), max(one[kind] for one in ours))


def accuracy_cells(document: dict[str, Any], router: str, prompts: int | None) -> list[str]:
    """The accuracy of a router on each set with half of its interval; bold where it is surely better than ours."""
    better = find_better(document, prompts)
    found = {row["data"]: row for row in document["rows"] if (row["prompts"], row["router"]) == (prompts, router)}
    cells = []
    for name in SETS:
        if name not in found:
            cells.append("not run")
            continue
        low, high = found[name]["interval"]
        mark = MARKS[better.get((router, name), "")]
        cells.append(f"{mark}{found[name]['accuracy']:.1f}{mark} ± {(high - low) / 2:.1f}")
    return cells


def accuracy_table(document: dict[str, Any], prompts: int | None) -> list[str]:
    lines = [f"| accuracy, % | {' | '.join(SETS.values())} |", "|---|" + "---:|" * len(SETS)]
    names = [one["name"] for one in document["alternatives"]]
    return lines + [f"| {name} | {' | '.join(accuracy_cells(document, name, prompts))} |" for name in names]


def all_prompts(document: dict[str, Any]) -> list[str]:
    return accuracy_table(document, None)


def few_prompts(document: dict[str, Any]) -> list[str]:
    return accuracy_table(document, FEW)


def six_prompts(document: dict[str, Any]) -> list[str]:
    return accuracy_table(document, SIX)


def better(document: dict[str, Any]) -> list[str]:
    """Every marked figure in words: by how much it is above the best of ours of the same cost, and why that can be."""
    lines = []
    for name in (one["name"] for one in document["alternatives"] if one["name"] in REASONS):
        told = [one for prompts in TITLES for one in _tell_better(document, name, prompts)]
        lines += [f"- **{name}**: {'; '.join(told)}. A likely reason: {REASONS[name]}."] if told else []
    return lines or ["No figure is marked."]


def _tell_better(document: dict[str, Any], router: str, prompts: int | None) -> Iterator[str]:
    runs_encoder = {one["name"]: one["runs_encoder"] for one in document["alternatives"]}
    found = find_better(document, prompts)
    rows = [row for row in document["rows"] if (row["router"], row["prompts"]) == (router, prompts)]
    for how in (SURELY, PERHAPS):
        some = [row for row in rows if found.get((router, row["data"])) == how]
        leads = [(row["data"], _find_lead(row, runs_encoder, "p_value")) for row in some]
        if points := [f"{data} by {lead.value:.1f}" for data, lead in leads if lead is not None]:
            yield f"{how} with {TITLES[prompts]} on {', '.join(points)} points"


def strangers(document: dict[str, Any]) -> list[str]:
    """How well confidence tells prompts of other sets from prompts of the own one."""
    lines = [f"| AUROC, % | {' | '.join(SETS.values())} |", "|---|" + "---:|" * len(SETS)]
    return lines + [
        f"| {one['name']} | {' | '.join(_told(document, one['name']))} |" for one in document["alternatives"]
    ]


def _told(document: dict[str, Any], router: str) -> list[str]:
    rows = {row["data"]: row for row in document["rows"] if row["router"] == router and row["prompts"] is None}
    return [f"{rows[name]['strange']:.1f}" if name in rows else "not run" for name in SETS]


def weights(document: dict[str, Any]) -> list[str]:
    """What is installed, how long things take, and what each can do."""
    lines = [
        "| | packages | MB | torch | fit, s | add an expert, s | one prompt, µs | CPU time, µs | explains | abstains |",
        "|---|---:|---:|---|---:|---:|---:|---:|---|---|",
    ]
    for one in document["alternatives"]:
        facts = [str(one["packages"]), _megabytes(one), "yes" if one["torch"] else "no"]
        taken = _times(one, ("fit_s", "add_s", "route_us", "route_cpu_us"))
        lines.append(f"| {one['name']} | {' | '.join([*facts, *taken, one['explains'], one['abstains']])} |")
    return lines


def _times(one: dict[str, Any], names: Sequence[str]) -> list[str]:
    return [number(one["times"][name]) if one["times"] else "not timed" for name in names]


def _megabytes(one: dict[str, Any]) -> str:
    return f"{one['megabytes'] + one['model_mb']:,.0f}"


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
    loads = [one["timed_on"]["load"] for one in document["alternatives"] if one.get("timed_on")]
    busy = f" Load averages meanwhile: {min(loads):g} to {max(loads):g}." if loads else ""
    told = f"Accuracies: {'; '.join(places)}. Versions: {', '.join(versions)}."
    return [f"Times: {circumstances(document)[0]}{busy} {told}"]


def summary(document: dict[str, Any]) -> list[str]:
    """For the README: one line a router, on the first set."""
    lines = [
        "| banking77 | 6 prompts an expert | 8 | all | strangers, AUROC % | one prompt, µs | add an expert, s | MB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for one in document["alternatives"]:
        cells = [accuracy_cells(document, one["name"], prompts)[0] for prompts in (SIX, FEW, None)]
        rest = [_told(document, one["name"])[0], *_times(one, ("route_us", "add_s")), _megabytes(one)]
        lines.append(f"| {one['name']} | {' | '.join([*cells, *rest])} |")
    return lines


def main() -> int:
    document = read_document()
    parts = (all_prompts, few_prompts, six_prompts, better, strangers, weights, machines)
    page = renew_parts(PAGE.read_text(encoding="utf-8"), document, parts)
    readme = renewed(README.read_text(encoding="utf-8"), "why-not", "\n".join(summary(document)), "\n")
    return write_or_compare({PAGE: page, README: readme}, __file__)


if __name__ == "__main__":
    sys.exit(main())
