"""Renew the figures of docs/outcomes.md from the raw figures in results/; `--check` only compares."""

from __future__ import annotations

from default_tables import GAIN_TARGETS
from generate_held_out_docs import find_row, read_documents, read_signs
from ir3de_lab.benchmarks.held_out_tasks.expecting import SINGLE
from pages import ROOT, raw, renewed, write_or_compare

PAGE = ROOT / "docs" / "outcomes.md"
TASKS = {"mmlu": "MMLU, 57 tasks", "gsm8k": "GSM8K"}
OURS = "ir3de"
ROUTERS = {  # as the raw file names them, and how the table does
    OURS: "**ir3de**",
    "best model of the task, usual router": "best model of the task that the usual router finds",
    "best model of the task, naive Bayes": "best model of the task that naive Bayes finds",
    "best single model": "best single model",
    "a model at random": "a model at random",
    "oracle": "oracle",
}
AIMS = ("59.0", "48.5")  # on known and on unseen tasks, percent


def strong_weak() -> list[str]:
    """How well the router orders prompts by their need for the strong model."""
    found = {row["name"]: row for row in raw("strong_weak")["rows"]}
    (wanted,) = {row["wanted_share"] for row in found.values()}
    calls = f"strong calls, wanted {100 * wanted:.0f} %"
    lines = [f"| | training prompts | APGR | aimed at | CPT(50 %) | CPT(80 %) | {calls} |", "|---|" + "---:|" * 6]
    for name, told in TASKS.items():
        row = found[name]
        shares = " | ".join(f"{100 * row[key]:.0f} %" for key in ("cpt_50", "cpt_80", "reached_share"))
        apgr = f"{row['apgr']:.3f} ± {row['error']:.3f} | {GAIN_TARGETS[name]:.2f}"
        lines.append(f"| {told} | {row['training_prompts']:,} | {apgr} | {shares} |")
    return lines


def outcome_routing() -> list[str]:
    """The mean score of the chosen models on known and on unseen tasks."""
    found = {row["router"]: row for row in raw("outcome_routing")["rows"]}
    lines = ["| | known tasks | unseen tasks |", "|---|---:|---:|"]
    for name, told in ROUTERS.items():
        bold = "**" if name == OURS else ""
        cells = " | ".join(f"{bold}{found[name][key]:.2f}{bold}" for key in ("known", "unseen"))
        lines.append(f"| {told} | {cells} |")
    return [*lines, f"| aimed at | {' | '.join(AIMS)} |"]


def held_out_gaps() -> list[str]:
    """How far ours lies from the best single model on tasks that are held out, one set after another."""
    signs = {sign.set: sign.sign for sign in read_signs() if sign.family == "B"}
    told = []
    for document in read_documents():
        row = find_row(document, SINGLE, "held out")
        assert row is not None
        assert row.difference is not None
        gap = -row.difference.value
        where = f"{abs(gap):.1f} points {'above' if gap > 0 else 'below'}" if round(gap, 1) else "level"
        told.append(f"{document['set']}: {where}{', surely' if signs[document['set']] else ''}")
    return ["; ".join(told) + "."]


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    for part in (strong_weak, outcome_routing, held_out_gaps):
        text = renewed(text, part.__name__, "\n".join(part()), "\n")
    return write_or_compare({PAGE: text}, __file__)


if __name__ == "__main__":
    raise SystemExit(main())
