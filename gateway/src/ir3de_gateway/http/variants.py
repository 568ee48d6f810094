"""Variants of the live router to try out: another selector, another k, another scorer.

Another scorer is fitted in a process of its own, because that takes hundreds of megabytes; here is the table alone.
"""

from __future__ import annotations

import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ir3de.errors import IR3DEError
from ir3de.scorers import Blend, Posterior, PromptRidge, Scorer, TokenRidge
from ir3de.selectors import AllTokens, Average, EntropyTopK, Selector
from ir3de.serving import SCORERS as REGISTRY
from ir3de.serving import holds_statistics, read_header
from ir3de_gateway.admin.fit_process import FitFailed, FitOrder, fit
from ir3de_gateway.admin.router_source import is_address
from ir3de_gateway.api_errors import ApiError

if TYPE_CHECKING:
    from ir3de import Router
    from ir3de_gateway.experts.snapshot import Snapshot

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
MAX_VARIANTS = 2  # kept, those that were used last
MAX_FIT_S = 60.0
DEFAULT_K = EntropyTopK().k
AS_FITTED = "as fitted"  # a scorer or selector that is not listed above


@dataclass(frozen=True)
class VariantSpec:
    """Which variant is wanted; None keeps the router's own."""

    scorer: str | None = None
    selector: str | None = None
    k: int | None = None

    def is_served(self, router: Router) -> bool:
        """Whether the router itself is wanted, as it serves requests."""
        return _compute_key(router, self) == (None, None) and self.k in (None, getattr(router.selector, "k", None))


@dataclass(eq=False)
class VariantCache:
    """The variants of one router that were used last, by scorer and selector."""

    options: Mapping[str, Any]
    routers: OrderedDict[tuple[str | None, str | None], Router] = field(default_factory=OrderedDict)

    def get(self, key: tuple[str | None, str | None]) -> Router | None:
        with suppress(KeyError):  # another thread may have dropped it
            self.routers.move_to_end(key)
        return self.routers.get(key)

    def put(self, key: tuple[str | None, str | None], router: Router) -> None:
        self.routers[key] = router
        while len(self.routers) > MAX_VARIANTS:
            self.routers.popitem(last=False)


_caches: WeakKeyDictionary[Router, VariantCache] = WeakKeyDictionary()  # dropped with the router
_lock = threading.Lock()


def has_variant(snapshot: Snapshot, wanted: VariantSpec) -> bool:
    """Whether the variant is in the cache, so that `get_variant` returns at once."""
    cache = _caches.get(snapshot.router)
    return cache is not None and _compute_key(snapshot.router, wanted) in {(None, None), *cache.routers}


def list_options(snapshot: Snapshot) -> Mapping[str, Any]:
    """The scorers and selectors that are possible, and the router's own."""
    return _get_cache(snapshot).options


def get_variant(snapshot: Snapshot, wanted: VariantSpec) -> Router:
    """The variant; an `ApiError` if this router does not have it."""
    cache, router = _get_cache(snapshot), snapshot.router
    _check(cache.options, wanted)
    key = _compute_key(router, wanted)
    found = router if key == (None, None) else cache.get(key)
    if found is None:
        with _lock:  # one fit at a time
            found = cache.get(key) or _build_variant(snapshot, cache, *key)
            cache.put(key, found)
    if wanted.k is None:
        return found
    assert isinstance(found.selector, EntropyTopK)
    return found.with_selector(replace(found.selector, k=wanted.k))


def _get_cache(snapshot: Snapshot) -> VariantCache:
    cache = _caches.get(snapshot.router)
    if cache is None:
        with _lock:
            cache = _caches.setdefault(snapshot.router, VariantCache(_compute_options(snapshot)))
    return cache


def _compute_options(snapshot: Snapshot) -> Mapping[str, Any]:
    router = snapshot.router
    selector, accepts = _selector_name(router.selector), router.compiled.rules.valuation.accepts
    is_small = router.compiled.table.scores.size <= MAX_TABLE_NUMBERS
    return {
        "selectors": [name for name, kind in SELECTORS.items() if accepts(kind())] if is_small else [selector],
        "scorers": list(SCORERS) if is_small and _holds_statistics(snapshot) else [],
        "selector": selector,
        "scorer": _scorer_name(router),
        "k": getattr(router.selector, "k", DEFAULT_K),
    }


def _holds_statistics(snapshot: Snapshot) -> bool:
    """Whether another scorer can be fitted: not from a serving copy, nor from outcomes, nor if the folder is away."""
    path = snapshot.config.router.path
    if snapshot.router.kind != "domains" or is_address(path):
        return False
    try:
        folder = Path(path).expanduser()
        return holds_statistics(folder, read_header(folder))
    except (IR3DEError, OSError):
        return False


def _selector_name(selector: Selector) -> str:
    return next((name for name, kind in SELECTORS.items() if type(selector) is kind), AS_FITTED)


def _scorer_name(router: Router) -> str:
    return next((name for name, routers in SCORERS.items() if routers() == router.scorer), AS_FITTED)


def _compute_key(router: Router, wanted: VariantSpec) -> tuple[str | None, str | None]:
    """Scorer and selector where they differ from the router's own."""
    selector = None if wanted.selector == _selector_name(router.selector) else wanted.selector
    return None if wanted.scorer == _scorer_name(router) else wanted.scorer, selector


def _build_variant(snapshot: Snapshot, cache: VariantCache, scorer: str | None, selector: str | None) -> Router:
    base = snapshot.router
    if scorer is not None:
        base = cache.get((scorer, None)) or _fit_variant(snapshot, scorer)
        cache.put((scorer, None), base)
    return base if selector is None else base.with_selector(SELECTORS[selector](cap=base.selector.cap))


def _fit_variant(snapshot: Snapshot, scorer: str) -> Router:
    """The router with another scorer, fitted from its folder in another process."""
    from ir3de import Router

    source, limits = Path(snapshot.config.router.path).expanduser().resolve(), snapshot.config.server.limits
    with tempfile.TemporaryDirectory(prefix="ir3de-variant-") as made:
        seconds = min(MAX_FIT_S, limits.fit_seconds)
        order = FitOrder(
            str(source),
            f"{made}/router",
            "scorer",
            scorer,
            scorer=REGISTRY.describe(SCORERS[scorer]()),
            seconds=seconds,
            memory_bytes=limits.fit_memory_bytes,
        )
        try:
            if read_header(source)["sha256"] != snapshot.digest:
                raise ApiError(409, f"scorer {scorer!r} cannot be fitted now: the router is being replaced. Ask again")
            fit(order)
            found = Router.load(order.target)
        except (IR3DEError, OSError, FitFailed) as error:
            raise ApiError(422, f"scorer {scorer!r} cannot be fitted here: {error}", param="scorer") from error
    return found.with_policy(snapshot.router.policy, default=snapshot.router.default)


def _check(offered: Mapping[str, Any], wanted: VariantSpec) -> None:
    for param in ("selector", "scorer"):
        name, names = getattr(wanted, param), offered[f"{param}s"]
        if name is not None and name not in (*names, offered[param]):
            others = f"it has {', '.join(names)}" if names else "it holds no statistics to fit another one from"
            raise ApiError(422, f"this router has no {param} {name!r}: {others}", param=param)
    if wanted.k is not None and (wanted.selector or offered["selector"]) != "entropy":
        raise ApiError(
            422, "k is the number of tokens that vote with selector 'entropy': send that selector, too", param="k"
        )
