"""IR3DE: a linear, closed-form, explainable router for domain-expert LLMs.

>>> import ir3de
>>> router = ir3de.Router.fit({"maths": ["Solve x + 3 = 10."], "law": ["Is this contract void?"]})
>>> router.route("Solve 2x = 8.").expert
'maths'

docs/api.md lists the public modules and their names. A name is imported when it is first used, so `import ir3de`
costs nothing.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any


def export_lazily(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` (PEP 562) of a package from `{submodule: its public names}`.

    A name is imported when it is first asked for. No name may be that of a submodule: whichever was imported last
    would be found.
    """
    module_of = {name: f"{package}.{module}" for module, exported in names.items() for name in exported.split()}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module_of[name]), name)
        vars(sys.modules[package])[name] = value  # the next time it is found without this function
        return value

    return get, lambda: sorted(module_of)


if TYPE_CHECKING:
    from ir3de.embedding import Embedding
    from ir3de.errors import IR3DEError
    from ir3de.router import Router
    from ir3de.routing.decision import Decision
    from ir3de.scorers import PromptRidge, TokenRidge
    from ir3de.selectors import AllTokens, Average, EntropyTopK
    from ir3de.statistics import Contribution, Statistics, collect

    __version__: str
else:
    _get, _list = export_lazily(
        __name__,
        {
            "embedding": "Embedding",
            "errors": "IR3DEError",
            "router": "Router",
            "routing.decision": "Decision",
            "scorers": "PromptRidge TokenRidge",
            "selectors": "AllTokens Average EntropyTopK",
            "statistics": "Contribution Statistics collect",
        },
    )

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version("ir3de")
        return _get(name)

    def __dir__() -> list[str]:
        return sorted([*_list(), "__version__"])


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
