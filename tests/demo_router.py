"""The router of the example texts, fitted once in each process: it takes seconds."""

from copy import copy
from functools import cache

from ir3de import Router
from ir3de.corpora import examples
from ir3de.scorers import Blend


def demo_router() -> Router:
    """The closed form: a copy, which a test may change."""
    return copy(_fit(Blend()))


def chosen_demo_router() -> Router:
    """That of which the fit chose the scorer."""
    return copy(_fit(None))


@cache
def _fit(scorer: Blend | None) -> Router:
    return Router.fit(examples.prompts(), scorer=scorer)
