"""How a router holds up when prompts are mistyped, cut short, or about two things at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ir3de.corpora.frames import require_experts_apart
from ir3de.errors import InputError
from ir3de.evaluation.intervals import JSONReport
from ir3de.evaluation.perturbations import Case, DroppedWords, FirstTokens, Mixed, Perturbation, Setting, Typos, Wrapped
from ir3de.evaluation.prompts import route_in_batches
from ir3de.fitting.domains import require_experts
from ir3de.router import Router

DEFAULT_PERTURBATIONS: tuple[Perturbation, ...] = (
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
    Wrapped("short"),
    Wrapped("medium"),
    Wrapped("long"),
)


@dataclass(frozen=True)
class Effect:
    """The effect of one perturbation; every fraction is one of all prompts, or a mean over the experts.

    `change` is the accuracy minus that of the original prompts. `flipped` is the fraction of prompts that went to
    another expert than the original. For mixed prompts, `either` is the fraction that reached one of their two domains.
    """

    perturbation: str
    accuracy: float
    change: float
    flipped: float
    either: float | None = None


@dataclass(frozen=True)
class RobustnessReport(JSONReport):
    """What `measure_robustness` found: the accuracy on the prompts as they are, and the effect of each perturbation."""

    prompts: int
    accuracy: float
    effects: tuple[Effect, ...]


def measure_robustness(
    router: Router,
    domains: Mapping[str, Sequence[str]],
    *,
    perturbations: Sequence[Perturbation] | None = None,
    seed: int = 0,
    over_experts: bool = False,
) -> RobustnessReport:
    """Route each expert's prompts as they are and perturbed, and compare. The prompts are held in memory.

    Fractions are of all prompts; with `over_experts`, each expert's prompts count the same. A prompt on which the
    router abstains counts for the default expert, or for the nearest one where none was named.
    Without `perturbations` all `DEFAULT_PERTURBATIONS` are measured; `Mixed` needs at least two domains.

    >>> import ir3de
    >>> router = ir3de.Router.fit({"maths": ["Solve x + 3 = 10."], "law": ["Is this contract void?"]})
    >>> prompts = {"maths": ["Solve 3x = 12."], "law": ["Is the contract valid?"]}
    >>> measure_robustness(router, prompts, perturbations=[Case("lower")]).effects
    (Effect(perturbation='lower case', accuracy=1.0, change=0.0, flipped=0.0, either=None),)
    """
    _check_prompts(router, domains)
    if perturbations is None:
        perturbations = [kind for kind in DEFAULT_PERTURBATIONS if len(domains) > 1 or not isinstance(kind, Mixed)]
    settings = {
        name: Setting(router.tokenizer, {other: domains[other] for other in domains if other != name}, seed)
        for name in domains
    }
    originals = {name: _route_all(router, texts) for name, texts in domains.items()}
    weights = None if over_experts else [len(texts) for texts in domains.values()]
    accuracy = fmean([_mean(route == name for route in routes) for name, routes in originals.items()], weights)
    effects = tuple(
        _measure_effect(router, domains, settings, originals, accuracy, kind, weights) for kind in perturbations
    )
    return RobustnessReport(sum(map(len, domains.values())), accuracy, effects)


def _measure_effect(
    router: Router,
    domains: Mapping[str, Sequence[str]],
    settings: Mapping[str, Setting],
    originals: Mapping[str, list[str]],
    original_accuracy: float,
    kind: Perturbation,
    weights: Sequence[int] | None,
) -> Effect:
    right, flipped, either = [], [], []
    for name, texts in domains.items():
        routes = _route_all(router, (kind.apply(text, settings[name]) for text in texts))
        right.append(_mean(route == name for route in routes))
        flipped.append(_mean(route != before for route, before in zip(routes, originals[name], strict=True)))
        if isinstance(kind, Mixed):
            partners = (kind.choose_partner(text, settings[name])[0] for text in texts)
            either.append(_mean(route in (name, other) for route, other in zip(routes, partners, strict=True)))
    accuracy, moved = fmean(right, weights), fmean(flipped, weights)
    of_two = fmean(either, weights) if either else None
    return Effect(kind.name, accuracy, accuracy - original_accuracy, moved, of_two)


def _route_all(router: Router, texts: Iterable[str]) -> list[str]:
    return [decision.expert or decision.best for _, batch in route_in_batches(router, texts, str) for decision in batch]


def _mean(facts: Iterable[bool]) -> float:
    return fmean(map(float, facts))


def _check_prompts(router: Router, domains: Mapping[str, Sequence[str]]) -> None:
    require_experts_apart(domains)
    if not domains:
        raise InputError("robustness needs at least one domain: pass {expert: prompts}")
    require_experts(domains, router.experts)
    for name, texts in domains.items():
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise InputError(
                f"the prompts of '{name}' are read more than once: pass a list, found {type(texts).__name__}"
            )
        if not texts:
            raise InputError(f"'{name}' has no prompt to perturb: give it at least one, or leave it out")
