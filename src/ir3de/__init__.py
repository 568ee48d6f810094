"""IR3DE: a linear, closed-form, explainable router for domain-expert LLMs.

>>> import ir3de
>>> router = ir3de.Router.fit({"maths": ["Solve x + 3 = 10."], "law": ["Is this contract void?"]})
>>> router.route("Solve 2x = 8.").expert
'maths'

docs/api.md lists the public modules and their names. A name is imported when it is first used, so `import ir3de`
costs nothing.
"""

from __future__ import annotations

from ir3de.files.package import VERSION, export_lazily

__version__ = VERSION

TYPE_CHECKING = False  # see `files.package`
if TYPE_CHECKING:
    from ir3de.embedding import Embedding
    from ir3de.errors import IR3DEError
    from ir3de.router import Router
    from ir3de.routing.conversation import Conversation
    from ir3de.routing.decision import Decision
    from ir3de.scorers import PromptRidge, TokenRidge
    from ir3de.selectors import AllTokens, Average, EntropyTopK
    from ir3de.statistics import Contribution, Statistics, collect

else:
    __getattr__, _list = export_lazily(
        __name__,
        {
            "embedding": "Embedding",
            "errors": "IR3DEError",
            "router": "Router",
            "routing.conversation": "Conversation",
            "routing.decision": "Decision",
            "scorers": "PromptRidge TokenRidge",
            "selectors": "AllTokens Average EntropyTopK",
            "statistics": "Contribution Statistics collect",
        },
    )

    def __dir__() -> list[str]:
        return sorted([*_list(), "__version__"])


__all__ = [
    "AllTokens", "Average", "Contribution", "Conversation", "Decision", "Embedding", "EntropyTopK", "IR3DEError",
    "PromptRidge", "Router", "Statistics", "TokenRidge", "collect",
]  # fmt: skip
