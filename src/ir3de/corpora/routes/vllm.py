"""config.yaml of vLLM Semantic Router: version v0.3, which its releases 0.3 and 0.4 read, and the flat forms before.

A domain, or an embedding rule with its candidates, becomes an expert: these define the subject of a prompt. Decisions
combine such signals, and name the models. Their logic has no counterpart here; their models are carried over.

    v0.3       routing.signals.{domains, embeddings}, routing.decisions, providers.models
    until 0.2  signals.{domains, embeddings} or categories and embedding_rules, decisions, vllm_endpoints, model_config
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ir3de.corpora.routes.route import (
    LeftOut,
    Model,
    Route,
    as_mapping,
    join,
    read_mappings,
    read_name,
    read_texts,
    read_words,
)  # fmt: skip
from ir3de.errors import InputError, describe_value, name_some

SECTIONS = ("routing", "signals", "decisions", "categories", "embedding_rules", "keyword_rules", "recipes")
SUBJECTS = ("domain", "embedding")  # conditions on the subject of a prompt
FAMILIES = {"domains": "domain", "categories": "domain", "embeddings": "embedding", "embedding_rules": "embedding"}
OTHER_FAMILIES = {"keyword_rules": "keywords"}  # earlier names of signals that cannot be carried over
CARRIED = {  # fields that are read, or listed by themselves
    "file": (*SECTIONS, *FAMILIES, *OTHER_FAMILIES, "version", "providers", "vllm_endpoints", "model_config",
             "default_model", "entrypoints"),
    "signal": ("name", "category", "description", "system_prompt", "threshold", "candidates", "model_scores",
               "image_candidates", "negative_candidates", "negative_image_candidates"),
    "decision": ("name", "description", "priority", "rules", "modelRefs", "plugins"),
    "model": ("name", "provider_model_id", "backend_refs", "endpoints", "preferred_endpoints", "pricing"),
}  # fmt: skip
OWN_REASON = "it belongs to vLLM Semantic Router's way to work"
MODEL_REASON = "an expert has one model: the gateway's `fallbacks` can name others"


@dataclass
class _Decision:
    name: str
    description: str | None
    system_prompt: str | None
    subjects: list[str]
    models: list[Model] = field(default_factory=list)


def is_vllm(document: object) -> bool:
    """Whether this looks like a configuration of vLLM Semantic Router."""
    config = _unwrap(document)
    return isinstance(config, Mapping) and any(key in config for key in SECTIONS)


def read_vllm(document: object, left_out: LeftOut) -> list[Route]:
    """The domains and embedding rules of a configuration as routes."""
    config = _unwrap(document)
    if not isinstance(config, Mapping):
        raise InputError(f"expected a configuration of vLLM Semantic Router, found {describe_value(document)}")
    models = _read_models(config, left_out)
    decisions = list(_read_decisions(config, models, left_out))
    routes = join(_read_signals(config, models, left_out))
    for decision in decisions:
        for name in decision.subjects:  # a domain that only a decision names exists, too
            route = routes.setdefault(name, Route(name))
            if len(decision.subjects) == 1:
                route.description = route.description or decision.description or decision.system_prompt
    if not routes:
        raise InputError("found neither domains (categories) nor embedding rules, which define what prompts are about")
    for name, route in routes.items():
        if named := [model for one in decisions if name in one.subjects for model in one.models]:
            route.models = list(dict.fromkeys(named))  # decisions come before the scores of a category
        for other in route.models[1:]:
            left_out.add(f"the model {other.name}", MODEL_REASON, name)
    others = [str(key) for routing in _routings(config) for key in routing if key not in CARRIED["file"]]
    if others:
        left_out.add(
            f"the settings {', '.join(dict.fromkeys(others))}", "they belong to vLLM Semantic Router's way to work"
        )
    if default := _find_default(config):
        left_out.add(f"the default model {default}", "`fit --default NAME` names the expert for prompts without one")
    return list(routes.values())


def _unwrap(document: object) -> object:
    """The configuration itself: Helm values have it under `config`, the operator under `spec.config`."""
    for key in ("spec", "config"):
        inner = as_mapping(document).get(key)
        if isinstance(inner, Mapping) and not any(section in as_mapping(document) for section in SECTIONS):
            document = inner
    return document


def _routings(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The places that may hold signals and decisions, those of named recipes last."""
    yield config
    yield as_mapping(config.get("routing"))
    for recipe in read_mappings(config.get("recipes"), "recipes"):
        yield as_mapping(recipe.get("routing"))


# signals ------------------------------------------------------------------------------------------------------------


