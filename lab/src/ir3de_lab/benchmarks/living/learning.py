"""What a router learns from a few labels of its traffic, beside what all labels of that traffic would give.

A router begins with eight prompts an expert. Of 4,000 requests, drawn from the other training prompts, 5 % get a label,
and one label in ten is wrong. It learns from these labels alone, and with a teacher for the other requests, if the
encoder `TEACHER` is installed. Two routers are fitted for comparison: from the same labels without errors, and from the
right labels of all requests, which is what the figure is held against.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from tempfile import gettempdir
from typing import Any

from ir3de import Router
from ir3de.encoders import Encoder
from ir3de.errors import ArtifactError
from ir3de.traffic import learn
from ir3de_lab.benchmarks.defaults import Material
from ir3de_lab.benchmarks.living import Note
from ir3de_lab.benchmarks.living.labelled_streams import LabelledStream, measure_accuracy, write_journal
from ir3de_lab.benchmarks.living.streams import read_sets
from ir3de_lab.benchmarks.measurement import Figure

TEACHER = "minilm-l6"
SEEDS, QUICK_SEEDS = 5, 1
MOST_POINTS_BELOW = 4.0


def measure(data: Path, *, quick: bool, note: Note) -> list[Figure]:
    """Points below the router that was fitted on all labels, for each set."""
    figures, teacher = [], find_teacher(note)
    for name, material in read_sets(data, quick=quick).items():
        rows = []
        for seed in range(QUICK_SEEDS if quick else SEEDS):
            rows.append(learn_stream(material, seed, teacher))
            note(f"{name}, seed {seed}: " + ", ".join(f"{key} {value}" for key, value in rows[-1].items()))
        raw: dict[str, Any] = {"draws": rows}
        for learner in (one for one in ("learnt", f"learnt with {TEACHER}") if one in rows[0]):
            for reference, bar in (("all labels", MOST_POINTS_BELOW), ("the same labels, all right", None)):
                below = fmean(row[reference] - row[learner] for row in rows)
                figures.append(Figure(f"{name}: {learner}, points below {reference}", below, "points", bar, False, raw))
                raw = {}
            gained = fmean(row[learner] - row["before"] for row in rows)
            figures.append(Figure(f"{name}: {learner}, gained over the few prompts", gained, "points", None))
    return figures


def find_teacher(note: Note) -> Encoder | None:
    """The encoder, if it is installed."""
    try:
        return Encoder.load(TEACHER)
    except ArtifactError as error:
        note(f"without a teacher: {error}")
        return None


def learn_stream(material: Material, seed: int, teacher: Encoder | None = None) -> dict[str, Any]:
    """Accuracies on test prompts, in percent, and what learning reports."""
    stream = LabelledStream.draw(material, seed)
    router = Router.fit(stream.few)
    routers = {"before": router}
    with write_journal(stream.requests) as journal:
        found = learn(router, journal, prove=False)
        routers["learnt"] = found.candidate
        if teacher is not None:  # every text is encoded once, over all draws and runs
            answers = Path(gettempdir(), f"ir3de-living-{teacher.digest[:16]}.jsonl")
            taught = learn(router, journal, prove=False, teacher=teacher, answers=answers)
            routers[f"learnt with {TEACHER}"] = taught.candidate
    routers["the same labels, all right"] = Router.fit(stream.add([(one.text, one.expert) for one in stream.labelled]))
    routers["all labels"] = Router.fit(stream.add([(one.text, one.expert) for one in stream.requests]))
    accuracies = {name: round(measure_accuracy(one, material), 3) for name, one in routers.items()}
    return {**accuracies, "labels": found.labels, "implausible": found.implausible, "suspicious": len(found.suspicious)}
