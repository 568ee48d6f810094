"""Renew the tables of docs/experiment-plan.md from results/held_out_*.json; `--check` only compares."""

from __future__ import annotations

from typing import Any

from ir3de_lab.benchmarks.held_out_tasks.expecting import OF_TASK, ORACLE, OURS, RANDOM, REGIMES, SINGLE
from ir3de_lab.benchmarks.held_out_tasks.measuring import IN_NO_ORDER, ZERO, Row
from ir3de_lab.benchmarks.held_out_tasks.verdicts import RIVALS, Sign, judge, list_signs
from ir3de_lab.experiments.resampling import Difference
from pages import ROOT, raw, renewed, write_or_compare

PAGE = ROOT / "docs" / "experiment-plan.md"
FILES = ("routerbench", "routerdc7", "routellm", "zeroeval", "zeroeval_numersense")
BOUNDS = (OF_TASK, RANDOM, ORACLE)


def read_documents() -> list[dict[str, Any]]:
    """The sets that were measured, in the order of the plan."""
    return [raw(f"held_out_{name}") for name in FILES if (ROOT / "results" / f"held_out_{name}.json").is_file()]


def read_signs() -> list[Sign]:
    """Every comparison of the plan, corrected over the sets that were measured."""
    found = {document["set"]: [Row.read(row) for row in document["rows"]] for document in read_documents()}
    return list_signs(found)


def list_scores(documents: list[dict[str, Any]], signs: list[Sign]) -> list[str]:
    """The mean score of every way on known and on held-out tasks."""
    names = [document["set"] for document in documents]
    heads = [f"{name}, {regime}" for name in names for regime in REGIMES]
    lines = [f"| way | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for way in (OURS, SINGLE, *RIVALS, *BOUNDS):
        cells = [
            _show_score(find_row(document, way, regime), _sign(signs, document["set"], way, regime, "ABCD"))
            for document in documents
            for regime in REGIMES
        ]
        lines.append(f"| {_name(way)} | {' | '.join(cells)} |")
    return lines


def list_worth(documents: list[dict[str, Any]], signs: list[Sign]) -> list[str]:
    """AIQ or APGR of every way that expects scores, where there are costs."""
    priced = [document for document in documents if document["cost"]]
    heads = [f"{document['set']}, {regime}" for document in priced for regime in REGIMES]
    lines = [f"| way | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for way in (OURS, *RIVALS, ZERO, IN_NO_ORDER):
        rows = [(document, regime, find_row(document, way, regime)) for document in priced for regime in REGIMES]
        if any(row is not None for *_, row in rows):
            cells = [
                "–"
                if row is None
                else _show(row.worth, row.worth_difference, _sign(signs, d["set"], way, regime, "EF"))
                for d, regime, row in rows
            ]
            lines.append(f"| {_name(way)} | {' | '.join(cells)} |")
    return lines


def list_claims(documents: list[dict[str, Any]], signs: list[Sign]) -> list[str]:
    """The verdicts, with the sets in which ours was surely above or below."""
    lines = ["| claim | verdict | ours surely above | ours surely below | comparisons |", "|---|---|---|---|---:|"]
    for found in judge(signs, len(documents)):
        verdict = "held" if found.held else "not held"
        above, below = ("; ".join(names) or "nowhere" for names in (found.above, found.below))
        lines.append(f"| {found.claim} | **{verdict}** | {above} | {below} | {found.of} |")
    return lines


def list_sizes(documents: list[dict[str, Any]]) -> list[str]:
    """What was measured."""
    lines = ["| set | models | tasks | training rows | test rows | cost |", "|---|---:|---:|---:|---:|---|"]
    for document in documents:
        train, test = (sum(counts) for counts in zip(*document["tasks"].values(), strict=True))
        lines.append(
            f"| {document['set']} | {len(document['models'])} | {len(document['tasks'])} | {train:,} | {test:,} "
            f"| {document['cost'] or 'none'} |"
        )
    return lines


def find_row(document: dict[str, Any], way: str, regime: str) -> Row | None:
    """A way on one set in one regime."""
    return next((Row.read(r) for r in document["rows"] if (r["way"], r["regime"]) == (way, regime)), None)


def _sign(signs: list[Sign], name: str, way: str, regime: str, families: str) -> str:
    found = (s.sign for s in signs if (s.set, s.way, s.regime) == (name, way, regime) and s.family in families)
    return next(found, "")


def _name(way: str) -> str:
    return f"**{way}**" if way == OURS else f"*{way}*" if way in BOUNDS else way


def _show_score(row: Row | None, sign: str) -> str:
    return "–" if row is None else _show(row.score, None if row.way in BOUNDS else row.difference, sign)


def _show(value: float | None, gap: Difference | None, sign: str) -> str:
    if value is None:
        return "–"
    if gap is None:
        return f"{value:.1f}"
    low, high = gap.interval
    return f"{value:.1f} ({low:+.1f} to {high:+.1f}) {sign}".strip()


def main() -> int:
    documents, signs = read_documents(), read_signs()
    parts = {
        "held_out_sizes": list_sizes(documents),
        "held_out_claims": list_claims(documents, signs),
        "held_out_scores": list_scores(documents, signs),
        "held_out_worth": list_worth(documents, signs),
    }
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in parts.items():
        text = renewed(text, name, "\n".join(lines), "\n")
    return write_or_compare({PAGE: text}, __file__)


if __name__ == "__main__":
    raise SystemExit(main())
