"""eval: measure a router on prompts whose experts are known, or on models' scores."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import click

import ir3de
from ir3de.cli import accuracy, lib, options
from ir3de.cli.costs import once_weight_option, weigh
from ir3de.cli.counting import check_sources, holdout_option
from ir3de.cli.domains import DomainTexts, GivenDomains, given_domains, read_prompts
from ir3de.cli.formats import line
from ir3de.cli.outcomes import GivenOutcomes, view_outcomes
from ir3de.cli.output import Block, Output, Result, heading
from ir3de.cli.plots import draw_frontier, draw_reliability, parse_plot_path, require_matplotlib, view_frontier
from ir3de.cli.saving import load_router
from ir3de.errors import InputError

Row = dict[str, Any]

MEASURE_INSTEAD = (
    "Measure on prompts that were kept aside (`ir3de fit … --holdout 0.2`), or read the proof that `ir3de fit` prints"
)
NEAREST = "where none fits, the nearest expert counts"


class SurestDecisions:
    """Rows about at most `wanted` decisions: the surest ones, and abstentions only if there is room left."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._kept: list[tuple[bool, float, int, Row]] = []  # a heap: the first to go is at its top
        self._places = count()

    def add(self, decision: ir3de.Decision, describe: Callable[[], Row]) -> None:
        """Keep the row if the decision is among the surest. Of equally sure ones the first stay."""
        score = decision.confidence if decision.expected_score is None else decision.expected_score
        rank = (not decision.abstained, score or 0.0, -next(self._places))
        if len(self._kept) < self._wanted:
            heapq.heappush(self._kept, (*rank, describe()))
        elif self._kept and rank > self._kept[0][:3]:
            heapq.heapreplace(self._kept, (*rank, describe()))

    @property
    def rows(self) -> list[Row]:
        """The rows, the surest decision first."""
        return [row for *_, row in sorted(self._kept, key=lambda kept: kept[:3], reverse=True)]


def evaluate_outcomes(
    router_path: Path,
    given: GivenOutcomes,
    weights: Mapping[str, float],
    pair: options.StrongOptions,
    out: Output,
    **_: Any,
) -> None:
    """eval --outcomes: route the rows and compare the scores of the chosen models."""
    router = weigh(load_router(router_path), weights)
    how: Any = {"field": given.score_field, **pair.names}
    report = lib.evaluation.evaluate_outcomes(router, given.read(out), **how).to_dict()
    if unknown := report["unknown_models"]:
        out.warn(f"models that the router does not know were skipped: {', '.join(unknown)}")
    out.show(report, view_outcomes(report))


