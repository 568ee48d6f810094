"""What a fit is worth on prompts that it has not seen, on a terminal and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.output import FAINT, PIPE_WIDTH, Output, bar, colour_of, heading, hint, line, one_line, percent, table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from ir3de.evaluation import Contender, Estimate, Proof
    from ir3de.router import Router

BAR_WIDTH = 12
WIDTH_WITH_BARS = 95  # of a table of accuracies with the longest names
OTHER_MISTAKES = "other mistakes"
COUNT_WIDTH = 22  # of a count such as "1,234 · 10 %", and of what separates the columns
SHOWN_PAIRS = 4
MAX_NAMED_EXPERTS = 5  # of more, `serve` reads a file
FIRST_PORT = 8001
INDENT = 14  # of what belongs to the words above it

no_proof_option = click.option(
    "--no-proof",
    is_flag=True,
    envvar="IR3DE_NO_PROOF",
    help="Do not measure the router on held-out prompts, which takes about as long as the fit. IR3DE_NO_PROOF=1 "
    "turns it off for all fits.",
)


@dataclass(frozen=True)
class Proven:
    """A proof, or why there is none."""

    proof: Proof | None
    reason: str = ""

    @property
    def is_ready(self) -> bool:
        from ir3de.evaluation.proof import is_ready

        return self.proof is not None and is_ready(self.proof)

    def to_dict(self) -> dict[str, Any] | None:
        if self.proof is not None:
            return self.proof.to_dict()
        return {"reason": self.reason} if self.reason else None


def prove_fit(router: Router, out: Output, **how: Any) -> Proven:
    """Measure a router that was just fitted. What cannot be measured is said, and does no harm."""
    from ir3de.errors import InputError
    from ir3de.evaluation import prove

    with out.spinner("measuring on held-out prompts"):
        try:
            return Proven(prove(router=router, **how))
        except InputError as error:
            return Proven(None, str(error))


def show_proof(out: Output, proven: Proven, router: Router) -> None:
    """The proof in about twenty lines."""
    if out.as_json:
        return
    proof = proven.proof
    if proof is None:
        if proven.reason:
            out.note(heading("Proof", "on prompts that the router has not seen"))
            out.note(line(("not measured: ", "yellow"), (proven.reason, "")))
        return
    out.note(heading("Proof", proof.notes[0].rstrip(".")), "", accuracy_table(proof, out.console.width))
    if proof.confused:
        out.note("", confused_table(proof, router, out.console.width))
    out.note("", _summarise(proof, out.console.width))
    for note in proof.notes[1:]:
        if note not in proof.verdict:
            out.note(line((note, FAINT)))


def accuracy_table(proof: Proof, width: int = PIPE_WIDTH) -> Table:
    """The router, and what else could choose, on the same prompts."""
    from ir3de.evaluation.proof import differs_by_expert

    has_means = differs_by_expert(proof)
    has_bars = width >= WIDTH_WITH_BARS and not has_means  # the figures say the same
    right = ["accuracy", "95 %", *["mean over experts"] * has_means, "router leads by"]
    shown = table("on the same prompts", right[0], *[""] * has_bars, *right[1:], right=right)

    def add(name: str, one: Proof | Contender, style: str, lead: RenderableType) -> None:
        bars = [bar(one.accuracy.value, BAR_WIDTH, style)] * has_bars
        means = [percent(one.mean_accuracy.value)] * has_means
        shown.add_row(name, percent(one.accuracy.value), *bars, _interval(one.accuracy), *means, lead)

    add("this router", proof, "green", "")
    for one in proof.contenders:
        lead = one.difference
        colour = "green" if lead.low > 0 else "red" if lead.high < 0 else "yellow"
        add(one.name, one, FAINT, line((f"{100 * lead.value:+.1f} ", colour), (f"({_points(lead)})", FAINT)))
    return shown


def confused_table(proof: Proof, router: Router, width: int) -> Table:
    """The most frequent mistakes, each with the prompt that was most confidently routed wrong."""
    shown = table("prompts of", "went to", "held out", "for instance", right=("held out",))
    truths, others = ([len(getattr(pair, side)) for pair in proof.confused[:SHOWN_PAIRS]] for side in ("truth", "said"))
    names_width = min(30, max(*truths, len(OTHER_MISTAKES))) + min(30, max(*others, len("went to")))
    room = max(20, width - names_width - COUNT_WIDTH)
    for pair in proof.confused[:SHOWN_PAIRS]:
        names = [line((name, colour_of(router.experts.index(name)))) for name in (pair.truth, pair.said)]
        count = f"{pair.count:,} · {100 * pair.share:.0f} %"
        shown.add_row(*names, count, one_line(pair.examples[0], room) if pair.examples else "")
    wrong = sum(map(sum, proof.confusion)) - sum(row[place] for place, row in enumerate(proof.confusion))
    rest = wrong - sum(pair.count for pair in proof.confused[:SHOWN_PAIRS])
    if rest > 0:
        shown.add_row(line((OTHER_MISTAKES, FAINT)), "", f"{rest:,}")
    return shown


def _summarise(proof: Proof, width: int) -> Table:
    """The summary with its words in the first column, so that long lines go on beside them."""
    from rich.table import Table

    shown = Table.grid()
    shown.add_column(width=INDENT, style="bold", no_wrap=True)
    shown.add_column(overflow="fold")
    for words, said in _list_findings(proof, width):
        shown.add_row(words, said)
    return shown


def _list_findings(proof: Proof, width: int) -> Iterator[tuple[str, Text]]:
    """What it abstains on, what more prompts would bring, and whether that is enough."""
    from ir3de.evaluation.proof import judge, judge_curve

    found, said = proof.abstained, "none of these prompts"
    if found.count:
        others = found.answered_accuracy
        right = "" if others is None else f"; of the others {percent(others.value)} are right"
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in found.reasons.items())
        said = f"{percent(found.share.value)} ({reasons}){right}"
    yield "Abstains on", line((said, ""))
    if found.examples:
        yield "", line((one_line(" · ".join(found.examples), max(20, width - INDENT)), FAINT))
    if (of_more := judge_curve(proof)) is not None:
        yield "More prompts", line((of_more, ""))
        points = ", ".join(f"{percent(point.accuracy.value)} with {point.prompts:,}" for point in proof.curve)
        yield "", line((points, FAINT))
    verdict = judge(proof)
    yield "Verdict", line((f"{verdict.words}.", {"yes": "green", "no": "red"}.get(verdict.kind, "yellow")))
    if verdict.advice:
        yield "", line((verdict.advice, ""))


def serve_hint(router: Router, folder: Path) -> Text:
    """The command that serves this router."""
    return hint(write_serve_command(folder, router.experts), "then:")


def write_serve_command(folder: Path, experts: Sequence[str]) -> str:
    """The command that serves a router: with an endpoint for each expert, or for many experts from a file."""
    place = shlex.quote(str(folder))
    if len(experts) > MAX_NAMED_EXPERTS:
        return f"ir3de config init --router {place} && ir3de serve"
    named = [f"{name}=http://127.0.0.1:{FIRST_PORT + at}/v1" for at, name in enumerate(experts)]
    return f"ir3de serve --router {place} {' '.join(f'--expert {shlex.quote(one)}' for one in named)}"


def _interval(found: Estimate) -> str:
    return f"{100 * found.low:.1f} – {100 * found.high:.1f}"


def _points(found: Estimate) -> str:
    return f"{100 * found.low:+.1f} to {100 * found.high:+.1f}"
