"""The files of semantic-router, versions 0.0 to 1.1, and of LiteLLM's auto-router, which has the same routes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ir3de.corpora.routes.document import parse_text
from ir3de.corpora.routes.route import (
    LeftOut,
    Model,
    Route,
    as_mapping,
    read_mappings,
    read_name,
    read_texts,
    read_words,
)
from ir3de.errors import InputError, describe_value, name_some

LITELLM_PROXY = "http://127.0.0.1:4000/v1"  # where LiteLLM's proxy listens by default
AUTO_ROUTER = "auto_router/"  # how the model of an auto-router begins
CARRIED = ("name", "utterances", "description")
ENCODERS = ("encoder_type", "encoder_name", "encoder", "sparse_encoder")
THRESHOLD_REASON = "scores are on another scale here; `ir3de calibrate` picks a threshold for the confidence"
REASONS = {
    "score_threshold": ("the score threshold", THRESHOLD_REASON),
    "confidence_threshold": ("the confidence threshold", THRESHOLD_REASON),
    "function_schemas": ("the function schemas", "the router names an expert and calls no function"),
    "llm": ("the LLM", "it filled in the arguments of functions"),
    "metadata": ("the metadata", "an expert has none"),
}


def is_semantic_router(document: object) -> bool:
    """Whether this looks like routes of semantic-router."""
    if isinstance(document, list):
        return all(isinstance(one, Mapping) and "name" in one for one in document)
    return isinstance(document, Mapping) and ("routes" in document or "router_type" in document)


def is_litellm(document: object) -> bool:
    """Whether this looks like the configuration of LiteLLM's proxy."""
    return isinstance(document, Mapping) and "model_list" in document


def read_semantic_router(document: object, left_out: LeftOut) -> list[Route]:
    """The routes of a file of `to_json` or `to_yaml`, or of a plain list of routes."""
    if isinstance(document, list):
        return _read_routes(document, left_out)
    if not isinstance(document, Mapping):
        raise InputError(f"expected routes of semantic-router, found {describe_value(document)}")
    routes = []
    for router in _list_routers(document):
        _note_settings(router, left_out)
        if "routes" in router:
            routes += _read_routes(router["routes"], left_out)
        elif "routers" not in router:
            index = as_mapping(router.get("index")).get("type")
            where = f"; the index {index!r} holds them: save the router with its routes in memory" if index else ""
            raise InputError(f"the file has no routes{where}")
    return routes


def _list_routers(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The router and those that it chains or merges, each once, because aliases of YAML may repeat one at will."""
    waiting, seen = [document], set[int]()
    while waiting:
        router = waiting.pop()
        if id(router) not in seen:
            seen.add(id(router))
            yield router
            waiting += reversed(read_mappings(router.get("routers"), "routers"))


def read_litellm(document: object, left_out: LeftOut) -> tuple[list[Route], str | None]:
    """The routes of router.json or of the proxy's config.yaml, each with the model it is named after, and the default.

    The names are models of LiteLLM's proxy, which serves them under these names.
    """
    default = None
    if is_litellm(document):
        parameters = _find_auto_router(as_mapping(document))
        default = parameters.get("auto_router_default_model")
        if embedding := parameters.get("auto_router_embedding_model"):
            left_out.add(f"the embedding model {embedding}", "IR3DE brings its own embedding")
        document = _read_inline(parameters)
    routes = read_semantic_router(document, left_out)
    for route in routes:
        route.models = [Model(route.name, LITELLM_PROXY)]
    return routes, default if isinstance(default, str) else None


def _find_auto_router(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters of the only auto-router with routes."""
    every = [as_mapping(model.get("litellm_params")) for model in read_mappings(config["model_list"], "model_list")]
    autos = [one for one in every if str(one.get("model", "")).startswith(AUTO_ROUTER)]
    found = [one for one in autos if one.get("auto_router_config") or one.get("auto_router_config_path")]
    if len(found) == 1:
        return found[0]
    if found:
        names = name_some([str(one["model"]) for one in found])
        raise InputError(f"model_list has several auto-routers, {names}: give the routes of one as a file of their own")
    seen = f": {name_some([str(one['model']) for one in autos])} routes by other rules" if autos else ""
    raise InputError(f"model_list has no auto-router with routes (auto_router_config){seen}")


def _read_inline(parameters: Mapping[str, Any]) -> object:
    path = parameters.get("auto_router_config_path")
    if path:
        raise InputError(f"the routes are in another file: import {path} with --from litellm")
    config = parameters["auto_router_config"]
    return parse_text(config, "auto_router_config") if isinstance(config, str) else config


def _read_routes(value: object, left_out: LeftOut) -> list[Route]:
    routes: dict[str, Route] = {}
    for place, given in enumerate(read_mappings(value, "routes"), 1):
        name = read_name(given.get("name"), f"route {place}")
        where = f"route {name!r}"
        if name in routes:
            raise InputError(f"two routes have the name {name!r}: rename one, or put their utterances together")
        texts = read_texts(given.get("utterances"), where, "utterances")
        routes[name] = Route(name, texts, read_words(given.get("description"), where, "description"))
        for key, content in given.items():
            if key not in CARRIED and content not in (None, {}, [], ""):
                what, reason = REASONS.get(key, (f"the field {key!r}", "IR3DE has no such field"))
                left_out.add(what, reason, name)
    return list(routes.values())


def _note_settings(document: Mapping[str, Any], left_out: LeftOut) -> None:
    """List the settings of the router itself."""
    encoders = [_name_encoder(document[key]) for key in ENCODERS if document.get(key)]
    if encoders:
        left_out.add(
            f"the encoder {' '.join(encoders)}", "IR3DE brings its own embedding; `fit --embedding` takes others"
        )
    if document.get("confidence_threshold") is not None:
        left_out.add("the confidence threshold of the router", THRESHOLD_REASON)
    handled = (*ENCODERS, "routes", "routers", "router_type", "confidence_threshold")
    others: Sequence[str] = [str(key) for key, value in document.items() if key not in handled and value is not None]
    if others:
        left_out.add(f"the settings {', '.join(others)}", "they belong to semantic-router's way to decide")


def _name_encoder(value: object) -> str:
    fields = as_mapping(value)
    return " ".join(str(fields[key]) for key in ("type", "name") if fields.get(key)) if fields else str(value)
