"""A source whose labels are all wrong: what it costs before it is found, and what is left of it afterwards.

To the labels of `learning` comes a client that labels 500 requests, each with a wrong expert drawn by chance. The
router learns after each of several numbers of these labels. The client is found when its source is left out; the cost
before is the largest loss of accuracy, against the router without that client, of any number before. Then all 500 are
learnt by force (`trust`), which the cap alone bounds, and forgotten: the bits must be those of the router that never
saw them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ir3de import Router
from ir3de.traffic import SourcePattern, forget, learn
from ir3de_lab.benchmarks.defaults import Material
from ir3de_lab.benchmarks.living import Note
from ir3de_lab.benchmarks.living.labelled_streams import (
    LabelledRequest,
    LabelledStream,
    draw_other,
    measure_accuracy,
    write_journal,
)
from ir3de_lab.benchmarks.living.streams import read_sets
from ir3de_lab.benchmarks.measurement import Figure

SEEDS, QUICK_SEEDS = 5, 1
NUMBERS = (2, 5, 10, 20, 500)  # of wrong labels, after which the router learns
POISONER = "mallory"
MOST_LOST = 2.0  # points


def measure(data: Path, *, quick: bool, note: Note) -> list[Figure]:
    """The largest loss of any draw, and whether the bits are the same, for each set."""
    figures = []
    for name, material in read_sets(data, quick=quick).items():
        rows = []
        for seed in range(QUICK_SEEDS if quick else SEEDS):
            rows.append(poison_stream(material, seed))
            note(f"{name}, seed {seed}: " + ", ".join(f"{key} {value}" for key, value in rows[-1].items()))
        raw: dict[str, Any] = {"draws": rows}
        lost, forced = (max(row[key] for row in rows) for key in ("lost before it is found", "lost if it is trusted"))
        same = 100.0 * float(np.mean([row["the same bits"] for row in rows]))
        figures += [
            Figure(f"{name}: lost before it is found, at most", lost, "points", MOST_LOST, False, raw),
            Figure(f"{name}: after forget, the same bits", same, "% of draws", 100.0),
            Figure(f"{name}: lost if it is trusted, at most", forced, "points", None, False),
        ]
    return figures


def poison_stream(material: Material, seed: int) -> dict[str, Any]:
    """What the source costs at each number of its labels, in points of accuracy on test prompts."""
    stream, random = LabelledStream.draw(material, seed), np.random.default_rng(1_000 + seed)
    names = list(stream.few)
    free = [one for one in stream.requests if one.label is None][: NUMBERS[-1]]
    wrong = [LabelledRequest(one.text, one.expert, POISONER, draw_other(names, one.expert, random)) for one in free]
    router = Router.fit(stream.few)
    with write_journal(stream.requests) as journal:
        honest = learn(router, journal, prove=False).candidate
    plain, lost, found_after = measure_accuracy(honest, material), {}, None
    for number in NUMBERS:
        with write_journal([*stream.requests, *wrong[:number]]) as journal:
            learnt = learn(router, journal, prove=False)
        if any(one.source.author == POISONER for one in learnt.suspicious):
            found_after = number
            break
        lost[number] = round(plain - measure_accuracy(learnt.candidate, material), 3)
    with write_journal([*stream.requests, *wrong]) as journal:
        trusted = learn(router, journal, trust=[POISONER], prove=False).candidate
    left = forget(trusted, SourcePattern.parse(f"author:{POISONER}")).candidate
    return {
        "lost before it is found": max(0.0, *lost.values()) if lost else 0.0,
        "lost": lost,
        "found after": found_after,
        "lost if it is trusted": round(plain - measure_accuracy(trusted, material), 3),
        "the same bits": _have_same_bits([left, honest]),
    }


def _have_same_bits(routers: Sequence[Router]) -> bool:
    """Whether two routers are saved as the same files; the ledger has times."""
    with TemporaryDirectory() as place:
        folders = [one.save(Path(place) / str(number)) for number, one in enumerate(routers)]
        saved = [
            {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "ledger.jsonl"}
            for folder in folders
        ]
    return saved[0] == saved[1]
