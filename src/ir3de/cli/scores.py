"""What `ir3de learn` prints of scores: its sources, what was learnt, and the proof."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ir3de.cli import lib
from ir3de.cli.formats import FAINT, line, printable
from ir3de.cli.output import Block, count_left_out, facts, heading, split_rows, table

_REASONS = {
    "no_prompt": "whose prompts were not kept, or no longer",
    "no_tokens": "of empty prompts",
    "other_tokenizer": "whose token ids are of another tokenizer",
    "bad_propensity": "of requests whose propensity is not a probability",
    "bad_score": "that do not lie between 0 and 1",
    "taught": "of a teacher, who sees no answers",
}


def view_scores(found: Mapping[str, Any], seconds: float) -> Iterator[Block]:
    """The blocks of a candidate that learnt scores."""
    rows, left_out = split_rows(found["sources"])
    if rows:
        columns = ("author", "requests of", "day", "scores", "mean", "by chance", "over the cap")
        yield count_left_out(table(*columns, right=columns[3:], rows=[_list_cells(row) for row in rows]), left_out)
    yield from (heading("learnt"), facts(_list_facts(found, seconds)))
    if found["experts"]:
        yield heading("experts", "all scores in the journal")
        names = ("expert", "scores", "mean", "by chance")
        cells = [
            (printable(name), f"{row['scores']:,}", f"{row['mean']:.3f}", f"{row['by_chance']:,}")
            for name, row in found["experts"].items()
        ]
        yield table(*names, right=names[1:], rows=cells)
    yield from (heading("proof"), _view_proof(found["proof"]))


def _list_cells(row: Mapping[str, Any]) -> tuple[Block, ...]:
    names = (printable(row["author"]), printable(row["key"]) or "–", row["day"])
    over = f"{row['over_cap']:,}" if row["over_cap"] else "–"
    return *names, f"{row['scores']:,}", f"{row['mean']:.3f}", f"{row['by_chance']:,}", over


def _list_facts(found: Mapping[str, Any], seconds: float) -> Iterator[tuple[str, Block]]:
    changes = [f"{found[name]:,} {name}" for name in ("added", "replaced", "removed", "unchanged") if found[name]]
    yield "scores", f"{found['scores']:,} in {seconds:.1f} s"
    yield "contributions", ", ".join(changes) or "none"
    if found["kept"]:
        yield "", f"{found['kept']:,} stay as they were learnt: the journal no longer has their requests"
    if found["over_cap"]:
        yield "over the cap", f"{found['over_cap']:,} scores: a source counts up to {found['cap']} an expert"
    if found["labels"]:
        yield "labels", f"{found['labels']:,} are not learnt: this router was fitted from outcomes"
    yield from list_left_out(found["left_out"])


def list_left_out(left_out: Mapping[str, Any]) -> Iterator[tuple[str, Block]]:
    """Feedback that could not be learnt, by reason."""
    for name, many in left_out["unknown_experts"].items():
        yield "not learnt", f"{many:,} for '{printable(name)}', which is not an expert of this router"
    for name, reason in _REASONS.items():
        if left_out.get(name):
            yield "not learnt", f"{left_out[name]:,} {reason}"


def _view_proof(proof: Mapping[str, Any]) -> Block:
    if proof["difference"] is None:
        least = lib.learning.MIN_PROOF_PROMPTS
        few = f"{proof['prompts']:,} of the new scores would be held out, and a proof needs {least}"
        return line(("too few scores for a proof: ", "yellow"), (few, ""))
    change = proof["difference"]
    points = f"{change['value']:+.3f} (95 %: {change['low']:+.3f} to {change['high']:+.3f})"
    style = "green" if change["low"] > 0 else "red" if change["high"] < 0 else "yellow"
    before, after = proof["live"]["value"], proof["candidate"]["value"]
    where = f"  on {proof['prompts']:,} held-out requests"
    if change["unknown_share"]:
        where += f"; {100 * change['unknown_share']:.0f} % have no score of the other expert (explore more)"
    return line((f"{before:.3f} → {after:.3f}  ", "bold"), (points, style), (where, FAINT))
