"""How many labels a router needs: chosen by `choose_prompts`, and chosen at random.

A router begins with eight prompts an expert, and 4,000 requests follow. Batches of requests get their right labels, and
the router learns after each batch, until its accuracy on test prompts is 95 % of that of a router that was fitted on
the labels of all requests. The figure is the number of labels it takes if they are chosen, over that at random.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from ir3de import Router
from ir3de.traffic import JournalPrompt, TrafficRecord, choose_prompts, learn
from ir3de_lab.benchmarks.defaults import Material
from ir3de_lab.benchmarks.living import Note
from ir3de_lab.benchmarks.living.labelled_streams import (
    LabelledRequest,
    LabelledStream,
    measure_accuracy,
    write_journal,
)
from ir3de_lab.benchmarks.living.streams import read_sets
from ir3de_lab.benchmarks.measurement import Figure

SEEDS, QUICK_SEEDS = 5, 1
SHARE = 0.95  # of the accuracy with all labels
BATCH = 50  # labels between two times of learning
MOST_LABELS = 2_000
MOST_RATIO = 0.6
LABELLER = "label:laboratory"

Choose = Callable[[Router, Sequence[int]], list[int]]  # from the router now and the places left to the next places


def measure(data: Path, *, quick: bool, note: Note) -> list[Figure]:
    """Labels needed if they are chosen, over those at random, for each set."""
    figures = []
    for name, material in read_sets(data, quick=quick).items():
        rows = []
        for seed in range(QUICK_SEEDS if quick else SEEDS):
            rows.append(label_stream(material, seed))
            note(f"{name}, seed {seed}: " + ", ".join(f"{key} {value}" for key, value in rows[-1].items()))
        chosen, random = (fmean(row[key]["labels"] for row in rows) for key in ("chosen", "random"))
        raw: dict[str, Any] = {"draws": rows}
        figures += [
            Figure(f"{name}: labels chosen over labels at random", chosen / random, "×", MOST_RATIO, False, raw),
            Figure(f"{name}: labels needed, chosen", chosen, "labels", None, False),
            Figure(f"{name}: labels needed, at random", random, "labels", None, False),
        ]
    return figures


def label_stream(material: Material, seed: int) -> dict[str, Any]:
    """The labels needed by both ways, with the accuracy after each batch."""
    stream = LabelledStream.draw(material, seed)
    every = Router.fit(stream.add([(one.text, one.expert) for one in stream.requests]))
    target = SHARE * measure_accuracy(every, material)
    router = Router.fit(stream.few)
    order = np.random.default_rng(2_000 + seed).permutation(len(stream.requests)).tolist()
    prompts = [
        TrafficRecord(str(place), float(place), prompt=JournalPrompt.from_text([one.text]))
        for place, one in enumerate(stream.requests)
    ]

    def choose(now: Router, left: Sequence[int]) -> list[int]:
        return [int(one.request) for one in choose_prompts(now, [prompts[place] for place in left], BATCH)]

    def draw(now: Router, left: Sequence[int]) -> list[int]:
        remaining = set(left)
        return [place for place in order if place in remaining][:BATCH]

    found = {name: _count_labels(router, stream, material, target, way) for name, way in
             (("chosen", choose), ("random", draw))}  # fmt: skip
    return {"target": round(target, 3), **found}


def _count_labels(
    router: Router, stream: LabelledStream, material: Material, target: float, choose: Choose
) -> dict[str, Any]:
    """Label batch after batch until the target is reached. Between two batches, the number is interpolated."""
    labelled: list[int] = []
    now, before = router, measure_accuracy(router, material)
    accuracies = [round(before, 3)]
    for _ in range(min(MOST_LABELS, len(stream.requests)) // BATCH):
        taken = set(labelled)
        batch = choose(now, [place for place in range(len(stream.requests)) if place not in taken])
        labelled += batch
        now = _learn(router, [stream.requests[place] for place in labelled])
        accuracy = measure_accuracy(now, material)
        accuracies.append(round(accuracy, 3))
        if accuracy >= target:
            share = (target - before) / max(accuracy - before, 1e-9)
            return {"labels": round(len(labelled) - len(batch) + max(0.0, share) * len(batch), 1), "right": accuracies}
        before = accuracy
    return {"labels": float(len(labelled)), "right": accuracies}


def _learn(router: Router, requests: Sequence[LabelledRequest]) -> Router:
    """The router with the right labels of these requests. The scorer stays: choosing it again takes most of a fit."""
    given = [replace(one, author=LABELLER, label=one.expert) for one in requests]
    with write_journal(given) as journal:
        return learn(router, journal, prove=False, scorer="keep", trust=[LABELLER]).candidate
