"""IR3DE and its rivals on the same prompts: accuracy, the time to fit, and the time a prompt takes.

The rivals' C, learning rates and lengths of training were compared with a few others on held-out training prompts, at
30 and 2,000 prompts a domain, of the suites reasoning and clm (those of the encoders on reasoning alone): what is set
here is within half a point of the best. Test prompts took no part in that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import mean, median, stdev
from typing import Any

import numpy as np

from ir3de import Router
from ir3de.errors import MissingExtraError
from ir3de.scorers import PromptRidge, Scorer
from ir3de_lab.benchmarks.measurement import circumstances, package_version
from ir3de_lab.benchmarks.protocol import DRAWS, SHOTS, Prompts, few_shot, score
from ir3de_lab.rivals import Baseline, Fitted
from ir3de_lab.rivals.encoder import Encoder, Pooling
from ir3de_lab.rivals.encoder_heads import LinearProbe, NearestNeighbours
from ir3de_lab.rivals.fine_tuned import FineTuned
from ir3de_lab.rivals.hashed_ngrams import HashedNgrams
from ir3de_lab.rivals.interface import Indices, kept, labelled
from ir3de_lab.rivals.naive_bayes import NaiveBayes
from ir3de_lab.rivals.tfidf_logistic import TfidfLogistic

# how many, of which vectors, and whether to try them on few prompts
NEAREST: tuple[tuple[int, Pooling, bool], ...] = ((1, "cls", False), (1, "mean", False), (10, "mean", True))
FEW_SPLITS = ("test", "ood")

_TIMED = 1_000  # prompts routed in one call when the time is taken
_ROUNDS = 3


@dataclass(frozen=True)
class Rival:
    """A router to compare, the encoder it stands on, and whether to try it on few prompts too."""

    name: str
    family: str
    baseline: Baseline
    few: bool = True
    encoder: Encoder | None = None

    def timed(self) -> AbstractContextManager[None]:
        """To be entered while its time is taken."""
        return nullcontext() if self.encoder is None else self.encoder.timed()


@dataclass(frozen=True)
class RivalRow:
    """One router on one suite: means over the domains in percent, and over the draws where `shots` are drawn."""

    suite: str
    router: str
    shots: int | None
    test: float
    first_32: float | None
    ood: float | None
    deviations: dict[str, float]  # over the draws
    by_domain: dict[str, dict[str, float]]
    fit_seconds: float
    route_us: float | None
    circumstances: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Itself:
    """IR3DE as it is by default, tuned, or with a scorer of its own."""

    scorer: Scorer | None = None
    tune: bool = False

    def fit(self, domains: Mapping[str, Sequence[str]]) -> Fitted:
        data = labelled(domains)
        router = Router.fit(domains, scorer=self.scorer, tune=self.tune)
        places = {name: place for place, name in enumerate(data.names)}

        def choose(texts: list[str]) -> Indices:
            return np.array([places[decision.best] for decision in router.route_batch(texts)])

        return Fitted(data.names, choose, *kept_by(router))


def kept_by(router: Router) -> tuple[int, int]:
    """The numbers and bytes that a router keeps in order to route."""
    table = router.compiled.table
    numbers = [table.scores, table.vote, table.entropy, table.rank, table.familiarity, table.pairs]
    held = [array for array in numbers if array is not None]
    return kept(held, besides=len(router.tokenizer.definition))


def rivals(encoder: Encoder | None) -> Iterator[Rival]:
    """Every router compared; those on an encoder only if there is one."""
    yield Rival("ir3de", "ir3de", Itself())
    yield Rival("ir3de, tuned", "ir3de", Itself(tune=True))
    yield Rival("ir3de, prompt ridge alone", "ir3de", Itself(PromptRidge()))
    yield Rival("naive Bayes, +1", "words", NaiveBayes(1.0))
    yield Rival("naive Bayes, +0.1", "words", NaiveBayes(0.1))
    yield Rival("TF-IDF, logistic regression", "words", TfidfLogistic())
    yield Rival("hashed n-grams (fastText)", "words", HashedNgrams())
    if encoder is None:
        return
    for k, pooling, few in NEAREST:
        nearest = NearestNeighbours(encoder, k, pooling)
        yield Rival(f"encoder, {k} nearest ({pooling})", "encoders", nearest, few, encoder)
    yield Rival("encoder, linear probe", "encoders", LinearProbe(encoder), encoder=encoder)
    yield Rival("encoder, fine-tuned", "encoders", FineTuned(encoder), encoder=encoder)


def compare(prompts: Prompts, rival: Rival) -> Iterator[RivalRow | MissingExtraError]:
    """The router's row, and one more on few prompts where the suite has other sources to test on.

    If its packages are missing, the error that names them.
    """
    enough = prompts.ood and all(len(texts) >= SHOTS for texts in prompts.train.values())
    try:
        yield measure(prompts, rival)
        if rival.few and enough:
            yield measure_few_shot(prompts, rival)
    except MissingExtraError as error:
        yield error


def measure(prompts: Prompts, rival: Rival) -> RivalRow:
    """Fit on all training prompts and route the others."""
    with rival.timed():
        fitted, seconds = _fitted(rival, prompts.train)
        microseconds = _microseconds(fitted, prompts)
    scores = score(fitted.route, prompts)
    test = scores.mean("test")
    assert test is not None  # a suite has test prompts
    return RivalRow(
        prompts.suite,
        rival.name,
        None,
        test,
        scores.mean("first_32"),
        scores.mean("ood"),
        {},
        _rounded(scores.recalls),
        round(seconds, 3),
        round(microseconds, 1),
        surroundings(rival.encoder),
    )


def measure_few_shot(prompts: Prompts, rival: Rival, shots: int = SHOTS, draws: int = DRAWS) -> RivalRow:
    """Fit on a few prompts of each domain, many times; the seconds are a fit's mean."""
    drawn, seconds = [], []
    for train in few_shot(prompts.train, shots, draws):
        with rival.timed():
            fitted, took = _fitted(rival, train)
        drawn.append(score(fitted.route, prompts, FEW_SPLITS))
        seconds.append(took)
    means = {split: [value for scores in drawn if (value := scores.mean(split)) is not None] for split in FEW_SPLITS}
    by_domain = {
        split: {domain: mean(scores.recalls[split][domain] for scores in drawn) for domain in found}
        for split, found in drawn[0].recalls.items()
    }
    return RivalRow(
        prompts.suite,
        rival.name,
        shots,
        mean(means["test"]),
        None,
        mean(means["ood"]) if means["ood"] else None,
        {split: stdev(values) for split, values in means.items() if len(values) > 1},
        _rounded(by_domain),
        round(mean(seconds), 3),
        None,
        surroundings(rival.encoder),
    )


