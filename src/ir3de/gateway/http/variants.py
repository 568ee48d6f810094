"""Other readings of the router that is live, to try out: another selector, another k, another scorer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ir3de.errors import IR3DEError
from ir3de.gateway.api_errors import Problem
from ir3de.scorers import Blend, Posterior, PromptRidge, Scorer, TokenRidge
from ir3de.selectors import AllTokens, Average, EntropyTopK, Selector

if TYPE_CHECKING:
    from ir3de.router import Router

SELECTORS: Mapping[str, type[Average | AllTokens | EntropyTopK]] = {
    "average": Average,
    "all": AllTokens,
    "entropy": EntropyTopK,
}
SCORERS: Mapping[str, Callable[[], Scorer]] = {  # those that are fitted in a moment
    "blend": Blend,
    "prompt-ridge": PromptRidge,
    "token-ridge": TokenRidge,
    "posterior": Posterior,
    "paper": TokenRidge.paper,
}
LARGEST_TABLE = 1 << 22  # numbers of a table up to which others like it are held in memory
K = EntropyTopK().k
AS_FITTED = "as fitted"  # what has no name here


@dataclass(frozen=True)
class Wanted:
    """How a router is to be read; None as it is."""

    scorer: str | None = None
    selector: str | None = None
    k: int | None = None


@dataclass(eq=False)
class Readings:
    """What was made of one router: at most one for each scorer and selector."""

    options: Mapping[str, Any]
    made: dict[tuple[str | None, str | None], Router] = field(default_factory=dict)


_kept: WeakKeyDictionary[Router, Readings] = WeakKeyDictionary()  # gone with the router
_making = threading.Lock()


def is_ready(router: Router, wanted: Wanted) -> bool:
    """Whether this reading is there already, so that `variant` answers at once."""
    readings = _kept.get(router)
    return readings is not None and _place(router, wanted) in {(None, None), *readings.made}


def options(router: Router) -> Mapping[str, Any]:
    """How this router can be read, and how it is."""
    return _readings(router).options


def variant(router: Router, wanted: Wanted) -> Router:
    """The router read in another way; what it cannot be read by is a `Problem`."""
    readings = _readings(router)
    _check(router, readings.options, wanted)
    place = _place(router, wanted)
    found = router if place == (None, None) else readings.made.get(place)
    if found is None:
        with _making:
            found = readings.made.get(place) or _made(router, readings, *place)
            readings.made[place] = found
    if wanted.k is None:
        return found
    assert isinstance(found.selector, EntropyTopK)
    return found.with_selector(replace(found.selector, k=wanted.k))


def _readings(router: Router) -> Readings:
    readings = _kept.get(router)
    if readings is None:
        with _making:
            readings = _kept.setdefault(router, Readings(_options(router)))
    return readings


def _options(router: Router) -> Mapping[str, Any]:
    table, selector = router.compiled.table, _selector_name(router.selector)
    small = table.scores.size <= LARGEST_TABLE and not router.from_outcomes
    scorers: list[str] = []
    if small:
        try:
            known = router.statistics
            whole = all(own.sums is not None for own in known.values())
            scorers = [name for name in SCORERS if whole or name in ("token-ridge", "paper")]
        except (IR3DEError, OSError):  # a serving copy, or its folder is gone: nothing to fit from
            scorers = []
    return {
        "selectors": list(SELECTORS) if small else [selector],
        "scorers": scorers,
        "selector": selector,
        "scorer": _scorer_name(router),
        "k": getattr(router.selector, "k", K),
    }


def _selector_name(selector: Selector) -> str:
    return next((name for name, kind in SELECTORS.items() if type(selector) is kind), AS_FITTED)


def _scorer_name(router: Router) -> str:
    return next((name for name, made in SCORERS.items() if made() == router.scorer), AS_FITTED)


def _place(router: Router, wanted: Wanted) -> tuple[str | None, str | None]:
    """Scorer and selector where they differ from the router's own."""
    selector = None if wanted.selector == _selector_name(router.selector) else wanted.selector
    return None if wanted.scorer == _scorer_name(router) else wanted.scorer, selector


def _made(router: Router, readings: Readings, scorer: str | None, selector: str | None) -> Router:
    from ir3de.router import Router

    base = router if scorer is None else readings.made.get((scorer, None))
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
            raise Problem(422, f"scorer {scorer!r} cannot be fitted here: {error}", param="scorer") from error
        readings.made[scorer, None] = base
    if selector is None:
        return base
    return base.with_selector(SELECTORS[selector](cap=router.selector.cap))


def _check(router: Router, offered: Mapping[str, Any], wanted: Wanted) -> None:
    for param in ("selector", "scorer"):
        name, names = getattr(wanted, param), offered[f"{param}s"]
        if name is not None and name not in (*names, offered[param]):
            others = f"it has {', '.join(names)}" if names else "it holds no statistics to fit another one from"
            raise Problem(422, f"this router cannot be read by {param} {name!r}: {others}", param=param)
    if wanted.k is not None and (wanted.selector or offered["selector"]) != "entropy":
        raise Problem(422, "k is the number of tokens that vote with selector 'entropy': ask for that too", param="k")
