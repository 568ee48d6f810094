"""IR3DE: a linear, closed-form, explainable router for domain-expert LLMs.

>>> import ir3de
>>> router = ir3de.Router.fit({"maths": ["Solve x + 3 = 10."], "law": ["Is this contract void?"]})
>>> router.route("Solve 2x = 8.").expert
'maths'

The names below are the whole public surface. They are imported when first used, so `import ir3de` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ir3de.embedding import Embedding
    from ir3de.errors import IR3DEError
    from ir3de.router import Router
    from ir3de.routing.decision import Decision
    from ir3de.scorers import PromptRidge, TokenRidge
    from ir3de.selectors import AllTokens, Average, EntropyTopK
    from ir3de.statistics.contributions import Contribution
    from ir3de.statistics.counting import collect
    from ir3de.statistics.domain import Statistics

__all__ = [
    "AllTokens",
    "Average",
    "Contribution",
    "Decision",
    "Embedding",
    "EntropyTopK",
    "IR3DEError",
    "PromptRidge",
    "Router",
    "Statistics",
    "TokenRidge",
    "collect",
]

_ROOMS = {
    "ir3de.statistics.counting": ("collect",),
    "ir3de.routing.decision": ("Decision",),
    "ir3de.embedding": ("Embedding",),
    "ir3de.errors": ("IR3DEError",),
    "ir3de.router": ("Router",),
    "ir3de.scorers": ("PromptRidge", "TokenRidge"),
    "ir3de.selectors": ("AllTokens", "Average", "EntropyTopK"),
    "ir3de.statistics.domain": ("Statistics",),
    "ir3de.statistics.contributions": ("Contribution",),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("ir3de")
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'ir3de' has no attribute {name!r}")
    value = getattr(import_module(_ROOM_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
