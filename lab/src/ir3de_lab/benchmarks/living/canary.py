"""How soon a candidate is stopped or promoted, and how often wrongly.

How often two routers disagree, and how often one of them is right then, is measured on test prompts with real pairs:
a router of few prompts an expert beside one of all, and two routers of equally many. Requests are drawn from these
shares. Only the difference is set: the requests that one router wins are shifted to the other until it has exactly
the points that the row names. The test itself is that of the library, looked at after every request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ir3de import Router
from ir3de.traffic import SequentialTest
from ir3de_lab.benchmarks.defaults import Material, draw_few
from ir3de_lab.benchmarks.living import Note
from ir3de_lab.benchmarks.living.streams import list_labelled, read_sets
from ir3de_lab.benchmarks.measurement import Figure

RUNS, QUICK_RUNS = 1_000, 50
FEW = {"worse": 30, "equal": 60, "better": 60}  # prompts an expert of the weaker router
BARS = {"worse": 95.0, "equal": 5.0, "better": 90.0}
POINTS = {"worse": -5.0, "equal": 0.0, "better": 3.0}
REQUESTS = {"worse": 1_000, "equal": 5_000, "better": 5_000}


@dataclass(frozen=True)
class Pair:
    """What two routers do on the same prompts, as shares of them."""

    disagree: float
    one_right: float  # they disagree, and one of them is right


@dataclass(frozen=True)
class Conditions:
    """What a row assumes. With `labels` the right expert is known (shadow mode), else the score of the answer."""

    share: float = 0.5  # of the requests, to the candidate
    scored: float = 1.0  # of the requests
    wrong_scores: float = 0.0  # of the scores, turned around
    labels: bool = False

    def __str__(self) -> str:
        if self.labels:
            return f"{100 * self.scored:.0f} % have a label"
        wrong = f", {100 * self.wrong_scores:.0f} % of them wrong" if self.wrong_scores else ""
        return f"share {self.share:g}, {100 * self.scored:.0f} % have a score{wrong}"


HELD_TO_BARS = Conditions()
OTHERS = (
    Conditions(wrong_scores=0.1),
    Conditions(scored=0.2),
    Conditions(share=0.1),
    Conditions(labels=True),
    Conditions(labels=True, scored=0.2),
)


def measure(data: Path, *, quick: bool, note: Note) -> list[Figure]:
    """Every kind of candidate under every condition, on both sets."""
    figures: list[Figure] = []
    for name, material in read_sets(data, quick=quick).items():
        for kind, pair in _measure_pairs(material):
            note(f"{name}, {kind}: disagree on {100 * pair.disagree:.1f} % of the prompts")
            runs = QUICK_RUNS if quick else RUNS
            figures += [_simulate(name, kind, pair, one, runs) for one in (HELD_TO_BARS, *OTHERS)]
    return figures


def _measure_pairs(material: Material) -> Iterator[tuple[str, Pair]]:
    texts, experts = list_labelled(material.splits["test"])
    right = np.array(experts)

    def decide(few: int | None, seed: int = 0) -> Any:
        router = Router.fit(material.train if few is None else draw_few(material.train, few, seed))
        return np.array([found.best for found in router.route_batch(texts)])

    def compare(one: Any, other: Any) -> Pair:
        differ = one != other
        return Pair(float(differ.mean()), float((differ & ((one == right) | (other == right))).mean()))

    full, equal = decide(None), decide(FEW["equal"])
    yield "worse", compare(full, decide(FEW["worse"]))
    yield "equal", compare(equal, decide(FEW["equal"], seed=1))
    yield "better", compare(full, equal)


def _simulate(name: str, kind: str, pair: Pair, conditions: Conditions, runs: int) -> Figure:
    points, requests = POINTS[kind], REQUESTS[kind]
    wanted = "better" if kind == "better" else "worse"
    found = [_find_end(pair, points / 100, conditions, requests, wanted, seed) for seed in range(runs)]
    ended = [end for end in found if end is not None]
    verb = "promoted" if wanted == "better" else "stopped"
    what = f"{name}, {f'{points:+g} points' if points else 'equal'}, {verb} within {requests:,}; {conditions}"
    raw = {
        "pair": asdict(pair),
        "conditions": asdict(conditions),
        "points": points,
        "requests": requests,
        "runs": runs,
        "median_requests": float(np.median(ended)) if ended else None,
    }
    has_bar = kind == "equal" or conditions == HELD_TO_BARS
    bar = BARS[kind] if has_bar else None
    return Figure(what, 100 * len(ended) / runs, "%", bar, higher_is_better=kind != "equal", raw=raw)


def _find_end(
    pair: Pair, difference: float, conditions: Conditions, requests: int, wanted: str, seed: int
) -> int | None:
    """After how many requests the verdict was reached; None if it was not."""
    random, test = np.random.default_rng(seed), SequentialTest()
    one_right = max(pair.one_right, abs(difference))  # routers that are nearer than that cannot differ so much
    candidate_wins = (one_right + difference) / 2
    points, served, seen, turned = random.random((4, requests))
    disagree = points < max(pair.disagree, one_right)
    for place in np.flatnonzero(disagree & (seen < conditions.scored)).tolist():
        by_candidate = bool(served[place] < conditions.share)
        candidate = bool(points[place] < candidate_wins)
        live = bool(candidate_wins <= points[place] < one_right)
        if conditions.labels:
            test.observe_label(candidate_right=candidate, live_right=live)
        else:
            score = (candidate if by_candidate else live) != (turned[place] < conditions.wrong_scores)
            test.observe_score(float(score), candidate=by_candidate, share=conditions.share)
        if test.verdict == wanted:
            return place + 1
    return None
