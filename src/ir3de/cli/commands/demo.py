"""demo: fit, measure, route and explain in a few seconds, offline."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import click

from ir3de.cli.options import TextOptions, force_option, output_options, refuse_existing
from ir3de.cli.output import Output, bar, heading, hint, line, name_expert, percent, table

if TYPE_CHECKING:
    from rich.table import Table

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
TIMING_REPEATS = 25  # the time shown is the median
SAVED = "demo-router"


@click.command()
@click.option("--save", "target", metavar="PATH", type=click.Path(path_type=Path), help="Keep the router in a folder.")
@force_option
@output_options
def demo(target: Path | None, force: bool, out: Output) -> None:
    """Fit, measure and use a small router, offline.

    It has five experts with 120 prompts each, all bundled with the package.

    \b
    Example:
      ir3de demo --save demo-router
    """
    from ir3de.cli.accuracy_tables import headline, recall_table
    from ir3de.cli.commands.explain import show_explanation
    from ir3de.cli.domains import count_domain, domains_table
    from ir3de.cli.trials import describe_choice
    from ir3de.corpora.examples import DOMAINS, held_out, path_of
    from ir3de.embedding import Embedding
    from ir3de.evaluation.accuracy import evaluate
    from ir3de.router import Router

    if target is not None:
        target = target.expanduser()
        refuse_existing(target, force=force)
    with out.spinner("reading the embedding"):
        embedding = Embedding.default()
    options = TextOptions(field=None, whole_files=False, subsample=1, cap=None)
    counted = [count_domain(name, [str(path_of(name))], embedding, options, out) for name in DOMAINS]
    begun = perf_counter()
    with out.spinner("solving"):
        router = Router.fit({domain.name: domain.statistics for domain in counted}, embedding=embedding)
    seconds = perf_counter() - begun
    report = evaluate(router, held_out())
    routed = [(question, *_time_route(router, question)) for question in QUESTIONS]
    explanation = router.explain(EXPLAINED)
    if target is not None:
        with out.spinner("saving"):
            router.save(target)
    document = {
        "counted": [domain.to_dict() for domain in counted],
        "solve_seconds": round(seconds, 3),
        "evaluation": report.to_dict(),
        "routed": [{"text": text, "microseconds": round(us, 1), **found.to_dict()} for text, found, us in routed],
        "explanation": explanation.to_dict(),
    }
    out.json({**document, "saved": None if target is None else str(target)})
    if out.as_json:
        return
    seconds += sum(domain.seconds for domain in counted)
    out.note(heading("Fit", f"one pass over the texts, a few solves: {seconds:.1f} s"), "", domains_table(counted))
    out.note("", describe_choice(router.trials, reason=""))
    out.note(heading("Measure", "25 prompts per expert that were not in the fit"), "")
    out.result(headline(report))
    out.note("", recall_table(report))
    about = f"table look-ups, no model runs; each time is the median of {TIMING_REPEATS} repeats"
    out.note(heading("Route", about), "", _routed_table(router, routed))
    out.note(heading("Explain", "every word has the colour of the expert it speaks for"), "")
    if not out.quiet:
        show_explanation(out, router, explanation, rows=5)
    place = target or SAVED
    out.note(heading("Try next"))
    if target is None:
        out.note(hint(f"ir3de demo --save {SAVED}", "  keep this router"))
    out.note(hint(f'ir3de route {place} "your prompt"', "  route a prompt  "))
    out.note(hint(f'ir3de explain {place} "your prompt"', "  see what decided"))
    out.note(hint("ir3de fit router maths=maths.jsonl law=law/", "  fit your own    "))


def _time_route(router: Router, text: str) -> tuple[Decision, float]:
    """Route a prompt; the decision, and the microseconds it took."""
    times = []
    for _ in range(TIMING_REPEATS):
        begun = perf_counter()
        decision = router.route(text)
        times.append(1e6 * (perf_counter() - begun))
    return decision, median(times)


def _routed_table(router: Router, routed: list[tuple[str, Decision, float]]) -> Table:
    made = table("prompt", "expert", "confidence", "", "µs", right=("confidence", "µs"))
    for text, decision, us in routed:
        name, colour = name_expert(decision, router)
        sure = decision.confidence or 0.0  # never None: this router has domains
        made.add_row(text, line((name, colour)), percent(sure), bar(sure, 10, colour), f"{us:.0f}")
    return made
