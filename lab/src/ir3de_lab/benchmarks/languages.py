"""Fitted on English prompts, routing prompts in other languages: accuracy language by language, and what it costs.

The folder holds the prompts of each language and split in a file of its own, `{language}-{split}.jsonl`, plain or
compressed, each with its `text` and `label`. Routers are fitted on the training prompts of the first language alone.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from ir3de import Embedding, Router
from ir3de.corpora import read_rows
from ir3de.errors import InputError
from ir3de_lab.benchmarks.measurement import Figure, median_ratio, side_by_side

FITTED = "eng_Latn"
BARS = {"english": 81.0, "others": 72.0, "route": 2.5, "first_call_s": 0.5}
FIRST_PROMPT = "What does a subduction zone do to the oceanic plate?"
STARTS = 5


@dataclass(frozen=True)
class Labelled:
    """Prompts and their labels."""

    texts: list[str]
    labels: list[str]


@dataclass(frozen=True)
class Transfer:
    """One embedding's accuracies, in percent: in the language of the fit, in each other one, and their mean."""

    embedding: str
    scorer: str
    fitted: float
    others: float
    by_language: dict[str, float]
    abstained: dict[str, float]  # share of each language's prompts

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def read_languages(folder: Path) -> tuple[Labelled, dict[str, Labelled]]:
    """The training prompts of the fitted language, and every language's test prompts."""
    files = {
        found.group(1): path
        for path in sorted(folder.iterdir())
        if (found := re.fullmatch(r"(\w+-(?:train|test))\.jsonl(?:\.\w+)?", path.name))
    }
    if f"{FITTED}-train" not in files or f"{FITTED}-test" not in files:
        raise InputError(f"{folder} holds no {FITTED}-train.jsonl and {FITTED}-test.jsonl: name a folder like sib200")
    tests = {name.removesuffix("-test"): _read(path) for name, path in files.items() if name.endswith("-test")}
    return _read(files[f"{FITTED}-train"]), tests


def _read(path: Path) -> Labelled:
    rows = list(read_rows([path]))
    return Labelled([str(row["text"]) for row in rows], [str(row["label"]) for row in rows])


def fit(train: Labelled, embedding: Embedding) -> Router:
    domains: dict[str, list[str]] = {}
    for text, label in zip(train.texts, train.labels, strict=True):
        domains.setdefault(label, []).append(text)
    return Router.fit(domains, embedding=embedding)


def measure_transfer(name: str, router: Router, tests: Mapping[str, Labelled]) -> Transfer:
    """The share of test prompts whose likeliest expert is the right one, and of those on which the router abstains."""
    accuracy, abstained = {}, {}
    for language, prompts in tests.items():
        decisions = list(router.route_batch(prompts.texts))
        likeliest = [decision.ranking[0][0] for decision in decisions]
        right = [expert == label for expert, label in zip(likeliest, prompts.labels, strict=True)]
        accuracy[language] = round(100 * mean(right), 2)
        abstained[language] = round(mean(decision.abstained for decision in decisions), 4)
    others = [value for language, value in accuracy.items() if language != FITTED]
    return Transfer(name, repr(router.scorer), accuracy[FITTED], round(mean(others), 2), accuracy, abstained)


def measure_costs(routers: Mapping[str, Router], prompts: Sequence[str]) -> list[Figure]:
    """One route with each router in turn, and the first route of a process that has loaded the router."""
    (base, plain), (name, other) = routers.items()
    plain_s, other_s = side_by_side(
        lambda: [plain.route(prompt) for prompt in prompts],
        lambda: [other.route(prompt) for prompt in prompts],
        rounds=21,
    )
    each = {key: 1e6 * median(seconds) / len(prompts) for key, seconds in ((base, plain_s), (name, other_s))}
    first = {key: _time_first_call(router) for key, router in routers.items()}
    ratio = median_ratio(other_s, plain_s)
    title = f"route one English prompt, {name} / {base}"
    return [
        Figure(title, ratio, "×", BARS["route"], False, {"route_us": each}),
        Figure(f"first route of a loaded router, {name}", median(first[name]), "s", BARS["first_call_s"], False, first),
    ]


def _time_first_call(router: Router) -> list[float]:
    """Seconds of the first route in new processes, without those of loading the router."""
    script = (
        "import sys, time, ir3de; router = ir3de.Router.load(sys.argv[1]); begin = time.perf_counter(); "
        "router.route(sys.argv[2]); print(time.perf_counter() - begin)"
    )
    with tempfile.TemporaryDirectory() as folder:
        router.save(Path(folder, "router"))
        command = [sys.executable, "-P", "-c", script, str(Path(folder, "router")), FIRST_PROMPT]
        return [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(STARTS)]
