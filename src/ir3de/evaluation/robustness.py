"""How a router holds up when prompts are mistyped, cut short, or about two things at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from statistics import fmean
from typing import Any

from ir3de.errors import InputError, UnknownExpertError
from ir3de.evaluation.perturbations import Case, DroppedWords, FirstTokens, Mixed, Perturbation, Setting, Typos
from ir3de.router import Router

BATCH_PROMPTS = 4_096

USUAL: tuple[Perturbation, ...] = (
    Typos(0.1),
    Typos(0.3),
    Case("lower"),
    Case("upper"),
    Case("random"),
    DroppedWords(0.1),
    DroppedWords(0.3),
    FirstTokens(128),
    FirstTokens(32),
    FirstTokens(16),
    Mixed(0.2),
    Mixed(0.4),
)


@dataclass(frozen=True)
class Effect:
    """What one perturbation does; every share is the mean over the domains.

    `change` is the accuracy less that of the untouched prompts, `flipped` the share of prompts that went elsewhere
    than when untouched. Of mixed prompts, `either` is the share that reached one of their two domains.
    """

    perturbation: str
    accuracy: float
    change: float
    flipped: float
    either: float | None = None


@dataclass(frozen=True)
class RobustnessReport:
    """What `measure_robustness` found: the accuracy on the prompts as they are, and the effect of each perturbation."""

    prompts: int
    accuracy: float
    effects: tuple[Effect, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


def measure_robustness(
    router: Router,
    domains: Mapping[str, Sequence[str]],
    *,
    perturbations: Sequence[Perturbation] | None = None,
    seed: int = 0,
) -> RobustnessReport:
    """Route each expert's prompts as they are and perturbed, and compare. The prompts are held in memory.

    Without `perturbations` all of `USUAL` are measured, the mixed ones only where there are two domains to mix.

    >>> import ir3de
    >>> router = ir3de.Router.fit({"maths": ["Solve x + 3 = 10."], "law": ["Is this contract void?"]})
    >>> prompts = {"maths": ["Solve 3x = 12."], "law": ["Is the contract valid?"]}
    >>> measure_robustness(router, prompts, perturbations=[Case("lower")]).effects
    (Effect(perturbation='lower case', accuracy=1.0, change=0.0, flipped=0.0, either=None),)
    """
    _check(router, domains)
    if perturbations is None:
        perturbations = [kind for kind in USUAL if len(domains) > 1 or not isinstance(kind, Mixed)]
    settings = {
        name: Setting(router.tokenizer, {other: domains[other] for other in domains if other != name}, seed)
        for name in domains
    }
    untouched = {name: _routes(router, texts) for name, texts in domains.items()}
    accuracy = fmean(_share(route == name for route in routes) for name, routes in untouched.items())
    effects = tuple(_effect(router, domains, settings, untouched, accuracy, kind) for kind in perturbations)
    return RobustnessReport(sum(map(len, domains.values())), accuracy, effects)


def _effect(
    router: Router,
    domains: Mapping[str, Sequence[str]],
    settings: Mapping[str, Setting],
    untouched: Mapping[str, list[str]],
    whole: float,
    kind: Perturbation,
) -> Effect:
    right, flipped, either = [], [], []
    for name, texts in domains.items():
        routes = _routes(router, (kind.apply(text, settings[name]) for text in texts))
        right.append(_share(route == name for route in routes))
        flipped.append(_share(route != before for route, before in zip(routes, untouched[name], strict=True)))
        if isinstance(kind, Mixed):
            partners = (kind.partner(text, settings[name])[0] for text in texts)
            either.append(_share(route in (name, other) for route, other in zip(routes, partners, strict=True)))
    accuracy = fmean(right)
    return Effect(kind.name, accuracy, accuracy - whole, fmean(flipped), fmean(either) if either else None)


def _routes(router: Router, texts: Iterable[str]) -> list[str]:
    remaining, routes = iter(texts), []
    while batch := list(islice(remaining, BATCH_PROMPTS)):
        routes += [decision.expert for decision in router.route_batch(batch)]
    return routes


def _share(facts: Iterable[bool]) -> float:
    return fmean(map(float, facts))


def _check(router: Router, domains: Mapping[str, Sequence[str]]) -> None:
    if not domains:
        raise InputError("robustness needs at least one domain: pass {expert: prompts}")
    unknown = [name for name in domains if name not in router.experts]
    if unknown:
        raise UnknownExpertError(
            f"no expert {', '.join(map(repr, unknown))}: this router has {', '.join(router.experts)}"
        )
    for name, texts in domains.items():
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise InputError(
                f"the prompts of '{name}' are read more than once: pass a list, found {type(texts).__name__}"
            )
        if not texts:
            raise InputError(f"'{name}' has no prompt to perturb: give it at least one, or leave it out")
