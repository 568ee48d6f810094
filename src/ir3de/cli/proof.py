"""Figures on held-out prompts: the trials of a fit, its proof, and a router before and after a change."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ir3de
from ir3de.cli import lib
from ir3de.cli.decisions import NONE_FITS
from ir3de.cli.formats import FAINT, bar, colour_of, line, one_line, percent
from ir3de.cli.output import PIPE_WIDTH, Block, Output, count_left_out, facts, heading, table
from ir3de.errors import InputError

Trial = Mapping[str, Any]

# trials -------------------------------------------------------------------------------------------------------------

_NAMES = {"PromptRidge": "prompt ridge", "TokenRidge": "token ridge", "Posterior": "posterior"}
_BLEND = {"ridge": "1", "posterior": "0", "pairs": "0"}  # weights that are not written
_LOGISTIC = {"means": ("mean embedding", 2.0), "pairs": ("pairs", 1.0)}  # weights that are named if they differ
_FIGURES = {"strength": "λ", "prior": "prior", "weight": "prior"}


def in_few_words(strategy: str) -> str:
    """A scorer or selector, as Python writes it, in the words of the documentation.

    >>> in_few_words("Blend(ridge=1.0, posterior=0.25, pairs=0.5, strength=8.0, prior=1.0)")
    'ridge + 0.25 posterior + 0.5 pairs, λ 8, prior 1'
    >>> in_few_words("Logistic(strength=5.0, means=2.0, pairs=1.0, closed=3.0)")
    'logistic + 3 closed form, λ 5'
    >>> in_few_words("Logistic(strength=5.0, means=4.0, pairs=2.0, closed=3.0)")
    'logistic + 3 closed form, λ 5, mean embedding weighted 4, pairs weighted 2'
    >>> in_few_words("EntropyTopK(k=10, cap=1024, ties='probability', log_offset=0.0)")
    'surest 10 vote'
    """
    name, _, rest = strategy.partition("(")
    given = dict(re.findall(r"(\w+)=([^,()]+)", rest))
    if name == "Average":
        return "average"
    if name == "EntropyTopK":
        return f"surest {given['k']} vote"
    weighted = []
    if name == "Blend":
        parts = [_weigh(given.get(part, weight), part) for part, weight in _BLEND.items()]
    elif name == "Logistic":
        parts = ["logistic", _weigh(given["closed"], "closed form")]
        usual = {key: (word, given[key]) for key, (word, weight) in _LOGISTIC.items() if float(given[key]) != weight}
        weighted = [f"{word} weighted {_short(value)}" for word, value in usual.values()]
    elif name in _NAMES:
        parts = [_NAMES[name]]
    else:
        return strategy
    figures = [f"{word} {_short(given[key])}" for key, word in _FIGURES.items() if key in given]
    return ", ".join([" + ".join(filter(None, parts)), *figures, *weighted])


def _weigh(weight: str, part: str) -> str:
    return {"0": "", "1": part}.get(_short(weight), f"{_short(weight)} {part}")


def _short(number: str) -> str:
    return f"{float(number):.3g}"


def trials_table(trials: Sequence[Trial], most: int | None = None) -> Block:
    """Each trial in few words, best first, the chosen one marked; with `most`, only the best and the chosen."""
    right = ("accuracy, %", "first 32", "log loss")
    shown = table("", "scorer", "selector", *right, right=right)
    kept = [trial for place, trial in enumerate(trials) if most is None or place < most or trial["chosen"]]
    for trial, name in zip(kept, _name_apart(kept), strict=True):
        mark, style = ("→", "bold green") if trial["chosen"] else ("", "")
        figures = (f"{100 * trial['accuracy']:.1f}", f"{100 * trial['short_accuracy']:.1f}", f"{trial['loss']:.3f}")
        shown.add_row(line((mark, "green")), name, in_few_words(trial["selector"]), *figures, style=style)
    return count_left_out(shown, len(trials) - len(kept))


def _name_apart(trials: Sequence[Trial]) -> list[str]:
    """The scorers in few words, with the window if windows differ; in full where two would look the same."""
    names = [in_few_words(trial["scorer"]) for trial in trials]
    if len({trial.get("window") for trial in trials}) > 1:
        names = [f"{name}, window {trial.get('window')}" for name, trial in zip(names, trials, strict=True)]
    keys = [(name, trial["selector"]) for name, trial in zip(names, trials, strict=True)]
    alike = Counter(keys)
    return [trial["scorer"] if alike[key] > 1 else key[0] for key, trial in zip(keys, trials, strict=True)]


def why_chosen(trials: Sequence[Trial]) -> str:
    """Why tuning chose a trial, in one line; empty for trials of earlier versions, which lack the figures."""
    if not trials or any("lead" not in trial for trial in trials):
        return ""
    chosen = next(trial for trial in trials if trial["chosen"])
    if chosen["required_lead"]:
        why = f"chosen because it leads the default by {_describe_lead(chosen)} were required"
        return why if trials[0]["chosen"] else f"{why}; {_why_not_first(trials)}"
    others = [trial for trial in trials if trial["required_lead"]]
    if not others:
        return ""
    nearest = max(others, key=lambda trial: trial["lead"] - trial["required_lead"])
    words = f"{in_few_words(nearest['scorer'])} (selector: {in_few_words(nearest['selector'])})"
    best = f"no trial clearly beats the default; the nearest is {words}"
    if round(100 * nearest["lead"], 1) <= 0:
        return f"{best}, which does not lead; {100 * nearest['required_lead']:.1f} points are required"
    return f"{best}, which leads by {_describe_lead(nearest)} are required"


def _why_not_first(trials: Sequence[Trial]) -> str:
    first, name = trials[0], _name_apart(trials)[0]
    if first["lead"] < first["required_lead"]:
        return f"{name} has the best accuracy, but leads by {_describe_lead(first)} are required of it"
    return f"{name} has the best accuracy, but its lead of {_describe_lead(first)} required, is less clear"


def _describe_lead(trial: Trial) -> str:
    lead, error, required = (100 * trial[name] for name in ("lead", "lead_error", "required_lead"))
    return f"{lead:.1f} ± {error:.1f} points, and {required:.1f}"


def describe_choice(trials: Sequence[Trial], reason: str) -> str:
    """The scorer that a fit chose, and why, in one line. The router's accuracy is in the proof alone."""
    if not trials:
        return f"scorer: closed form, because {reason}" if reason else ""
    chosen = next(trial for trial in trials if trial["chosen"])
    words = f"scorer: {_name_in_full(chosen['scorer'])}, chosen on held-out prompts"
    closed = next((trial for trial in trials if trial["scorer"].startswith("Blend")), chosen)
    if closed is chosen:
        return words
    words += f": {_subtract(chosen, closed, 'accuracy')} points against the closed form, as a mean over experts"
    if groups := chosen.get("hard_groups"):
        unseen = "sources" if groups == "sources" else "kinds"
        words += f", and {_subtract(chosen, closed, 'hard_accuracy')} on prompts of {unseen} that the fit did not see"
    lead, error, required = (closed.get(name, 0.0) for name in ("lead", "lead_error", "required_lead"))
    if 0 < lead < required:  # the lead that decides also counts shortened prompts
        figures = f"{100 * lead:.1f} ± {100 * error:.1f} points, where {100 * required:.1f} would be needed"
        words += f". The closed form's lead is not clear: {figures}"
    return words