def merged(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Suite by suite the old rows, replaced where a new one has the same router and shots, and then the others."""
    rows = {(row["suite"], row["shots"] or 0, row["router"]): row for row in (*old, *new)}
    return [rows[key] for key in sorted(rows, key=lambda key: key[:2])]


def surroundings(encoder: Encoder | None = None) -> dict[str, Any]:
    """What a row was measured on, the accelerator and the encoder included if there is one."""
    from importlib.util import find_spec

    accelerator = None
    if find_spec("torch"):
        import torch

        accelerator = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    versions = {name: package_version(name) for name in ("scikit-learn", "transformers")}
    return {**circumstances(), **versions, "accelerator": accelerator, "encoder": encoder and encoder.name}


def _fitted(rival: Rival, train: Mapping[str, Sequence[str]]) -> tuple[Fitted, float]:
    begin = time.perf_counter()
    fitted = rival.baseline.fit(train)
    return fitted, time.perf_counter() - begin


def _microseconds(fitted: Fitted, prompts: Prompts) -> float:
    """A prompt's share of one call with many, of all domains alike."""
    share = -(-_TIMED // len(prompts.test))
    texts = [text for given in prompts.test.values() for text in given[:share]]
    fitted.route(texts)  # warm up
    seconds = []
    for _ in range(_ROUNDS):
        begin = time.perf_counter()
        fitted.route(texts)
        seconds.append(time.perf_counter() - begin)
    return 1e6 * median(seconds) / len(texts)


def _rounded(by_domain: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    return {split: {name: round(recall, 3) for name, recall in found.items()} for split, found in by_domain.items()}
