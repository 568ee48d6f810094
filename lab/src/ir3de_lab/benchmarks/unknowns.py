"""Does a router know what it does not know? Each expert in turn is left out, and its prompts are asked all the same.

The router is fitted with its defaults on the training prompts of the others. Known are the test prompts of the others,
unknown those of the one that is left out. Languages are another kind of unknown: a router that was fitted on English
prompts is asked prompts in languages that it never saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de import Router
from ir3de_lab.benchmarks.defaults import Material
from ir3de_lab.benchmarks.novelty import area
from ir3de_lab.benchmarks.robustness import sampled

MOST_PROMPTS = 500  # of a domain
SURE = 0.9
FALSE_ALARMS = 0.05
BINS = 10  # of confidence
LEFT_OUT = {"reasoning": None, "clm": None, "banking77": 30}  # experts that are left out in turn; None for each

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LeftOut:
    """One expert left out. Shares and errors are in percent; `_before` is confidence without P(in domain)."""

    data: str
    left_out: str
    known: int
    unknown: int
    area: float
    area_before: float
    sure: float  # unknown prompts over 90 % sure
    sure_before: float
    told: float  # unknown prompts on which the router abstains by default,
    false_alarms: float  # and known ones
    told_at_5: float  # unknown prompts below the P(in domain) that 5 % of the known ones do not reach
    confidence_told_at_5: float  # the same by confidence
    calibration_error: float  # on known prompts
    calibration_error_before: float
    accuracy: float  # on known prompts, abstentions counted as wrong
    accuracy_before: float

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def measure(material: Material, experts: int | None) -> Iterator[LeftOut]:
    """Leave out each expert, or as many as given."""
    for name in choose_left_out(material, experts):
        yield leave_out(material, name)


def choose_left_out(material: Material, experts: int | None) -> list[str]:
    """The experts that are left out in turn: each, or as many as given, spread evenly over their names."""
    names = list(material.train)
    return names if experts is None else [names[place * len(names) // experts] for place in range(experts)]


def leave_out(material: Material, name: str, **options: Any) -> LeftOut:
    """Fit without one expert with the options of `Router.fit`, and ask its prompts beside those of the others."""
    router = Router.fit({other: texts for other, texts in material.train.items() if other != name}, **options)
    test = {other: sampled(texts, MOST_PROMPTS) for other, texts in material.splits["test"].items()}
    known = [(other, text) for other, texts in test.items() if other != name for text in texts]
    asked = router.route_batch([text for _, text in known])
    strange = router.route_batch(test[name])
    confidence, alone, member = (np.array(column) for column in zip(*map(_read, asked), strict=True))
    unknown, unknown_alone, unknown_member = (np.array(column) for column in zip(*map(_read, strange), strict=True))
    right = np.array([found.best == other for found, (other, _) in zip(asked, known, strict=True)])
    answered = np.array([not found.abstained for found in asked])
    return LeftOut(
        material.name,
        name,
        len(asked),
        len(strange),
        area=area(confidence, unknown),
        area_before=area(alone, unknown_alone),
        sure=_percent(unknown > SURE),
        sure_before=_percent(unknown_alone > SURE),
        told=_percent(np.array([found.abstained for found in strange])),
        false_alarms=_percent(~answered),
        told_at_5=_percent(unknown_member < np.quantile(member, FALSE_ALARMS)),
        confidence_told_at_5=_percent(unknown < np.quantile(confidence, FALSE_ALARMS)),
        calibration_error=measure_calibration(confidence, right),
        calibration_error_before=measure_calibration(alone, right),
        accuracy=_percent(right & answered),
        accuracy_before=_percent(right),
    )


def _read(decision: Any) -> tuple[float, float, float]:
    """Confidence, P(expert | in domain), and P(in domain)."""
    member = 1.0 if decision.in_domain is None else decision.in_domain
    return decision.confidence, decision.confidence / member if member else 0.0, member


def _percent(chosen: npt.NDArray[np.bool_]) -> float:
    return 100.0 * float(chosen.mean())


def measure_calibration(confidence: Numbers, right: npt.NDArray[np.bool_]) -> float:
    """Σ n/N |accuracy − confidence| over the intervals of confidence, in points."""
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, weights=right - confidence, minlength=BINS)
    return 100.0 * float(np.abs(gaps).sum() / len(right))


@dataclass(frozen=True)
class Language:
    """Prompts in a language that the fit never saw, or saw; shares in percent."""

    language: str
    prompts: int
    sure: float
    told: float

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def measure_languages(router: Router, tests: Mapping[str, Sequence[str]]) -> list[Language]:
    """How sure a router is of prompts in each language."""
    rows = []
    for language, texts in tests.items():
        found = router.route_batch(texts)
        sure = _percent(np.array([(one.confidence or 0.0) > SURE for one in found]))
        rows.append(Language(language, len(found), sure, _percent(np.array([one.abstained for one in found]))))
    return rows


def summarise(rows: Sequence[LeftOut]) -> dict[str, dict[str, float]]:
    """The means over the experts left out, for each set and over the sets."""
    names = [name for name, value in vars(rows[0]).items() if isinstance(value, float)]
    sets = dict.fromkeys(row.data for row in rows)
    found = {
        data: {name: fmean(getattr(row, name) for row in rows if row.data == data) for name in names} for data in sets
    }
    found["mean of the sets"] = {name: fmean(found[data][name] for data in sets) for name in names}
    found["mean of all"] = {name: fmean(getattr(row, name) for row in rows) for name in names}
    return found
