"""Proofs and reports made by hand: every part is there, and nothing has to be fitted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from ir3de.evaluation.accuracy import ReliabilityBin
from ir3de.evaluation.frontier import CostQuality, Frontier, FrontierPoint
from ir3de.evaluation.intervals import Estimate, estimate_share
from ir3de.evaluation.proof import MAJORITY, TFIDF, Abstentions, ConfusedPair, Contender, CurvePoint, Proof
from ir3de.evaluation.report import SpokenWord, Subject

NAMES = ("coding", "history", "law", "mathematics", "medicine")
PROMPTS = ("Is this contract void?", "Sort a list of dates in Python.", "Who was Hammurabi?")
EACH = 40  # prompts of an expert


def make_confusion(experts: int, seed: int = 0) -> np.ndarray:
    """Mostly right; neighbours are confused most."""
    random = np.random.default_rng(seed)
    counts = np.zeros((experts, experts), np.int64)
    for place in range(experts):
        wrong = random.poisson(2.0, 2)
        for other, number in zip((place - 1, int(random.integers(experts))), wrong, strict=True):
            if other % experts != place:
                counts[place, other % experts] += number
        counts[place, place] = EACH - counts[place].sum()
    return counts


def make_proof(
    names: Sequence[str] = NAMES, prompts: Sequence[str] = PROMPTS, *, prices: bool = False, abstained: int = 3
) -> Proof:
    confusion = make_confusion(len(names))
    total, right = int(confusion.sum()), int(np.diagonal(confusion).sum())
    wrong = confusion - np.diag(np.diagonal(confusion))
    pairs = sorted(zip(*np.nonzero(wrong), strict=True), key=lambda pair: -wrong[pair])[:10]
    bins = [ReliabilityBin(n / 10, (n + 1) / 10, 5 * n, n / 10 + 0.05, n / 10, n / 45) for n in range(1, 10)]
    lead = Estimate(0.1, 0.05, 0.15)
    return Proof(
        "cross-validation",
        prompts=total,
        known=total,
        known_each=dict.fromkeys(names, EACH),
        experts=tuple(names),
        folds=5,
        of_folds=5,
        mix=dict.fromkeys(names, 1 / len(names)),
        accuracy=estimate_share(right, total),
        mean_accuracy=estimate_share(right, total),
        recall=dict.fromkeys(names, 0.9),
        contenders=(
            Contender(TFIDF, *[estimate_share(right - 10, total)] * 2, lead),
            Contender(MAJORITY, *[estimate_share(EACH, total)] * 2, lead),
        ),
        confused=tuple(
            ConfusedPair(names[one], names[other], int(wrong[one, other]), wrong[one, other] / EACH, tuple(prompts))
            for one, other in pairs
        ),
        confusion=tuple(map(tuple, confusion.tolist())),
        reliability=(ReliabilityBin(0.0, 0.1, 0, None, None, 0.0), *bins),
        calibration_error=0.05,
        abstained=Abstentions(
            abstained,
            estimate_share(abstained, total),
            {"out of domain": abstained} if abstained else {},
            {name: abstained * (name == names[0]) for name in names},
            estimate_share(right - 1, total - abstained),
            tuple(prompts) if abstained else (),
        ),
        curve=tuple(CurvePoint(40 * 2**n, estimate_share(right - 20 + 10 * n, total)) for n in range(3)),
        doubling=Estimate(0.01, -0.01, 0.03),
        verdict=("The router names the right expert 9 times in 10.", "It is better than the others."),
        notes=("All prompts were held out in turn.",),
        frontier=make_frontier(names) if prices else None,
    )


def make_frontier(names: Sequence[str]) -> Frontier:
    costs = {name: 1.0 + place for place, name in enumerate(names)}
    shares = dict.fromkeys(names, 1 / len(names))
    points = tuple(FrontierPoint(3 - n / 4, 0.9 - n**2 / 200, n / 10, shares, 0.2) for n in range(8))
    singles = {name: CostQuality(cost, 1 / len(names)) for name, cost in costs.items()}
    mix = (CostQuality(1.0, 0.15), CostQuality(2.0, 0.2))
    uniform, oracle = CostQuality(3.0, 0.2), (CostQuality(2.0, 1.0), CostQuality(1.0, 0.6))
    return Frontier(tuple(names), 200, "price", costs, 0.2, points, singles, uniform, mix, oracle)


def make_subject(proof: Proof | None = None, words: Sequence[str] = ("void", "contract")) -> Subject:
    proof = proof or make_proof()
    spoken = tuple(SpokenWord(word, 2.0 - place) for place, word in enumerate(words))
    return Subject(
        proof,
        name="router",
        digest="a1b2c3d4" * 8,
        made=datetime(2026, 3, 1, 9, 5, tzinfo=UTC),
        version="1.2.3",
        scorer="Blend, Average",
        embedding="bundled",
        source="train.csv",
        command="ir3de report router train.csv --label team -o report.html",
        next_commands=[("Serve it", "ir3de serve --router router")],
        notices=("The router was fitted on other prompts.",),
        words=dict.fromkeys(proof.experts, spoken),
    )
