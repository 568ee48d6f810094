"""Variants of the live router to try out: another selector, another k, another scorer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ir3de.errors import IR3DEError
from ir3de.gateway.api_errors import ApiError
from ir3de.scorers import Blend, Posterior, PromptRidge, Scorer, TokenRidge
from ir3de.selectors import AllTokens, Average, EntropyTopK, Selector

if TYPE_CHECKING:
    from ir3de.router import Router

SELECTORS: Mapping[str, type[Average | AllTokens | EntropyTopK]] = {
    "average": Average,
    "all": AllTokens,
    "entropy": EntropyTopK,
}
SCORERS: Mapping[str, Callable[[], Scorer]] = {  # those that can be fitted while a request waits
    "blend": Blend,
    "prompt-ridge": PromptRidge,
    "token-ridge": TokenRidge,
    "posterior": Posterior,
    "paper": TokenRidge.paper,
}
MAX_TABLE_NUMBERS = 1 << 22  # no variants of larger tables: they would take too much memory
DEFAULT_K = EntropyTopK().k
AS_FITTED = "as fitted"  # a scorer or selector that is not listed above


@dataclass(frozen=True)
class VariantSpec:
    """Which variant is wanted; None keeps the router's own."""

    scorer: str | None = None
    selector: str | None = None
    k: int | None = None


@dataclass(eq=False)
class VariantCache:
    """The variants of one router: at most one for each scorer and selector."""

    options: Mapping[str, Any]
    routers: dict[tuple[str | None, str | None], Router] = field(default_factory=dict)


_caches: WeakKeyDictionary[Router, VariantCache] = WeakKeyDictionary()  # dropped with the router
_lock = threading.Lock()


def has_variant(router: Router, wanted: VariantSpec) -> bool:
    """Whether the variant is in the cache, so that `get_variant` returns at once."""
    cache = _caches.get(router)
    return cache is not None and _compute_key(router, wanted) in {(None, None), *cache.routers}


def list_options(router: Router) -> Mapping[str, Any]:
    """The scorers and selectors that are possible, and the router's own."""
    return _get_cache(router).options


def get_variant(router: Router, wanted: VariantSpec) -> Router:
    """The variant; an `ApiError` if this router does not have it."""
    cache = _get_cache(router)
    _check(router, cache.options, wanted)
    place = _compute_key(router, wanted)
    found = router if place == (None, None) else cache.routers.get(place)
    if found is None:
        with _lock:
            found = cache.routers.get(place) or _build_variant(router, cache, *place)
            cache.routers[place] = found
    if wanted.k is None:
        return found
    assert isinstance(found.selector, EntropyTopK)
    return found.with_selector(replace(found.selector, k=wanted.k))


def _get_cache(router: Router) -> VariantCache:
    cache = _caches.get(router)
    if cache is None:
        with _lock:
            cache = _caches.setdefault(router, VariantCache(_compute_options(router)))
    return cache


def _compute_options(router: Router) -> Mapping[str, Any]:
    table, selector = router.compiled.table, _selector_name(router.selector)
    small = table.scores.size <= MAX_TABLE_NUMBERS
    accepts = router.compiled.rules.valuation.accepts
    scorers: list[str] = []
    if small:
        try:
            known = router.statistics
            whole = all(own.sums is not None for own in known.values())
            scorers = [name for name in SCORERS if whole or name in ("token-ridge", "paper")]
        except (IR3DEError, OSError):  # a serving copy, its folder is gone, or it has outcomes: nothing to fit from
            scorers = []
    return {
        "selectors": [name for name, kind in SELECTORS.items() if accepts(kind())] if small else [selector],
        "scorers": scorers,
        "selector": selector,
        "scorer": _scorer_name(router),
        "k": getattr(router.selector, "k", DEFAULT_K),
    }


def _selector_name(selector: Selector) -> str:
    return next((name for name, kind in SELECTORS.items() if type(selector) is kind), AS_FITTED)


def _scorer_name(router: Router) -> str:
    return next((name for name, routers in SCORERS.items() if routers() == router.scorer), AS_FITTED)


def _compute_key(router: Router, wanted: VariantSpec) -> tuple[str | None, str | None]:
    """Scorer and selector where they differ from the router's own."""
    selector = None if wanted.selector == _selector_name(router.selector) else wanted.selector
    return None if wanted.scorer == _scorer_name(router) else wanted.scorer, selector


def _build_variant(router: Router, cache: VariantCache, scorer: str | None, selector: str | None) -> Router:
    from ir3de.router import Router

    base = router if scorer is None else cache.routers.get((scorer, None))
    if base is None:
        assert scorer is not None
        try:
            base = Router.fit(
                router.statistics,
                embedding=router.embedding,
                scorer=SCORERS[scorer](),
                selector=router.selector,
                default=router.default,
                policy=router.policy,
            )
        except (IR3DEError, OSError) as error:
            raise ApiError(422, f"scorer {scorer!r} cannot be fitted here: {error}", param="scorer") from error
        cache.routers[scorer, None] = base
    if selector is None:
        return base
    return base.with_selector(SELECTORS[selector](cap=router.selector.cap))


def _check(router: Router, offered: Mapping[str, Any], wanted: VariantSpec) -> None:
    for param in ("selector", "scorer"):
        name, names = getattr(wanted, param), offered[f"{param}s"]
        if name is not None and name not in (*names, offered[param]):
            others = f"it has {', '.join(names)}" if names else "it holds no statistics to fit another one from"
            raise ApiError(422, f"this router has no {param} {name!r}: {others}", param=param)
    if wanted.k is not None and (wanted.selector or offered["selector"]) != "entropy":
        raise ApiError(422, "k is the number of tokens that vote with selector 'entropy': ask for that too", param="k")
