"""demo: fit, measure, route and explain in a few seconds, offline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import click

import ir3de
from ir3de import files
from ir3de.cli import lib
from ir3de.cli.accuracy import headline, recall_table
from ir3de.cli.commands.explain import show_explanation
from ir3de.cli.counting import count_domain, domains_table
from ir3de.cli.decisions import name_expert
from ir3de.cli.formats import bar, line, percent
from ir3de.cli.options import TextOptions, force_option, output_options, refuse_existing
from ir3de.cli.output import Block, Output, Result, heading, hint, table
from ir3de.cli.proof import describe_choice
from ir3de.errors import InputError

QUESTIONS = (
    "Why does my async function return a coroutine?",
    "How many ways can six people sit around a table?",
    "Can my employer change my contract without asking?",
    "Is ibuprofen safe with blood pressure tablets?",
    "Why did the Hanseatic League lose Baltic trade?",
)
EXPLAINED = "The tenant stopped paying rent after breaking a leg: may the landlord terminate the lease?"
TIMING_REPEATS = 25  # the time shown is the median
SAVED = Path("demo-router")
PROMPTS = "prompts"  # the folder of the prompts, behind the name of the router's folder


@click.command()
@click.option(
    "--save",
    "target",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help=f"Folder for the router.  [default: {SAVED}]",
)
@click.option(
    "--write",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the prompts as a labelled CSV file, and stop.",
)
@force_option
@output_options
def demo(target: Path | None, write: Path | None, force: bool, out: Output) -> None:
    """Fit, measure and use a small router, offline.

    It has five experts with 120 prompts each, all bundled with the package. The router is kept in a folder, and
    prompts to measure it with in another one next to it, so that the commands printed at the end can be run. If the
    folder `demo-router` of an earlier demo is there, it stays as it is. With --write, you get the prompts as a file to
    fit from: its columns are `prompt` and `team`.

    \b
    Examples:
      ir3de demo
      ir3de demo --save other-router
      ir3de demo --write train.csv
    """
    if write is not None:
        _write_labelled(write.expanduser(), force, out)
        return
    place, is_new = _find_place(target, force=force)
    with out.spinner("reading the embedding"):
        embedding = ir3de.Embedding.default()
    options = TextOptions(subsample=1)
    paths = {name: [str(lib.examples.path_of(name))] for name in lib.examples.DOMAINS}
    counted = [count_domain(name, own, embedding, options, out) for name, own in paths.items()]
    begun = perf_counter()
    with out.spinner("solving"):
        router = ir3de.Router.fit({domain.name: domain.statistics for domain in counted}, embedding=embedding)
    seconds = perf_counter() - begun
    report = lib.evaluation.evaluate(router, lib.examples.held_out())
    routed = [(question, *_time_route(router, question)) for question in QUESTIONS]
    explanation = router.explain(EXPLAINED)
    prompts = place.with_name(f"{place.name}-{PROMPTS}")
    if is_new:
        with out.spinner("saving"):
            router.save(place)
            _write_prompts(prompts, lib.examples.held_out())
    document = {
        "counted": [domain.to_dict() for domain in counted],
        "solve_seconds": round(seconds, 3),
        "evaluation": report.to_dict(),
        "routed": [{"text": text, "microseconds": round(us, 1), **found.to_dict()} for text, found, us in routed],
        "explanation": explanation.to_dict(),
        "saved": str(place) if is_new else None,
    }
    out.show(document, _view_figures(document, router))
    if not out.quiet:
        show_explanation(out, router, explanation, rows=5)
    kept = "the router is in" if is_new else "an earlier demo's router is in"
    out.note(heading("Try next", f"{kept} {place}, prompts to measure it with in {prompts}"))
    out.note(hint(f'ir3de route {place} "your prompt"', "  route a prompt  "))
    out.note(hint(f'ir3de explain {place} "your prompt"', "  see what decided"))
    out.note(hint(f"ir3de eval {place} {prompts}", "  measure it      "))
    out.note(hint(f"ir3de fit my-router {prompts}", "  fit your own    "))


def _view_figures(document: Mapping[str, Any], router: ir3de.Router) -> Iterator[Block]:
    """The fit, its accuracy and some routed prompts."""
    counted, report = document["counted"], document["evaluation"]
    seconds = document["solve_seconds"] + sum(domain["seconds"] for domain in counted)
    yield heading("Fit", f"one pass over the texts, a few solves: {seconds:.1f} s")
    yield from ("", domains_table(counted), "", describe_choice(router.trials, reason=""))
    yield from (heading("Measure", "25 prompts per expert that were not in the fit"), "")
    yield from (Result(headline(report)), "", recall_table(report))
    about = f"table look-ups, no model runs; each time is the median of {TIMING_REPEATS} repeats"
    yield from (heading("Route", about), "", _routed_table(document["routed"], router.experts))
    yield from (heading("Explain", "every word has the colour of the expert it speaks for"), "")


def _find_place(target: Path | None, *, force: bool) -> tuple[Path, bool]:
    """The folder for the router, and whether it is written: not where an earlier demo left one."""
    place = (target or SAVED).expanduser()
    has_prompts = place.with_name(f"{place.name}-{PROMPTS}").is_dir()
    may_keep = target is None and not force and has_prompts and lib.router_folder.holds_router(place)
    if may_keep and lib.router_folder.read_expert_names(place) == tuple(lib.examples.DOMAINS):
        return place, False
    refuse_existing(place, force=force)
    return place, True


def _write_prompts(folder: Path, prompts: Mapping[str, Iterable[str]]) -> None:
    """A file of prompts for each expert, none of them in the fit."""
    files.make_folder(folder)
    for name, texts in prompts.items():
        files.write(folder / f"{name}.txt", "".join(f"{text}\n" for text in texts).encode())


def _write_labelled(path: Path, force: bool, out: Output) -> None:
    """Write the example prompts, each with the name of its domain."""
    import csv
    import io

    if path.suffix.lower() != ".csv":
        raise InputError(f"{path} would hold CSV: choose a name that ends in .csv")
    refuse_existing(path, force=force)
    prompts = lib.examples.prompts()
    rows = [(text, domain) for domain, texts in prompts.items() for text in texts]
    table = io.StringIO(newline="")
    csv.writer(table).writerows([("prompt", "team"), *rows])
    files.write(path, table.getvalue().encode())
    done = Result(f"{path}: {len(rows)} prompts of {len(prompts)} teams; the columns are prompt and team")
    following = hint(f"ir3de fit router {path} --label team", "  fit a router from them")
    document = {"written": str(path), "rows": len(rows), "text": "prompt", "label": "team"}
    out.show(document, (done, "", following))


def _time_route(router: ir3de.Router, text: str) -> tuple[ir3de.Decision, float]:
    """Route a prompt: the decision, and the time in microseconds."""
    times = []
    for _ in range(TIMING_REPEATS):
        begun = perf_counter()
        decision = router.route(text)
        times.append(1e6 * (perf_counter() - begun))
    return decision, median(times)


def _routed_table(routed: Iterable[Mapping[str, Any]], experts: Sequence[str]) -> Block:
    made = table("prompt", "expert", "confidence", "", "µs", right=("confidence", "µs"))
    for row in routed:
        name, colour = name_expert(row, experts)
        sure = row["confidence"]
        made.add_row(
            row["text"], line((name, colour)), percent(sure), bar(sure, 10, colour), f"{row['microseconds']:.0f}"
        )
    return made
