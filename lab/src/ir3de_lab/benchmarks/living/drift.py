"""How soon a new domain is noticed, and how many false alarms there are without one.

A router is fitted without one domain. Its traffic is drawn from the test prompts of the others: first the reference,
then, for the new domain, 5 % of the prompts from the domain that it does not know. Detectors are those of the library.
Their bounds and bets on words, pairs, experts and signs were chosen on training prompts alone: half of these for the
fit, the other half as traffic. The length of the reference and the bets on numbers were not chosen again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ir3de import Decision, Router
from ir3de.scorers import Blend
from ir3de.traffic import DriftMonitor, JournalPrompt, Observation, TrafficRecord, observe_record
from ir3de_lab.benchmarks.defaults import Material
from ir3de_lab.benchmarks.living import Note
from ir3de_lab.benchmarks.living.streams import read_sets
from ir3de_lab.benchmarks.measurement import Figure
from ir3de_lab.benchmarks.robustness import sampled

SETS = ("stackoverflow20", "banking77")
SHARE = 0.05  # of the traffic that the new domain has
NOTICED_WITHIN = 1_000
STEADY_PROMPTS = 100_000
DOMAINS, SEEDS = 5, 5  # of each set, left out in turn; and draws of the traffic of each
TRAINING = 100  # prompts of an expert
TEST = 400


def measure(data: Path, *, quick: bool, note: Note) -> list[Figure]:
    """Each set: the share of new domains noticed in time, and false alarms."""
    figures: list[Figure] = []
    for name, material in read_sets(data, SETS[:1] if quick else SETS, quick=quick).items():
        found: dict[str, list[int | None]] = {}
        alarms: list[list[dict[str, Any]]] = []
        for left_out, known, new in _route(material, 2 if quick else DOMAINS):
            delays = [_find_delay(known, new, seed) for seed in range(1 if quick else SEEDS)]
            note(f"{name} without {left_out}: noticed after {', '.join(map(str, delays))} prompts")
            found[left_out] = delays
            if len(alarms) < SEEDS:  # as many draws of steady traffic as seeds
                alarms.append(_find_alarms(known, len(alarms), 10_000 if quick else STEADY_PROMPTS))
        delays = [one for own in found.values() for one in own]
        noticed = [one is not None and one <= NOTICED_WITHIN for one in delays]
        raw = {"share": SHARE, "domains": found}
        what = f"{name}: a new domain at 5 % noticed within {NOTICED_WITHIN:,} prompts"
        figures.append(Figure(what, 100 * float(np.mean(noticed)), "%", 90.0, raw=raw))
        what = f"{name}: false alarms in {STEADY_PROMPTS:,} prompts"
        figures.append(
            Figure(
                what,
                float(np.mean([len(one) for one in alarms])),
                "",
                1.0,
                higher_is_better=False,
                raw={"draws": alarms},
            )
        )
    return figures


def _route(material: Material, domains: int) -> Iterator[tuple[str, list[Observation], list[Observation]]]:
    """Leave each of the domains out; what the monitor would see of known prompts and of new ones."""
    names = list(material.train)
    for place in range(min(domains, len(names))):
        left_out = names[place * len(names) // min(domains, len(names))]
        train = {name: sampled(texts, TRAINING) for name, texts in material.train.items() if name != left_out}
        router = Router.fit(train, scorer=Blend())
        test = material.splits["test"]
        known = [text for name, texts in test.items() if name != left_out for text in sampled(texts, TEST)]
        yield left_out, _observe(router, known), _observe(router, test[left_out])


def _observe(router: Router, texts: Sequence[str]) -> list[Observation]:
    return [_observe_one(text, found) for text, found in zip(texts, router.route_batch(texts), strict=True)]


def _observe_one(text: str, found: Decision) -> Observation:
    values = {"confidence": found.confidence, "in_domain": found.in_domain, "abstained": found.abstained}
    prompt = JournalPrompt.from_text([text])
    return observe_record(TrafficRecord("", 0.0, decided=found.expert, prompt=prompt, **values))  # type: ignore[arg-type]


def _find_delay(known: list[Observation], new: list[Observation], seed: int) -> int | None:
    """Prompts from the change to the first alarm; None after twice the time that is allowed, or too early."""
    random, monitor = np.random.default_rng(seed), DriftMonitor()
    for place in random.integers(len(known), size=2 * monitor.reference_prompts).tolist():
        if monitor.observe(known[place]):
            return None
    for number in range(2 * NOTICED_WITHIN):
        source = new if random.random() < SHARE else known
        if monitor.observe(source[int(random.integers(len(source)))]):
            return number + 1
    return None


def _find_alarms(known: list[Observation], seed: int, prompts: int) -> list[dict[str, Any]]:
    random, monitor = np.random.default_rng(1_000 + seed), DriftMonitor()
    places = random.integers(len(known), size=prompts).tolist()
    return [alarm.to_dict() for place in places for alarm in monitor.observe(known[place])]