def _refuse_replay(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(f"eval has no --replay any more: use `ir3de compare ROUTER --from {value}`")


@click.command("eval")
@options.router_argument
@given_domains
@options.reading_options
@options.number_option(
    "--errors", "wanted", least=0, default=0, help="List N prompts that went wrong; the surest first."
)
@click.option(
    "--robustness", is_flag=True, help="Also route the prompts with typos, cut, mixed…; holds all prompts in memory."
)
@click.option(
    "--unknown",
    "unknown",
    multiple=True,
    metavar="PATH",
    help="Prompts that belong to none of the experts; may be repeated.",
)
@click.option(
    "--plot",
    metavar="FILE",
    callback=parse_plot_path,
    help="Draw the reliability diagram as .png, .svg or .pdf; needs the extra `plots`.",
)
@holdout_option("Measure only on the prompts that `ir3de fit --holdout` with the same share kept out of the fit.")
@click.option(
    "--frontier", is_flag=True, help="Also show quality and cost at every weight; holds all decisions in memory."
)
@click.option(
    "--frontier-plot",
    metavar="FILE",
    callback=parse_plot_path,
    help="Draw the frontier as .png, .svg or .pdf; needs the extra `plots`.",
)
@once_weight_option
@options.output_options
@click.option("--replay", hidden=True, expose_value=False, callback=_refuse_replay)
@options.pair_options
@options.or_outcomes(evaluate_outcomes, "weights", "strong", "weak")
def evaluate(
    router_path: Path,
    domains: GivenDomains,
    texts: options.TextOptions,
    wanted: int,
    robustness: bool,
    unknown: tuple[str, ...],
    plot: Path | None,
    holdout: float | None,
    frontier: bool,
    frontier_plot: Path | None,
    weights: Mapping[str, float],
    pair: options.StrongOptions,
    out: Output,
) -> None:
    """Measure a router on prompts whose experts are known.

    The experts of the prompts are named by --label, by the names in a folder, or by NAME=PATH, as in `ir3de fit`.

    Accuracy is the share of prompts whose most probable expert is their own, as in the proof of `ir3de fit`; a mean
    over the experts follows if it differs. Where prompts went, after costs and abstentions, is counted separately.
    Calibration compares the confidence of the decisions with how often they are right. Coverage shows the effect of a
    threshold; with --unknown, also how many prompts of no expert are recognised. Robustness routes the same prompts
    with typos and other changes; a route is flipped if it differs from that of the original. The frontier is the
    quality at each mean cost per prompt, compared with random mixes, single experts and an oracle.

    --outcomes compares the mean score of the chosen models with the best single model, an oracle and random choice; for
    two models it also shows the effect of each share of calls of the strong one (APGR, CPT). `ir3de compare`
    measures on logged traffic.

    \b
    Examples:
      ir3de eval router test.csv --label team
      ir3de eval router maths=maths-test.jsonl law=law-test.jsonl --errors 5
      ir3de eval router maths=maths-test.jsonl law=law-test.jsonl --unknown cooking.jsonl
      ir3de eval router maths=maths-test.jsonl law=law-test.jsonl --robustness
      ir3de eval router maths=maths-test.jsonl law=law-test.jsonl --frontier-plot frontier.png
      ir3de eval router --outcomes answers-test.jsonl
    """
    if any(pair.names.values()):
        raise click.UsageError("--strong and --weak belong to --outcomes: leave them out, or name rows with --outcomes")
    if plot or frontier_plot:
        require_matplotlib()
    if robustness:
        lib.evaluation.measure_robustness  # noqa: B018 - of the laboratory: an error now if that is not installed
    domains.check_skipping(texts)
    given_texts = domains.read(texts, out)
    check_sources({**given_texts, **({"unknown": unknown} if unknown else {})})
    router = weigh(load_router(router_path), weights)
    misrouted, memory = SurestDecisions(wanted), lib.prompts.PromptMemory.of(router)
    recorder = lib.frontier.DecisionRecorder(router) if frontier or frontier_plot else None
    if recorder:
        recorder.check()

    def record(name: str, text: str, decision: ir3de.Decision) -> None:
        if memory:
            memory.look_up(name, text)
        if recorder:
            recorder.record(name, text, decision)
        if decision.expert != name:
            misrouted.add(decision, lambda: {"text": text, "expected": name, **decision.to_dict()})

    begun = perf_counter()
    with ExitStack() as bars:
        prompts = _open_prompts(given_texts, texts, holdout, out, bars)
        if robustness:  # every prompt is needed more than once
            prompts = {name: list(stream) for name, stream in prompts.items()}
        others = read_prompts("unknown", list(unknown), texts, out) if unknown else iter(())
        on_decision = record if wanted or recorder or memory else None
        report = lib.accuracy.route_and_compare(router, prompts, others, on_decision=on_decision)
    if unknown and report.unknown is None:
        raise InputError(f"{', '.join(unknown)}: no prompt to evaluate: give --unknown at least one, or leave it out")
    document = {**report.to_dict(), "seconds": round(perf_counter() - begun, 3), "errors": misrouted.rows}
    if robustness:
        with out.spinner("perturbing"):
            document["robustness"] = lib.evaluation.measure_robustness(router, prompts).to_dict()
    if recorder:
        document["frontier"] = recorder.frontier().to_dict()
    seen = memory.count() if memory else None
    warning = seen.describe(MEASURE_INSTEAD) if seen else None
    document["in_fit"] = None if seen is None else {**seen.to_dict(), "warning": warning}
    if frontier_plot is not None:
        draw_frontier(document["frontier"], frontier_plot)
    if plot is not None:
        draw_reliability(document, plot)
    if warning:
        out.warn(warning, quiet=False)
    out.show(document, _view_evaluation(document, router, out, plot, frontier_plot))


def _open_prompts(
    given: Mapping[str, DomainTexts], how: options.TextOptions, holdout: float | None, out: Output, bars: ExitStack
) -> dict[str, Any]:
    """Each expert's prompts as a stream, which `bars` closes; with --holdout only the held-out ones."""
    prompts = {name: read_prompts(name, paths, how, out) for name, paths in given.items()}
    for stream in prompts.values():
        bars.callback(stream.close)
    if holdout is None:
        return dict(prompts)
    is_kept = lib.corpora.is_held_out
    kept = {name: [text for text in stream if is_kept(text, holdout)] for name, stream in prompts.items()}
    if not any(kept.values()):
        raise InputError(f"--holdout {holdout:g} keeps none of these prompts aside: give more, or a larger share")
    return {name: texts for name, texts in kept.items() if texts}  # of a few prompts none may be held out


def _view_evaluation(
    document: Mapping[str, Any], router: ir3de.Router, out: Output, plot: Path | None, frontier_plot: Path | None
) -> Iterator[Block]:
    yield from accuracy.view_report(document, out)
    if plot is not None:
        yield line(("drawn to ", ""), (str(plot), "bold"))
    if "robustness" in document:
        yield heading("Robustness", NEAREST if router.default is None and document["abstained"] else "")
        yield Result(accuracy.effects_table(document["robustness"]))
    if "frontier" in document:
        yield from view_frontier(document["frontier"], out.console.width, frontier_plot)
    if document["errors"]:
        columns = ("expected", "expert"), ("expert", "went to")
        yield heading("Misrouted", "the most confident first")
        yield accuracy.prompts_table(document["errors"], *columns, out.console.width)
