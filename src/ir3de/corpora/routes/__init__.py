"""Routes that people wrote for other routers, as texts and descriptions of experts.

document           a file              -> plain values, from JSON or YAML
semantic_router    values              -> routes of semantic-router, and of LiteLLM's auto-router
vllm               values              -> routes of vLLM Semantic Router
route              a route, and what of a file has no place here
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ir3de.corpora.routes.document import read_document
from ir3de.corpora.routes.route import LeftOut, Model, Route, join
from ir3de.corpora.routes.semantic_router import is_litellm, is_semantic_router, read_litellm, read_semantic_router
from ir3de.corpora.routes.vllm import is_vllm, read_vllm
from ir3de.errors import InputError, describe_value, name_some

SEMANTIC_ROUTER, LITELLM, VLLM = KINDS = ("semantic-router", "litellm", "vllm-sr")
EXCERPT_CHARS = 60  # of an utterance in an error
_RECOGNISED: dict[str, Callable[[object], bool]] = {
    LITELLM: is_litellm, SEMANTIC_ROUTER: is_semantic_router, VLLM: is_vllm
}  # fmt: skip


@dataclass(frozen=True)
class ImportedRoutes:
    """The routes of another router, in the form that `Router.fit` takes."""

    kind: str  # of the file: one of KINDS
    texts: dict[str, list[str]]  # of each expert; none for one that is only described
    descriptions: dict[str, str]
    models: dict[str, Model]  # of each expert that the file names one for
    default: str | None  # the expert for prompts that fit no route
    left_out: tuple[str, ...]  # what could not be carried over, a line for each kind of thing


def import_routes(path: str | Path, *, kind: str | None = None) -> ImportedRoutes:
    """Read the routes of semantic-router, of LiteLLM's auto-router or of vLLM Semantic Router.

    `path` is a JSON or YAML file; YAML needs the extra `yaml`. Its content shows whose it is, unless `kind` names it:
    "semantic-router", "litellm" or "vllm-sr". LiteLLM's router.json looks like a file of semantic-router: name it, to
    take the names of its routes for models.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     routes = Path(folder, "routes.json")
    ...     _ = routes.write_text('[{"name": "law", "utterances": ["Is it void?"], "score_threshold": 0.5}]')
    ...     found = import_routes(routes)
    >>> found.kind, found.texts, len(found.left_out)
    ('semantic-router', {'law': ['Is it void?']}, 1)
    """
    if kind is not None and kind not in KINDS:
        raise InputError(f"the kind of a file of routes is one of {', '.join(KINDS)}, found {kind!r}")
    where = Path(path).expanduser()
    document = read_document(where)
    try:
        return _read(document, kind or _recognise(document))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _recognise(document: object) -> str:
    found = next((kind for kind, is_one in _RECOGNISED.items() if is_one(document)), None)
    if found is None:
        keys = f"the keys {name_some(map(str, document))}" if isinstance(document, dict) else describe_value(document)
        raise InputError(
            f"found {keys}, and no routes: expected `routes` (semantic-router, LiteLLM), `model_list` with an "
            "auto-router (LiteLLM), or `routing`, `decisions` or `categories` (vLLM Semantic Router)"
        )
    return found


def _read(document: Any, kind: str) -> ImportedRoutes:
    left_out, default = LeftOut(), None
    if kind == SEMANTIC_ROUTER:
        routes = read_semantic_router(document, left_out)
    elif kind == LITELLM:
        routes, default = read_litellm(document, left_out)
    else:
        routes = read_vllm(document, left_out)
    found = join(routes)
    _check(found)
    if default is not None and default not in found:
        left_out.add(f"the default model {default}", "no route has its name, so it is not an expert")
        default = None
    return ImportedRoutes(
        kind,
        {name: route.utterances for name, route in found.items()},
        {name: route.description for name, route in found.items() if route.description},
        {name: route.models[0] for name, route in found.items() if route.models},
        default,
        left_out.sentences(),
    )


def _check(routes: dict[str, Route]) -> None:
    """Raise an error for what no router can be fitted on."""
    if not routes:
        raise InputError("found no routes: a router needs at least one")
    if bare := [name for name, route in routes.items() if not (route.utterances or route.description)]:
        raise InputError(
            f"found neither utterances nor a description of {name_some(bare)}: give each some examples, or describe it"
        )
    owners: dict[str, str] = {}
    for text, name in _pair_up(routes.values()):
        if (other := owners.setdefault(text, name)) != name:
            excerpt = text if len(text) <= EXCERPT_CHARS else f"{text[: EXCERPT_CHARS - 1]}…"
            raise InputError(f"the utterance {excerpt!r} is in {other!r} and in {name!r}: keep it in one of them")


def _pair_up(routes: Iterable[Route]) -> Iterable[tuple[str, str]]:
    return ((text.strip(), route.name) for route in routes for text in route.utterances)
