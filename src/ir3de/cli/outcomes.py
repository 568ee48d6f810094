"""Routers that learn from scores: rows of --outcomes, and how a terminal shows such a router and its evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import ir3de
from ir3de.cli import lib
from ir3de.cli.formats import FAINT, bar, colour_of, line, percent
from ir3de.cli.output import Block, Output, Result, facts, heading, reading, table

Document = Mapping[str, Any]


class GivenOutcomes(NamedTuple):
    """The files of --outcomes, and the fields that hold the scores and the text."""

    paths: Sequence[str]
    score_field: str
    field: str | None

    def read(self, out: Output) -> Iterator[dict[str, Any]]:
        """Every row of the files, under a progress bar; each knows its line."""
        with reading(out, "outcomes", lib.corpora.total_bytes(self.paths)) as on_bytes:
            for row in lib.corpora.read_rows(self.paths, on_bytes=on_bytes):
                kept = {key: row[key] for key in ("task", self.score_field) if key in row}
                text = lib.corpora.text_of(row, self.field)
                yield lib.formats.Row.at(row.place, {"text": text, **kept})  # type: ignore[attr-defined]

    def collect(self, embedding: ir3de.Embedding, out: Output) -> Any:
        """The sums of all rows, from which a router is fitted."""
        return lib.outcomes.collect_outcomes(self.read(out), embedding=embedding, field=self.score_field)


def describe_share(share: Document) -> str:
    """Where a strong share sends prompts."""
    rest = f"the others to {share['weak']}; from an expected difference of {share['threshold']:.4g} on"
    return f"{percent(share['share'])} to {share['strong']}, {rest}"


def describe_reached(found: Document) -> str:
    """The share that a calibration reached, and on how many prompts."""
    return f"{percent(found['reached'])} of {found['prompts']:,} prompts go to {found['strong']}"


# a router -----------------------------------------------------------------------------------------------------------


def view_means(header: Document, router: ir3de.Router, width: int) -> Iterator[Block]:
    """Mean scores and the shrinkage that was tried, with headings."""
    yield from (heading("Mean scores after shrinkage"), _means_table(header, width))
    if router.validation.strengths:
        yield from (heading("Cross-validation of the shrinkage"), _shrinkage_table(router))
    if compared := _compare_with_best(header, router):
        yield line((compared, ""))


def _means_table(header: Document, width: int) -> Block:
    """The mean score of each model on each task; only the best of each task if all do not fit."""
    models = [expert["name"] for expert in header["experts"]]
    means, count = header["outcomes"]["means"], len(header["outcomes"]["means"])
    tasks = [task or "all" for task in header["outcomes"]["tasks"]]
    fits = max(map(len, (*tasks, "mean"))) + sum(max(len(model), 6) + 3 for model in models) <= width
    right = models if fits else ["mean", "of all"]
    shown = table("task", *([] if fits else ["best model"]), *right, right=right)

    def cells(row: Sequence[float]) -> list[Any]:
        if fits:
            return [line((f"{value:.3f}", "green" if value == max(row) else "")) for value in row]
        return [models[row.index(max(row))], f"{max(row):.3f}", f"{sum(row) / len(row):.3f}"]

    for task, row in zip(tasks, means, strict=True):
        shown.add_row(task, *cells(row))
    shown.add_row("mean", *cells([sum(column) / count for column in zip(*means, strict=True)]), style=FAINT)
    return shown


def _compare_with_best(header: Document, router: ir3de.Router) -> str:
    """Routing compared with the best single model on held-out prompts, in one line."""
    gain, reason, means = router.validation.gain, router.validation.reason, header["outcomes"]["means"]
    best = router.experts[max(range(len(router.experts)), key=lambda model: sum(row[model] for row in means))]
    if gain is None:
        return f"routing was not compared with the best single model: {reason}" if reason else ""
    if reason:
        return f"routing was given up, because {reason}: all prompts go to {best} unless costs decide otherwise"
    if gain.mean == gain.error == 0:
        return f"routing chose the best single model for all {gain.prompts:,} held-out prompts"
    above = f"{gain.mean:+.4f} ± {gain.error:.4f}"
    return f"routing gains {above} over the best single model on {gain.prompts:,} held-out prompts"


def _shrinkage_table(router: ir3de.Router) -> Block:
    """The candidates of cross-validation, and the chosen ones."""
    tried, chosen = router.validation, router.scorer
    shown = table("shrinkage", "rows", "squared error", "", right=("rows", "squared error"))
    for name, title, candidates in (
        ("pull", "of a task's means", tried.pulls),
        ("strength", "of the prompt's evidence", tried.strengths),
        ("length", "with the prompt's length", tried.lengths),
    ):
        for value, error in candidates:
            rows = "all" if value == float("inf") else f"{value:,.0f}"
            rows = rows if name != "length" else "yes" if value else "no"
            mark = "chosen" if value == getattr(chosen, name) else ""
            shown.add_row(title, rows, f"{error:.6f}", line((mark, "green")))
    return shown


# its evaluation -----------------------------------------------------------------------------------------------------


def view_outcomes(report: Document) -> Iterator[Block]:
    """The mean score of the chosen models, compared with simpler ways to choose."""
    overall, many = report["overall"], len(report["tasks"])
    counts = {
        "without a score of the chosen model": report["unscored"],
        "abstained": report["abstained"],
        "left out, without any score": report["left_out"],
    }
    remarks = "".join(f", {count:,} {what}" for what, count in counts.items() if count)
    tasks = "1 task" if many == 1 else f"{many:,} tasks"
    details = f" mean over {tasks}, {overall['prompts']:,} prompts{remarks}"
    yield Result(line(("mean score ", ""), (_number(overall["chosen"]), "bold"), (details, FAINT)))
    best = report["best_model"] or "none has scores on every task"
    yield from ("", _tasks_table(report), line(("\nbest single, in hindsight: ", FAINT), (best, "")))
    if gain := report["gain"]:
        interval = f"  between {gain['lowest']:+.3f} and {gain['highest']:+.3f} (95 %)"
        yield line(("gain over it: ", FAINT), (f"{gain['mean']:+.3f}", "bold"), (interval, FAINT))
    if report["strong_weak"]:
        yield from (heading("Strong and weak"), facts(_list_strong_weak(report["strong_weak"])))
    shown = table("model", "prompts", "share", "", right=("prompts", "share"))
    for index, (model, count) in enumerate(report["choices"].items()):
        share = count / overall["prompts"]
        shown.add_row(model, f"{count:,}", percent(share), bar(share, 20, colour_of(index)))
    yield from (heading("Chosen"), shown)


def _list_strong_weak(found: Document) -> Iterator[tuple[str, str]]:
    yield "strong", f"{found['strong']}, mean score {found['strong_score']:.3f}"
    yield "weak", f"{found['weak']}, mean score {found['weak_score']:.3f}"
    yield "strong calls", f"{percent(found['strong_share'])} as the router decides now"
    if found["apgr"] is None:
        yield "APGR", "none: the strong model is not better on these prompts"
        return
    yield "APGR", f"{found['apgr']:.3f} ± {found['error']:.3f} (standard error; 0.5 is random)"
    yield "CPT(50 %)", f"{percent(found['cpt_50'])} strong calls recover half of the gap"
    yield "CPT(80 %)", f"{percent(found['cpt_80'])} strong calls recover 80 % of it"


def _tasks_table(report: Document) -> Block:
    def cells(scores: Document) -> list[str]:
        values = (scores[key] for key in ("chosen", "best_single", "oracle", "random"))
        return [f"{scores['prompts']:,}", *map(_number, values)]

    columns = ("prompts", "chosen", "best single", "oracle", "random")
    rows = [(task or "all", *cells(scores)) for task, scores in report["tasks"].items()]
    shown = table("task", *columns, right=columns, rows=rows)
    if len(rows) > 1:
        shown.add_row("mean", *cells(report["overall"]), style=FAINT)
    return shown


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