def _read_signals(config: Mapping[str, Any], models: Mapping[str, Model], left_out: LeftOut) -> Iterator[Route]:
    for routing in _routings(config):
        signals = as_mapping(routing.get("signals"))
        older = {key: routing[key] for key in (*FAMILIES, *OTHER_FAMILIES) if key in routing}
        for family, given in {**signals, **older}.items():
            if family in FAMILIES:
                yield from _read_family(family, given, models, left_out)
            elif given:
                rules = read_mappings(given, family)
                names = name_some([str(rule.get("name") or rule.get("category")) for rule in rules])
                what = OTHER_FAMILIES.get(family, family)
                left_out.add(f"{what} ({names})", "IR3DE decides by what a prompt is about, learnt from examples")


def _read_family(family: str, given: object, models: Mapping[str, Model], left_out: LeftOut) -> Iterator[Route]:
    names: set[str] = set()
    for place, rule in enumerate(read_mappings(given, family), 1):
        name = read_name(rule.get("name") or rule.get("category"), f"entry {place} of {family}")
        where = f"{name!r} in {family}"
        if name in names:
            raise InputError(f"two entries of {family} have the name {name!r}: rename one, or put them together")
        names.add(name)
        words = read_words(rule.get("description"), where, "description")
        prompt = read_words(rule.get("system_prompt"), where, "system_prompt")
        if prompt and words:
            left_out.add("the system prompt", "the gateway's `system_prompt` of an expert takes it", name)
        if rule.get("threshold") is not None:
            left_out.add("the threshold", "`ir3de calibrate` picks a threshold for the confidence", name)
        for key in ("image_candidates", "negative_candidates", "negative_image_candidates"):
            if rule.get(key):
                left_out.add(f"the {key.replace('_', ' ')}", "experts learn from texts that belong to them", name)
        left_out.add_fields(rule, CARRIED["signal"], OWN_REASON, name)
        texts = read_texts(rule.get("candidates"), where, "candidates")
        yield Route(name, texts, words or prompt, _rank_models(rule, models, left_out, name))


def _rank_models(rule: Mapping[str, Any], models: Mapping[str, Model], left_out: LeftOut, name: str) -> list[Model]:
    """The models of a category, the largest score first."""
    given = rule.get("model_scores")
    if isinstance(given, Mapping):
        given = [{"model": model, "score": score} for model, score in given.items()]
    scored = read_mappings(given, f"model_scores of {name!r}")
    if scored:
        left_out.add(
            "the model scores", "the best model is kept; `ir3de fit --outcomes` learns from measured scores", name
        )
    ranked = sorted(scored, key=lambda one: -one["score"] if isinstance(one.get("score"), int | float) else 0.0)
    return [_find_model(one, models, f"model_scores of {name!r}") for one in ranked if one.get("model")]


# decisions ----------------------------------------------------------------------------------------------------------


def _read_decisions(config: Mapping[str, Any], models: Mapping[str, Model], left_out: LeftOut) -> Iterator[_Decision]:
    """The decisions that name a subject, those of the highest priority first."""
    assigned = _read_assignments(config)
    given = [one for routing in _routings(config) for one in read_mappings(routing.get("decisions"), "decisions")]
    for one in sorted(given, key=lambda one: -one["priority"] if isinstance(one.get("priority"), int) else 0):
        name = read_name(one.get("name"), "a decision")
        where = f"decision {name!r}"
        conditions = list(_list_conditions(one.get("rules"), where))
        subjects = [of for kind, of, negated in conditions if kind in SUBJECTS and not negated]
        if others := sorted({kind for kind, _, negated in conditions if kind not in SUBJECTS or negated}):
            left_out.add(f"the conditions on {', '.join(others)}", "IR3DE decides by subject alone", name)
        if not subjects:
            left_out.add(f"the decision {name}", "its rules name neither a domain nor an embedding rule")
        left_out.add_fields(one, CARRIED["decision"], OWN_REASON, name)
        prompt = None
        for plugin in read_mappings(one.get("plugins"), f"plugins of {where}"):
            if plugin.get("type") == "system_prompt":
                text = as_mapping(plugin.get("configuration")).get("system_prompt")
                prompt = prompt or read_words(text, where, "system_prompt")
            else:
                left_out.add(f"the plugin {plugin.get('type')}", OWN_REASON, name)
        if prompt and subjects:
            left_out.add("the system prompt", "the gateway's `system_prompt` of an expert takes it", name)
        refs = read_mappings(one.get("modelRefs") or assigned.get(name), f"modelRefs of {where}")
        named = [_find_model(ref, models, where) for ref in refs if ref.get("model")]
        for ref in refs:
            left_out.add_fields(ref, ("model", "lora_name"), OWN_REASON, name)
        words = read_words(one.get("description"), where, "description")
        yield _Decision(name, words, prompt, list(dict.fromkeys(subjects)), named)


