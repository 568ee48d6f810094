"""What a router learns from a few labels of its traffic, beside what all labels of that traffic would give.

A router begins with eight prompts an expert. Of 4,000 requests, drawn from the other training prompts, 5 % get a label,
and one label in ten is wrong. Two routers are fitted for comparison: from the same labels without errors, and from the
right labels of all requests, which is what the figure is held against.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from ir3de import Router
from ir3de.traffic import learn
from ir3de_lab.benchmarks.defaults import Material
from ir3de_lab.benchmarks.living import Note
from ir3de_lab.benchmarks.living.labelled_streams import LabelledStream, measure_accuracy, write_journal
from ir3de_lab.benchmarks.living.streams import read_sets
from ir3de_lab.benchmarks.measurement import Figure

SEEDS, QUICK_SEEDS = 5, 1
MOST_POINTS_BELOW = 4.0


def measure(data: Path, *, quick: bool, note: Note) -> list[Figure]:
    """Points below the router that was fitted on all labels, for each set."""
    figures = []
    for name, material in read_sets(data, quick=quick).items():
        rows = []
        for seed in range(QUICK_SEEDS if quick else SEEDS):
            rows.append(learn_stream(material, seed))
            note(f"{name}, seed {seed}: " + ", ".join(f"{key} {value}" for key, value in rows[-1].items()))
        for reference, bar in (("all labels", MOST_POINTS_BELOW), ("the same labels, all right", None)):
            below = fmean(row[reference] - row["learnt"] for row in rows)
            raw: dict[str, Any] = {"draws": rows}
            figures.append(Figure(f"{name}: points below {reference}", below, "points", bar, False, raw))
        gained = fmean(row["learnt"] - row["before"] for row in rows)
        figures.append(Figure(f"{name}: gained over the few prompts", gained, "points", None))
    return figures


def learn_stream(material: Material, seed: int) -> dict[str, Any]:
    """Accuracies on test prompts, in percent, and what learning reports."""
    stream = LabelledStream.draw(material, seed)
    router = Router.fit(stream.few)
    with write_journal(stream.requests) as journal:
        found = learn(router, journal)
    every = [(one.text, one.expert) for one in stream.requests]
    some = [(one.text, one.expert) for one in stream.labelled]
    routers = {
        "before": router,
        "learnt": found.candidate,
        "the same labels, all right": Router.fit(stream.add(some)),
        "all labels": Router.fit(stream.add(every)),
    }
    proof = found.proof.to_dict()
    accuracies = {name: round(measure_accuracy(one, material), 3) for name, one in routers.items()}
    return {**accuracies, "labels": found.labels, "suspicious": len(found.suspicious), "proof": proof}
