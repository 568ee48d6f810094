"""demo: the whole thing in a few seconds, offline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.options import TextOptions, force_option, output_options, refuse_existing
from ir3de.cli.output import FAINT, Output, bar, colour_of, heading, hint, percent, styled, table

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de.cli.domains import Counted
    from ir3de.evaluation.accuracy import Report
    from ir3de.router import Router
    from ir3de.routing.decision import Decision

QUESTIONS = (
    "Why does my async function return a coroutine?",
    "How many ways can six people sit around a table?",
    "Can my employer change my contract without asking?",
    "Is ibuprofen safe with blood pressure tablets?",
    "Why did the Hanseatic League lose Baltic trade?",
)
EXPLAINED = "The tenant stopped paying rent after breaking a leg: may the landlord terminate the lease?"
REPEATS = 25  # the time shown is the median
SAVED = "demo-router"


@dataclass(frozen=True)
class Demonstration:
    """What the demo did, and how long it took."""

    router: Router
    counted: list[Counted]
    solve_seconds: float
    report: Report
    routed: list[tuple[str, Decision, float]]  # the prompt, the decision, microseconds

    def to_dict(self) -> dict[str, Any]:
        return {
            "counted": [domain.to_dict() for domain in self.counted],
            "solve_seconds": round(self.solve_seconds, 3),
            "evaluation": self.report.to_dict(),
            "routed": [{"text": text, "microseconds": round(us, 1), **d.to_dict()} for text, d, us in self.routed],
            "explanation": self.router.explain(EXPLAINED).to_dict(),
        }


@click.command()
@click.option("--save", "target", metavar="PATH", type=click.Path(path_type=Path), help="Keep the router in a folder.")
@force_option
@output_options
def demo(target: Path | None, force: bool, out: Output) -> None:
    """Fit, measure and use a small router, offline.

    Five experts, 120 prompts each, all bundled with the package.

    \b
    Example:
      ir3de demo --save demo-router
    """
    if target is not None:
        target = target.expanduser()
        refuse_existing(target, force=force)
    demonstration = _demonstrate(out)
    if target is not None:
        with out.spinner("saving"):
            demonstration.router.save(target)
    out.json({**demonstration.to_dict(), "saved": None if target is None else str(target)})
    if not out.as_json:
        _show(out, demonstration)
        _show_next(out, target)


def _demonstrate(out: Output) -> Demonstration:
    """Fit from the package's own files just as `ir3de fit` does it, measure, and route."""
    from ir3de.cli.domains import count_domain
    from ir3de.corpora.examples import DOMAINS, held_out, path_of
    from ir3de.embedding import Embedding
    from ir3de.evaluation.accuracy import evaluate
    from ir3de.router import Router

    with out.spinner("reading the embedding"):
        embedding = Embedding.default()
    options = TextOptions(field=None, whole_files=False, subsample=1, cap=None)
    counted = [count_domain(name, [str(path_of(name))], embedding, options, out) for name in DOMAINS]
    begun = perf_counter()
    with out.spinner("solving"):
        router = Router.fit({domain.name: domain.statistics for domain in counted}, embedding=embedding)
    solved = perf_counter() - begun
    report = evaluate(router, held_out())
    routed = [(question, *_timed(router, question)) for question in QUESTIONS]
    return Demonstration(router, counted, solved, report, routed)


def _timed(router: Router, text: str) -> tuple[Decision, float]:
    """The decision, and how many microseconds it takes."""
    times = []
    for _ in range(REPEATS):
        begun = perf_counter()
        decision = router.route(text)
        times.append(1e6 * (perf_counter() - begun))
    return decision, median(times)


def _show(out: Output, shown: Demonstration) -> None:
    from ir3de.cli.accuracy_tables import headline, recall_table
    from ir3de.cli.commands.explain import show_explanation
    from ir3de.cli.domains import counted_table

    whole = shown.solve_seconds + sum(domain.seconds for domain in shown.counted)
    out.note(
        _title("Fit", f"one pass over the texts, one linear solve: {whole:.1f} s with the embedding in memory"),
        counted_table(shown.counted),
    )
    out.note(_title("Measure", "25 prompts each that the fit never saw"))
    out.result(headline(shown.report))
    out.note("", recall_table(shown.report))
    out.note(_title("Route", f"table look-ups, no model; the median of {REPEATS} repeats, warm"), _routed_table(shown))
    out.note(_title("Explain", "every token in the colour of its vote"))
    if not out.quiet:
        show_explanation(out, shown.router, shown.router.explain(EXPLAINED), rows=5)


def _title(name: str, about: str) -> Any:
    return styled(("\n", ""), (name, "bold"), (f"  {about}\n", FAINT))


def _routed_table(shown: Demonstration) -> Table:
    made = table("prompt", "expert", "confidence", "", "µs", right=("confidence", "µs"))
    for text, decision, microseconds in shown.routed:
        colour = colour_of(shown.router.experts.index(decision.expert))
        share = decision.confidence
        made.add_row(
            text, styled((decision.expert, colour)), percent(share), bar(share, 10, colour), f"{microseconds:.0f}"
        )
    return made


def _show_next(out: Output, target: Path | None) -> None:
    out.note(heading("Try next"))
    if target is None:
        out.note(hint(f"ir3de demo --save {SAVED}", "  keep this router"))
    place = target or SAVED
    out.note(hint(f'ir3de route {place} "your prompt"', "  ask it something"))
    out.note(hint(f'ir3de explain {place} "your prompt"', "  see what decided"))
    out.note(hint("ir3de fit router maths=maths.jsonl law=law/", "  fit your own    "))