def _name_in_full(scorer: str) -> str:
    if scorer.startswith("Logistic"):
        return "logistic regression" + ("" if "closed=0.0" in scorer else " with the closed form")
    return "closed form" if scorer.startswith("Blend") else in_few_words(scorer)


def _subtract(one: Trial, other: Trial, name: str) -> str:
    return f"{100 * ((one.get(name) or 0.0) - (other.get(name) or 0.0)):+.1f}"


# a change -----------------------------------------------------------------------------------------------------------

MAX_PROMPT_CHARACTERS = 60
KNOWN_TO_TEACHER = "a teacher knew the labels of these prompts, so the accuracies after it are too good"


def view_change(document: Mapping[str, Any]) -> Iterator[Block]:
    """Scorer, accuracy and confidence before and after, and the prompts that go elsewhere."""
    was, now = _list_figures(document["before"]), _list_figures(document["after"])
    now["scorer"] = "as before" if now["scorer"] == was["scorer"] else now["scorer"]
    rows = [(name, was[name], now[name]) for name in was]
    compared, moved = document["compared"], document["moved"]
    if (found := document["difference"]) is not None:
        value, low, high = (f"{100 * found[key]:+.1f}" for key in ("value", "low", "high"))
        rows.append((f"on the {compared:,} prompts compared", "", f"{value} points  {low} to {high}"))
    yield from (table(" ", "before", "after", rows=rows), "")
    if not compared:
        yield from (line(("no kept prompts to compare: what goes elsewhere is not known", FAINT)), "")
        return
    share = f"{moved:,} of {compared:,} kept prompts go elsewhere"
    yield line((share, ""), (", each routed by a fit that did not see it", FAINT))
    if moved:
        examples = [
            (
                one_line(one["prompt"], MAX_PROMPT_CHARACTERS),
                one["expert"],
                *(one[key] or NONE_FITS for key in ("before", "after")),
            )
            for one in document["examples"]
        ]
        yield table("prompt", "its expert", "before", "after", rows=examples)
    yield ""


