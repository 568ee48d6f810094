"""What `Router.fit` reaches with its defaults: domains, fine-grained intents, and few prompts.

Suites of domains are laid out as in `accuracy`; a folder of intents as `{name}/{train,test}.jsonl`, whose rows have a
`text` and a `label`. Domains are scored by the mean over them, intents by the share of prompts, in percent.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ir3de import Average, Router
from ir3de.errors import InputError
from ir3de.evaluation import evaluate
from ir3de.scorers import Blend
from ir3de_lab.benchmarks.accuracy import suites

FIRST_TOKENS = 32  # of a shortened prompt
FEW = {"suite": 30, "intents": 8}  # prompts of each expert, drawn at random
_OPENERS: Mapping[str, Callable[..., IO[str]]] = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}

Texts = dict[str, list[str]]


@dataclass(frozen=True)
class Material:
    """Training and test prompts of each expert. `by_expert` scores by the mean over the experts."""

    name: str
    train: Texts
    splits: dict[str, Texts]
    by_expert: bool

    @property
    def few(self) -> int:
        """How many prompts of each expert are drawn where few are measured."""
        return FEW["suite" if self.by_expert else "intents"]


@dataclass(frozen=True)
class Row:
    """The accuracies of one fit, in percent, by split; and what the fit chose."""

    data: str
    prompts: int | None  # of each expert; None for all
    router: str
    accuracy: dict[str, float]
    chosen: str
    fit_s: float
    calibration_error: float | None = None  # on the test prompts, in points; None for a mean over several fits

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def read_material(folder: Path) -> Iterator[Material]:
    """Every suite and every set of intents in a folder."""
    intents = sorted(path for path in folder.glob("intents/*") if path.is_dir())
    for path in intents:
        train, test = (_read_labelled(path, split) for split in ("train", "test"))
        yield Material(path.name, train, {"test": test}, by_expert=False)
    for suite in [one for one in suites(folder) if one.name != "intents"] if _has_suites(folder) else []:
        splits = {split: {name: suite.texts(name, split) for name in suite.folders} for split in ("test", "ood")}
        kept = {split: texts for split, texts in splits.items() if all(texts.values())}
        yield Material(suite.name, {name: suite.texts(name, "train") for name in suite.folders}, kept, by_expert=True)


def _has_suites(folder: Path) -> bool:
    others = [path for path in folder.iterdir() if path.is_dir() and path.name != "intents"]
    return any(any(path.glob("*/train.jsonl*")) for path in others)


def _read_labelled(folder: Path, split: str) -> Texts:
    found = sorted(folder.glob(f"{split}.jsonl*"))
    if not found:
        raise InputError(f"no {split}.jsonl in {folder}: expected rows with a text and a label")
    texts: Texts = {}
    with _OPENERS.get(found[0].suffix, open)(found[0], "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            texts.setdefault(row["label"], []).append(row["text"])
    return dict(sorted(texts.items()))


def measure(material: Material, *, draws: int = 10) -> Iterator[Row]:
    """The default fit beside the closed form on all prompts, then on a few prompts of each expert, several times."""
    yield fit_and_score(material, material.train, None, "default")
    yield fit_and_score(material, material.train, None, "closed form", scorer=Blend())
    few = material.few
    rows: dict[str, list[Row]] = {"default": [], "closed form": []}
    for seed in range(draws):
        drawn = draw_few(material.train, few, seed)
        rows["default"].append(fit_and_score(material, drawn, few, "default"))
        rows["closed form"].append(fit_and_score(material, drawn, few, "closed form", scorer=Blend()))
    for router, own in rows.items():
        if own:
            means = {split: float(np.mean([row.accuracy[split] for row in own])) for split in own[0].accuracy}
            chosen = ", ".join(dict.fromkeys(row.chosen for row in own))
            yield Row(material.name, few, router, means, chosen, float(np.mean([row.fit_s for row in own])))


def draw_few(train: Mapping[str, Sequence[str]], most: int, seed: int) -> Texts:
    """At most so many prompts of each expert, drawn without repeats; the same ones for the same seed."""
    random = np.random.default_rng(seed)
    return {
        name: [texts[place] for place in random.choice(len(texts), min(most, len(texts)), replace=False)]
        for name, texts in train.items()
    }


def fit_and_score(material: Material, train: Texts, prompts: int | None, router: str, **options: Any) -> Row:
    """Fit on these prompts with the options of `Router.fit`, and score every split of the material."""
    begun = perf_counter()
    fitted = Router.fit(train, **options)
    seconds = perf_counter() - begun
    accuracy = {split: _score(fitted, texts, material.by_expert) for split, texts in material.splits.items()}
    if material.by_expert:
        short = fitted.with_selector(Average(cap=FIRST_TOKENS))
        accuracy["first 32"] = _score(short, material.splits["test"], material.by_expert)
    chosen = str(fitted.scorer) + _describe_asked(fitted, material.splits["test"])
    error = 100.0 * evaluate(fitted, material.splits["test"]).calibration_error
    return Row(material.name, prompts, router, accuracy, chosen, round(seconds, 3), error)


def _describe_asked(router: Router, texts: Texts) -> str:
    """The share of the prompts that the router's encoder is asked about; empty without an encoder."""
    if router.opinion is None:
        return ""
    found = router.route_batch([text for some in texts.values() for text in some], consult=False)
    share = np.mean([(one.confidence or 0.0) < router.opinion.certainty for one in found])
    return f"; encoder asked about {100 * share:.1f} %"


def _score(router: Router, texts: Mapping[str, Sequence[str]], by_expert: bool) -> float:
    right = {
        name: np.array([decision.best == name for decision in router.route_batch(some)]) for name, some in texts.items()
    }
    return average(right, by_expert)


def average(found: Mapping[str, npt.NDArray[np.bool_]], by_expert: bool) -> float:
    """The percentage of the prompts for which something holds: the mean over the experts, or over all prompts.

    >>> found = {"law": np.array([True]), "maths": np.array([True, False, False])}
    >>> average(found, by_expert=True), average(found, by_expert=False)
    (66.66666666666666, 50.0)
    """
    shares = [own.mean() for own in found.values()] if by_expert else np.concatenate([*found.values()])
    return 100.0 * float(np.mean(shares))