def _list_conditions(rules: object, where: str) -> Iterator[tuple[str, str, bool]]:
    """Each condition once: its type, the name of its signal, and whether it is negated."""
    waiting, seen = [(rules, False)], set()
    while waiting:
        node, negated = waiting.pop()
        if not isinstance(node, Mapping) or (id(node), negated) in seen:  # aliases of YAML may repeat a node at will
            continue
        seen.add((id(node), negated))
        if "conditions" in node:
            inner = negated != (str(node.get("operator", "")).upper() == "NOT")
            waiting += [(one, inner) for one in reversed(read_mappings(node["conditions"], f"rules of {where}"))]
        elif node.get("type"):
            yield str(node["type"]), str(node.get("name", "")).strip(), negated


def _read_assignments(config: Mapping[str, Any]) -> dict[str, Any]:
    """The models that entrypoints give to decisions by name."""
    found: dict[str, Any] = {}
    for entry in read_mappings(config.get("entrypoints"), "entrypoints"):
        for name, given in as_mapping(entry.get("assignments")).items():
            found.setdefault(str(name), as_mapping(given).get("models"))
    return found


# models -------------------------------------------------------------------------------------------------------------


def _find_model(ref: Mapping[str, Any], models: Mapping[str, Model], where: str) -> Model:
    name = read_name(ref["model"], f"a model of {where}")
    base = models.get(name, Model(name))
    adapter = ref.get("lora_name")  # vLLM serves an adapter under its own name
    return Model(read_name(adapter, f"an adapter of {where}"), base.base_url) if adapter else base


def _read_models(config: Mapping[str, Any], left_out: LeftOut) -> dict[str, Model]:
    """Each model's name upstream, and its first endpoint."""
    found: dict[str, Model] = {}
    for given in read_mappings(as_mapping(config.get("providers")).get("models"), "providers.models"):
        name = str(given.get("name", ""))
        places = read_mappings(given.get("backend_refs") or given.get("endpoints"), f"backend_refs of {name!r}")
        address = next(filter(None, map(_write_address, places)), None)
        if len(places) > 1:
            left_out.add("the further endpoints", "the gateway's `replicas` of an expert takes them", name)
        if any(place.get("api_key") or place.get("api_key_env") for place in places):
            left_out.add(
                "the API key", "the gateway's `api_key_env` of an expert names the variable that holds it", name
            )
        _note_model(given, left_out, name)
        found[name] = Model(str(given.get("provider_model_id") or name), address)
    endpoints = read_mappings(config.get("vllm_endpoints"), "vllm_endpoints")
    for key, given in as_mapping(config.get("model_config")).items():
        wanted = read_texts(as_mapping(given).get("preferred_endpoints"), f"model {key!r}", "preferred_endpoints")
        place = next((one for one in endpoints if one.get("name") in wanted), {})
        found.setdefault(str(key), Model(str(key), _write_address(place)))
        _note_model(as_mapping(given), left_out, str(key))
    return found


def _note_model(given: Mapping[str, Any], left_out: LeftOut, name: str) -> None:
    if given.get("pricing"):
        left_out.add("the prices", "the gateway's `price` of an expert takes them", name)
    left_out.add_fields(given, CARRIED["model"], OWN_REASON, name)


def _write_address(place: Mapping[str, Any]) -> str | None:
    """The address of an endpoint's API, as OpenAI's clients take it."""
    if place.get("base_url"):
        return str(place["base_url"]).rstrip("/")
    host = str(place.get("endpoint") or place.get("address") or "").rstrip("/")
    if not host:
        return None
    if ":" in host.partition("://")[2] or "port" not in place:
        whole = host
    else:
        whole = f"[{host}]:{place['port']}" if ":" in host else f"{host}:{place['port']}"
    whole = whole if "://" in whole else f"{place.get('protocol') or 'http'}://{whole}"
    return whole if "/" in whole.partition("://")[2] else f"{whole}/v1"


def _find_default(config: Mapping[str, Any]) -> str | None:
    defaults = as_mapping(as_mapping(config.get("providers")).get("defaults"))
    found = defaults.get("model") or defaults.get("default_model") or config.get("default_model")
    return str(found) if found else None