def _list_figures(router: Mapping[str, Any]) -> dict[str, str]:
    accuracy, share = percent(None), router["accuracy"]
    if share is not None:
        accuracy = f"{percent(share['value'])}  {100 * share['low']:.1f} to {100 * share['high']:.1f}"
    return {
        "scorer": f"{in_few_words(router['scorer'])}; {in_few_words(router['selector'])}",
        "held-out accuracy": accuracy,
        "mean confidence": percent(router["mean_confidence"]),
    }


# the proof ----------------------------------------------------------------------------------------------------------

BAR_WIDTH = 12
WIDTH_WITH_BARS = 95  # of a table of accuracies with the longest names
OTHER_MISTAKES = "other mistakes"
COUNT_WIDTH = 22  # of a count such as "1,234 · 10 %", and of what separates the columns
SHOWN_PAIRS = 4
MAX_NAMED_EXPERTS = 5  # with more, `serve` reads a file
FIRST_PORT = 8001
INDENT = 14  # of the summary's second column


@dataclass(frozen=True)
class Proven:
    """A proof, or the reason why there is none."""

    proof: lib.evaluation.Proof | None
    reason: str = ""

    @property
    def is_ready(self) -> bool:
        return self.proof is not None and lib.proof.is_ready(self.proof)

    def to_dict(self) -> dict[str, Any] | None:
        if self.proof is not None:
            return self.proof.to_dict()
        return {"reason": self.reason} if self.reason else None


def prove_fit(router: ir3de.Router, out: Output, **how: Any) -> Proven:
    """Measure a router that was just fitted. The fit stands even if it cannot be measured."""
    with out.spinner("measuring on held-out prompts"):
        try:
            return Proven(lib.evaluation.prove(router=router, **how))
        except InputError as error:
            return Proven(None, str(error))


def advise_fit(router: ir3de.Router, proven: Proven | None) -> lib.evaluation.Advice | None:
    """What would help a router with few prompts; None for others."""
    return lib.evaluation.advise(router, None if proven is None else proven.proof)


def view_proof(proven: Proven, experts: Sequence[str], width: int) -> Iterator[Block]:
    """The proof in about twenty lines."""
    proof = proven.proof
    if proof is None:
        if proven.reason:
            yield heading("Proof", "on prompts that the router has not seen")
            yield line(("not measured: ", "yellow"), (proven.reason, ""))
        return
    yield from (heading("Proof", proof.notes[0].rstrip(".")), "", _accuracy_table(proof, width))
    if proof.confused:
        yield from ("", _confused_table(proof, experts, width))
    yield from ("", facts(_list_findings(proof, width), style="bold"))
    yield from (line((note, FAINT)) for note in proof.notes[1:] if note not in proof.verdict)


