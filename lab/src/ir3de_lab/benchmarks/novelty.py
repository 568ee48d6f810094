"""Are out-of-domain prompts recognised? A router of one suite, asked prompts of the others, and gibberish.

Strange are the other suites' domains that share no name with the router's own. Own test prompts are parted by a hash
of their text: from one part the threshold is picked, on the other false alarms are counted.
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de import Router
from ir3de.errors import InputError
from ir3de.evaluation import calibrate_threshold
from ir3de.selectors import DEFAULT_CAP
from ir3de.statistics import collect
from ir3de_lab.benchmarks.accuracy import Suite
from ir3de_lab.benchmarks.protocol import prompt_hash
from ir3de_lab.benchmarks.robustness import sampled

MOST_PROMPTS = 500  # of a domain
GIBBERISH = 300
CAPS = (DEFAULT_CAP, 32)  # tokens of a prompt that are read
ERRORS = (0.01, 0.05)


@dataclass(frozen=True)
class Strangers:
    """How one kind of strange prompts fares beside the router's own.

    `recognised` is the share that is out of domain or below the threshold for 1 or 5 % of wrong answers; `own_…`
    the same of the router's own test prompts, which are then false alarms. The areas say how often an own prompt's
    familiarity, or confidence, lies above a strange one's: 0.5 is chance, 1 is always.
    """

    suite: str
    strangers: str
    cap: int
    prompts: int
    out_of_domain: float
    own_out_of_domain: float
    recognised_at_1: float | None
    own_recognised_at_1: float | None
    recognised_at_5: float | None
    own_recognised_at_5: float | None
    familiarity_area: float
    confidence_area: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, eq=False)
class _Read:
    familiarity: npt.NDArray[np.float64]
    confidence: npt.NDArray[np.float64]
    out_of_domain: npt.NDArray[np.bool_]

    def recognised(self, threshold: float | None) -> float | None:
        return None if threshold is None else float((self.out_of_domain | (self.confidence < threshold)).mean())


def measure(suite: Suite, others: Sequence[Suite]) -> list[Strangers]:
    """Fit the default router on the suite's training prompts, and ask it everything."""
    router = Router.fit({name: collect(suite.texts(name, "train"), keep_sample=True) for name in suite.folders})
    test = {name: sampled(suite.texts(name, "test"), 2 * MOST_PROMPTS) for name in suite.folders}
    held = {name: part for name, texts in test.items() if (part := [text for text in texts if _held(text)])}
    own = [text for texts in test.values() for text in texts if not _held(text)]
    strangers = {
        f"{other.name}/{name}": sampled(other.texts(name, "test"), MOST_PROMPTS)
        for other in others
        for name in other.folders
        if name not in suite.folders
    }
    strangers |= gibberish()
    rows = []
    for cap in CAPS:
        short = router.with_selector(replace(router.selector, cap=cap))  # type: ignore[type-var]
        found = [_threshold(short, held, error) for error in ERRORS]
        known = _read(found[-1][0], own)
        rows += [
            _row(suite.name, kind, cap, known, _read(found[-1][0], texts), [threshold for _, threshold in found])
            for kind, texts in strangers.items()
        ]
    return rows


def gibberish(count: int = GIBBERISH, seed: int = 0) -> dict[str, list[str]]:
    """Letters and blanks at random, and bytes at random, 10 to 200 of them."""
    draw = random.Random(seed)
    letters = [draw.choices(string.ascii_lowercase + " " * 5, k=draw.randint(10, 200)) for _ in range(count)]
    return {
        "random letters": ["".join(text) for text in letters],
        "random bytes": [draw.randbytes(draw.randint(10, 200)).decode("latin-1") for _ in range(count)],
    }


def area(own: npt.NDArray[np.float64], strange: npt.NDArray[np.float64]) -> float:
    """P(own > strange) + ½ P(own = strange).

    >>> area(np.array([3.0, 2.0]), np.array([1.0, 2.0]))
    0.875
    """
    ordered = np.sort(own)
    below, upto = (np.searchsorted(ordered, strange, side) for side in ("left", "right"))
    return float(1 - (below + upto).mean() / (2 * len(own)))


def _held(text: str) -> bool:
    return bool(prompt_hash(text) & 2)  # the threshold's own parting goes by the last bit


def _threshold(router: Router, held: dict[str, list[str]], error: float) -> tuple[Router, float | None]:
    """The router calibrated on the held-out prompts, and its threshold, unless they are too few."""
    try:
        made = calibrate_threshold(router, held, error=error)
    except InputError:
        return router, None
    return made.router, made.chosen.threshold


def _read(router: Router, texts: Sequence[str]) -> _Read:
    decisions = [decision for decision in router.route_batch(texts) if decision.reason != "no known token"]
    return _Read(
        np.array([decision.familiarity or 0.0 for decision in decisions]),
        np.array([decision.confidence for decision in decisions]),
        np.array([decision.out_of_domain for decision in decisions], bool),
    )


def _row(suite: str, kind: str, cap: int, own: _Read, strange: _Read, thresholds: Sequence[float | None]) -> Strangers:
    at_1, at_5 = thresholds
    return Strangers(
        suite,
        kind,
        cap,
        len(strange.out_of_domain),
        out_of_domain=float(strange.out_of_domain.mean()),
        own_out_of_domain=float(own.out_of_domain.mean()),
        recognised_at_1=strange.recognised(at_1),
        own_recognised_at_1=own.recognised(at_1),
        recognised_at_5=strange.recognised(at_5),
        own_recognised_at_5=own.recognised(at_5),
        familiarity_area=area(own.familiarity, strange.familiarity),
        confidence_area=area(own.confidence, strange.confidence),
    )
