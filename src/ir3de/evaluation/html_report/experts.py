"""The parts of a report about experts: who is taken for whom, a table of all of them, and their words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ir3de.evaluation.html_report.figures import count, list_prompts, name_expert, percent
from ir3de.evaluation.html_report.matrix import choose_block, draw_matrix
from ir3de.evaluation.html_report.plot import draw_legend
from ir3de.evaluation.html_report.words import SpokenWord
from ir3de.evaluation.proof import ConfusedPair, Proof
from ir3de.routing.colours import colour_of
from ir3de.routing.drawing.markup import Child, Markup, join, make

MIN_STRENGTH = 0.25  # of the faintest word


def draw_confusion(proof: Proof) -> Child:
    """The matrix, or its most confused block."""
    experts, counts = proof.experts, np.array(proof.confusion, np.int64)
    places = choose_block(counts)
    if not places:
        return make("p", "No prompt went to another expert than its own.", class_="quiet")
    picture = draw_matrix(experts, counts, places)
    region = make("div", picture, class_="scroll", tabindex="0", role="region", aria_label="Confusion matrix")
    note = None
    if len(places) < len(experts):
        note = (
            f"The {len(places)} experts of {len(experts)} that are confused most, beside those they are confused with."
        )
    legend = draw_legend(("right", "went to their own expert"), ("wrong", "went to another one"))
    said = make("p", "Rows are where prompts belong, columns where they went. ", note, class_="quiet")
    return make("figure", region, legend, said)


def list_confused(pairs: Sequence[ConfusedPair], experts: Sequence[str], *, examples: bool) -> Child:
    """The most confused pairs, with prompts of each."""
    place = {name: index for index, name in enumerate(experts)}
    items = []
    for pair in pairs:
        told = f"{count(pair.count, 'prompt')}, {percent(pair.share)} of {pair.truth}"
        what = make(
            "div",
            name_expert(pair.truth, place[pair.truth]),
            make("span", "went to", class_="quiet"),
            name_expert(pair.said, place[pair.said]),
            make("span", told, class_="count"),
            class_="what",
        )
        items.append(make("li", what, list_prompts(pair.examples) if examples else None))
    return make("ol", items, class_="confused") if items else None


def tabulate_experts(proof: Proof) -> Markup:
    """One row per expert; its columns can be sorted."""
    counts = np.array(proof.confusion, np.int64)
    sizes = counts.sum(axis=1)
    stands_for = np.array(list(proof.mix.values())) / np.maximum(sizes, 1)  # of all prompts, by one that was held out
    arrived = stands_for @ counts
    wrong = counts - np.diag(np.diagonal(counts))
    numbers, taken_for = ("held out", "recall", "precision", "abstained"), "most often taken for"
    head = make(
        "tr",
        make("th", "expert", scope="col"),
        [make("th", name, scope="col", data_number=True) for name in numbers],
        make("th", taken_for, scope="col", class_="text"),
    )
    rows = []
    for place, name in enumerate(proof.experts):
        right, other, abstained = int(counts[place, place]), int(wrong[place].argmax()), proof.abstained.experts[name]
        taken = f"{proof.experts[other]} ({wrong[place, other]:,})" if wrong[place].any() else "–"
        cells = [
            _cell(sizes[place], f"{sizes[place]:,}"),
            _share(right, int(sizes[place]), place),
            _share(right * stands_for[place], arrived[place], place),
            _cell(abstained, f"{abstained:,}" if abstained else "–"),
            make("td", taken, class_="text"),
        ]
        rows.append(make("tr", make("th", name_expert(name, place), scope="row", data_value=name), cells))
    caption = make("caption", "Each expert’s held-out prompts, recall, precision and abstentions", class_="hidden")
    table = make("table", caption, make("thead", head), make("tbody", rows), class_="table sortable")
    return make("div", table, class_="scroll", tabindex="0", role="region", aria_label="Experts")


def _share(part: float, whole: float, place: int) -> Markup:
    share = part / whole if whole else None
    bar = make("i", style=f"width:{100 * (share or 0):.1f}%;--colour:{colour_of(place)}")
    return _cell(
        -1.0 if share is None else share, join([percent(share), make("span", bar, class_="share", aria_hidden="true")])
    )


def _cell(value: float, shown: Child) -> Markup:
    return make("td", shown, data_value=f"{value:.6g}")


def draw_vocabulary(words: Mapping[str, Sequence[SpokenWord]], experts: Sequence[str]) -> Child:
    """The words that speak for each expert, the strongest first."""
    groups = []
    for place, name in enumerate(experts):
        found = words.get(name) or ()
        if not found:
            continue
        most = found[0].contribution
        spoken = [
            make("span", word.text, style=f"--strength:{max(MIN_STRENGTH, word.contribution / most):.2f}", dir="auto")
            for word in found
        ]
        told = make("dd", spoken, style=f"--colour:{colour_of(place)}")
        groups.append(make("div", make("dt", name_expert(name, place)), told))
    return make("dl", groups, class_="vocabulary") if groups else None