def _accuracy_table(proof: lib.evaluation.Proof, width: int = PIPE_WIDTH) -> Block:
    """The router and its rivals on the same prompts."""
    has_means = lib.proof.differs_by_expert(proof)
    has_bars = width >= WIDTH_WITH_BARS and not has_means  # the figures are the same
    right = ["accuracy", "95 %", *["mean over experts"] * has_means, "router leads by"]
    shown = table("on the same prompts", right[0], *[""] * has_bars, *right[1:], right=right)

    def add(name: str, one: lib.evaluation.Proof | lib.evaluation.Contender, style: str, lead: Any) -> None:
        found = one.accuracy
        bars = [bar(found.value, BAR_WIDTH, style)] * has_bars
        means = [percent(one.mean_accuracy.value)] * has_means
        interval = f"{100 * found.low:.1f} – {100 * found.high:.1f}"
        shown.add_row(name, percent(found.value), *bars, interval, *means, lead)

    add("this router", proof, "green", "")
    for one in proof.contenders:
        add(one.name, one, FAINT, _lead(one.difference))
    return shown


def _lead(found: lib.evaluation.Estimate) -> Block:
    colour = "green" if found.low > 0 else "red" if found.high < 0 else "yellow"
    interval = f"({100 * found.low:+.1f} to {100 * found.high:+.1f})"
    return line((f"{100 * found.value:+.1f} ", colour), (interval, FAINT))


def _confused_table(proof: lib.evaluation.Proof, experts: Sequence[str], width: int) -> Block:
    """The most frequent mistakes, each with the prompt that was most confidently routed wrong."""
    shown = table("prompts of", "went to", "held out", "for instance", right=("held out",))
    pairs = proof.confused[:SHOWN_PAIRS]
    truths, others = ([len(getattr(pair, side)) for pair in pairs] for side in ("truth", "said"))
    names_width = min(30, max(*truths, len(OTHER_MISTAKES))) + min(30, max(*others, len("went to")))
    room = max(20, width - names_width - COUNT_WIDTH)
    for pair in pairs:
        names = [line((name, colour_of(experts.index(name)))) for name in (pair.truth, pair.said)]
        count = f"{pair.count:,} · {100 * pair.share:.0f} %"
        shown.add_row(*names, count, one_line(pair.examples[0], room) if pair.examples else "")
    wrong = sum(map(sum, proof.confusion)) - sum(row[place] for place, row in enumerate(proof.confusion))
    rest = wrong - sum(pair.count for pair in pairs)
    if rest > 0:
        shown.add_row(line((OTHER_MISTAKES, FAINT)), "", f"{rest:,}")
    return shown


def _list_findings(proof: lib.evaluation.Proof, width: int) -> Iterator[tuple[str, Block]]:
    """The abstentions, the value of more prompts, and the verdict."""
    found, share = proof.abstained, "none of these prompts"
    if found.count:
        others = found.answered_accuracy
        right = "" if others is None else f"; of the others {percent(others.value)} are right"
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in found.reasons.items())
        share = f"{percent(found.share.value)} ({reasons}){right}"
    yield "Abstains on", line((share, ""))
    if found.examples:
        yield "", line((one_line(" · ".join(found.examples), max(20, width - INDENT)), FAINT))
    if (of_more := lib.proof.judge_curve(proof)) is not None:
        yield "More prompts", line((of_more, ""))
        points = ", ".join(f"{percent(point.accuracy.value)} with {point.prompts:,}" for point in proof.curve)
        yield "", line((points, FAINT))
    verdict = lib.proof.judge(proof)
    yield "Verdict", line((f"{verdict.words}.", {"yes": "green", "no": "red"}.get(verdict.kind, "yellow")))
    if verdict.advice:
        yield "", line((verdict.advice, ""))


def write_serve_command(folder: Path, experts: Sequence[str]) -> str:
    """The command that serves a router, with an endpoint for each expert, or a file to write them into."""
    place = shlex.quote(str(folder))
    if len(experts) > MAX_NAMED_EXPERTS:
        return f"ir3de config init --router {place} && ir3de serve"
    named = [f"{name}=http://127.0.0.1:{FIRST_PORT + at}/v1" for at, name in enumerate(experts)]
    return f"ir3de serve --router {place} " + " ".join(f"--expert {shlex.quote(one)}" for one in named)
