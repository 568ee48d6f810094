"""What tuning tried, as a table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ir3de.cli.output import count_left_out, line, table

if TYPE_CHECKING:
    from rich.console import Group

_NAMES = {
    "PromptRidge": "prompt ridge",
    "TokenRidge": "token ridge",
    "Posterior": "posterior",
    "Blend": "blend",
    "Logistic": "logistic",
}
_USUAL = {"means": 2.0, "pairs": 1.0}  # weights of a logistic scorer that are named only where they differ
_PARTS = {"means": "mean embedding", "pairs": "pairs"}
_SHOWN = {"strength": "λ", "prior": "prior", "weight": "prior"}


def trials_table(trials: Sequence[Mapping[str, Any]], most: int | None = None) -> Group:
    """Each trial in few words, best first, the chosen one marked; with `most`, only the best and the chosen."""
    right = ("accuracy, %", "first 32", "log loss")
    shown = table("", "scorer", "selector", *right, right=right)
    kept = [trial for place, trial in enumerate(trials) if most is None or place < most or trial["chosen"]]
    names = _name_apart(kept)
    for trial, name in zip(kept, names, strict=True):
        mark, style = ("→", "bold green") if trial["chosen"] else ("", "")
        figures = (f"{100 * trial['accuracy']:.1f}", f"{100 * trial['short_accuracy']:.1f}", f"{trial['loss']:.3f}")
        words = (name, in_few_words(trial["selector"]))
        shown.add_row(line((mark, "green")), *words, *figures, style=style)
    return count_left_out(shown, len(trials) - len(kept))


def _name_apart(trials: Sequence[Mapping[str, Any]]) -> list[str]:
    """The scorers in few words, with the window where they differ in it; in full where two would look the same."""
    windows = {trial.get("window") for trial in trials}
    names = [in_few_words(trial["scorer"]) for trial in trials]
    if len(windows) > 1:
        names = [f"{name}, window {trial.get('window')}" for name, trial in zip(names, trials, strict=True)]
    alike = Counter((name, trial["selector"]) for name, trial in zip(names, trials, strict=True))
    return [
        trial["scorer"] if alike[name, trial["selector"]] > 1 else name
        for name, trial in zip(names, trials, strict=True)
    ]


def why_chosen(trials: Sequence[Mapping[str, Any]]) -> str:
    """Why tuning chose what it did, in one line; empty for trials of earlier versions, which do not say."""
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
    best = "no trial clearly beats the default; the nearest is"
    if round(100 * nearest["lead"], 1) <= 0:
        return f"{best} {words}, which does not lead; {100 * nearest['required_lead']:.1f} points are required"
    return f"{best} {words}, which leads by {_describe_lead(nearest)} are required"


def _why_not_first(trials: Sequence[Mapping[str, Any]]) -> str:
    """Why the trial of the best accuracy was not chosen."""
    first, name = trials[0], _name_apart(trials)[0]
    if first["lead"] < first["required_lead"]:
        return f"{name} has the best accuracy, but leads by {_describe_lead(first)} are required of it"
    return f"{name} has the best accuracy, but its lead of {_describe_lead(first)} required, is less clear"


def describe_choice(trials: Sequence[Mapping[str, Any]], reason: str) -> str:
    """What a fit chose by itself, and why, in one line. How accurate the router is stands in the proof alone."""
    if not trials:
        return f"scorer: closed form, because {reason}" if reason else ""
    chosen = next(trial for trial in trials if trial["chosen"])
    said = f"scorer: {_name_in_full(chosen['scorer'])}, chosen on held-out prompts"
    closed = next((trial for trial in trials if trial["scorer"].startswith("Blend")), chosen)
    if closed is chosen:
        return said
    said += f": {_subtract(chosen, closed, 'accuracy')} points against the closed form, as a mean over experts"
    if groups := chosen.get("hard_groups"):
        unseen = "sources" if groups == "sources" else "kinds"
        said += f", and {_subtract(chosen, closed, 'hard_accuracy')} on prompts of {unseen} that the fit did not see"
    lead, error, required = (closed.get(name, 0.0) for name in ("lead", "lead_error", "required_lead"))
    if 0 < lead < required:  # by what decides, which also counts shortened prompts
        figures = f"{100 * lead:.1f} ± {100 * error:.1f} points, where {100 * required:.1f} would be needed"
        said += f". The closed form's lead is not clear: {figures}"
    return said


def _name_in_full(scorer: str) -> str:
    if scorer.startswith("Logistic"):
        return "logistic regression" + ("" if "closed=0.0" in scorer else " with the closed form")
    return "closed form" if scorer.startswith("Blend") else in_few_words(scorer)


def _subtract(one: Mapping[str, Any], other: Mapping[str, Any], name: str) -> str:
    return f"{100 * ((one.get(name) or 0.0) - (other.get(name) or 0.0)):+.1f}"


def _describe_lead(trial: Mapping[str, Any]) -> str:
    lead, error, required = (100 * trial[name] for name in ("lead", "lead_error", "required_lead"))
    return f"{lead:.1f} ± {error:.1f} points, and {required:.1f}"


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
    if name not in _NAMES:
        return strategy
    usual = {"ridge": "1", "posterior": "0", "pairs": "0"}  # every blend has the ridge, which is the unit of the others
    weights = {part: _short(given.get(part, weight)) for part, weight in usual.items() if name == "Blend"}
    parts = [part if weight == "1" else f"{weight} {part}" for part, weight in weights.items() if weight != "0"]
    if name == "Logistic":
        weight = _short(given["closed"])
        parts = ["logistic", *([] if weight == "0" else ["closed form" if weight == "1" else f"{weight} closed form"])]
    words = " + ".join(parts) or _NAMES[name]
    figures = [f"{word} {_short(given[key])}" for key, word in _SHOWN.items() if key in given]
    if name == "Logistic":
        other = [key for key, usual in _USUAL.items() if float(given[key]) != usual]
        figures += [f"{_PARTS[key]} weighted {_short(given[key])}" for key in other]
    return ", ".join([words, *figures])


def _short(number: str) -> str:
    return f"{float(number):.3g}"
