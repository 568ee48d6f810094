"""What adding, removing and tuning cost beside a whole fit, and a fit beside scikit-learn's, in one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path

from ir3de import Router
from ir3de.scorers import Blend
from ir3de_lab.benchmarks.measurement import Figure, Watch
from ir3de_lab.benchmarks.synthetic import Synthetic
from ir3de_lab.rivals.tfidf_logistic import TfidfLogistic

SIZES = ((20, 750), (77, 130), (150, 120))  # experts, and prompts of each
ROUNDS = 3
MAX_CHANGE = {"closed form": 0.1, "default": 0.3}  # with the first route after it, as a share of a fit
MAX_TUNE, MAX_DEFAULT = 1.5, 3.0  # as multiples of a fit
MAX_BESIDE_TFIDF = 0.2  # of the time that scikit-learn takes
FIRST_ROUTE = " with the first route"  # it learns confidence, which a change defers
CHANGES = tuple(f"{what}{suffix}" for suffix in ("", FIRST_ROUTE) for what in ("remove", "add", "merge"))


def measure(experts: int, prompts: int, texts: Sequence[str], *, rounds: int = ROUNDS) -> list[Figure]:
    """Fit, add, merge and remove an expert, route a prompt, and tune, by turns: in closed form, and with the defaults.

    A change learns confidence when it is first asked for, so it is measured with the first route, too. All times are
    CPU times.
    """
    made, watch = Synthetic(texts), Watch(time.process_time)
    domains = {f"expert {number}": made.prompts(number, prompts) for number in range(experts)}
    for _ in range(rounds):
        with watch("closed form, fit"):
            closed = Router.fit(domains, scorer=Blend())
        with watch("default, fit"):
            default = Router.fit(domains)
        for name, router in (("closed form", closed), ("default", default)):
            _change(router, domains, texts[0], name, watch)
        with watch("tune"):
            default.tune()
    with watch("TF-IDF + logistic regression"):
        TfidfLogistic().fit(domains)
    medians = watch.medians
    raw = {"experts": experts, "prompts": prompts, **watch.to_dict()}
    figures = [
        Figure(
            f"{name} fit, {experts} experts × {prompts} prompts", medians[f"{name}, fit"], "s of CPU", None, False, raw
        )
        for name in ("closed form", "default")
    ]
    name = f"`ir3de fit` with its proof, {experts} experts × {prompts} prompts"
    figures.append(Figure(name, _measure_command(domains), "s of CPU", None, False, raw))
    pairs = [
        (f"{name}, {what}", f"{name}, fit", bar if what.endswith(FIRST_ROUTE) else None)
        for name, bar in MAX_CHANGE.items()
        for what in CHANGES
    ]
    pairs += [("default, fit", "closed form, fit", MAX_DEFAULT), ("tune", "default, fit", MAX_TUNE)]
    pairs.append(("default, fit", "TF-IDF + logistic regression", MAX_BESIDE_TFIDF))
    return figures + [
        Figure(f"{what} / {fit}; {experts} experts", medians[what] / medians[fit], "×", bar, False, raw)
        for what, fit, bar in pairs
    ]


def _change(router: Router, domains: dict[str, list[str]], question: str, name: str, watch: Watch) -> None:
    """Remove the last expert, add it again with half of its prompts, and merge the other half."""
    changed, last = copy(router), list(domains)[-1]
    half = max(1, len(domains[last]) // 2)
    changes: dict[str, Callable[[], object]] = {
        "remove": lambda: changed.remove(last),
        "add": lambda: changed.add(last, domains[last][:half]),
        "merge": lambda: changed.merge(last, domains[last][half:]),
    }
    for suffix in ("", FIRST_ROUTE):
        for what, change in changes.items():
            with watch(f"{name}, {what}{suffix}"):
                change()
                if suffix:
                    _ = changed.route(question).confidence


def _measure_command(domains: Mapping[str, Sequence[str]]) -> float:
    """CPU seconds of `ir3de fit` of one labelled file, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "prompts.jsonl")
        rows = [json.dumps({"text": text, "label": name}) for name, own in domains.items() for text in own]
        path.write_text("\n".join(rows), encoding="utf-8")
        command = [sys.executable, "-P", "-m", "ir3de", "fit", str(Path(folder, "router")), str(path)]
        environment = {name: value for name, value in os.environ.items() if name != "IR3DE_NO_PROOF"}
        before = os.times()
        subprocess.run([*command, "--label", "label", "--quiet"], check=True, env=environment, capture_output=True)
        after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system
