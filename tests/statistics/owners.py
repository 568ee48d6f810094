"""Four owners of texts of law, and routers that were given what they have."""

import pickle
from functools import cache

import tiny
from ir3de import Contribution, Router, collect


def contribution(texts: list[str], *, keep_sample: bool = False, **labels: str) -> Contribution:
    return Contribution.of(collect(texts, embedding=tiny.embedding(), keep_sample=keep_sample), **labels)


OWNERS = {
    f"c{seed}": contribution(tiny.sentences("law", 6, seed=seed), keep_sample=seed % 2 == 0, id=f"c{seed}", owner="x")
    for seed in range(1, 5)
}


def fitted(*ids: str, texts: bool = True, **options: object) -> Router:
    """A router whose law came from texts and these contributions."""
    if not texts:
        return Router.fit({**tiny.domain_texts(), "law": [OWNERS[one] for one in ids]}, embedding=tiny.embedding())
    router = Router.fit(tiny.domain_texts(), embedding=tiny.embedding(), **options) if options else from_texts()
    if ids:
        router.merge("law", [OWNERS[one] for one in ids])
    return router


def from_texts() -> Router:
    """The router without contributions, fitted once; what tests get shares no number with it."""
    return pickle.loads(_fit_from_texts())  # type: ignore[no-any-return]


@cache
def _fit_from_texts() -> bytes:
    return pickle.dumps(Router.fit(tiny.domain_texts(), embedding=tiny.embedding()))
