"""The schemas of the OpenAPI document: what the gateway itself looks at. Everything else passes undescribed."""

from __future__ import annotations

from typing import Any

from ir3de.gateway.requests.controls import Controls
from ir3de.policies import COSTS
from ir3de.selectors import MOST_TOKENS

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
STRINGS: Schema = {"type": "array", "items": STRING}
_NAME: Schema = {"type": "string", "minLength": 1}
_AMOUNT: Schema = {"type": "number", "minimum": 0}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def some(**properties: Schema) -> Schema:
    """An object with these properties and any others."""
    return {"type": "object", "properties": properties}


def only(required: str, **properties: Schema) -> Schema:
    """An object with these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def listed(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def asked(required: str, **properties: Schema) -> Schema:
    """A request for an expert: its text, and what the gateway reads beside it."""
    common = {"model": {**_NAME, "default": "auto"}, "stream": or_null(BOOLEAN), "ir3de": or_null(ref("Controls"))}
    return {"type": "object", "properties": {**properties, **common}, "required": [required]}


def _role(name: str) -> Schema:
    return {"type": "object", "required": ["role"], "properties": {"role": STRING, "content": ref(name)}}


_WEIGHTS = only("", **dict.fromkeys(COSTS, _AMOUNT))
_CONTROLS: Schema = {
    "allow": STRINGS,
    "deny": STRINGS,
    "max_price": _AMOUNT,
    "skip": BOOLEAN,
    "session": STRING,
    "weights": _WEIGHTS,
}
assert set(_CONTROLS) == set(Controls.__dataclass_fields__)

_TEXT_KINDS = ["text", "input_text", "output_text"]
SCHEMAS: dict[str, Schema] = {
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": STRING,
                    "type": STRING,
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
            }
        },
    },
    "Controls": only("", **{name: or_null(schema) for name, schema in _CONTROLS.items()}),
    "Part": {
        "anyOf": [
            STRING,
            {
                "type": "object",
                "required": ["type", "text"],
                "properties": {"type": {"enum": _TEXT_KINDS}, "text": STRING},
            },
            {
                "type": "object",
                "required": ["type"],
                "properties": {"type": {"type": "string", "not": {"enum": _TEXT_KINDS}}},
            },
        ]
    },
    "Content": {"anyOf": [STRING, {"type": "null"}, listed(ref("Part"))]},
    "Messages": listed(_role("Content"), minItems=1),
    "Chat": asked("messages", messages=ref("Messages")),
    "Completion": asked("prompt", prompt={"anyOf": [STRING, listed({}, minItems=1)]}),
    "Response": asked("input", input={"anyOf": [STRING, listed({"type": "object"}, minItems=1)]}),
    "AnthropicMessages": asked("messages", messages=ref("Messages"), system=ref("Content")),
    "Embeddings": asked("input", input={"anyOf": [STRING, listed({}, minItems=1)]}),
    "Answer": some(model=STRING, ir3de=ref("Provenance")),
    "Provenance": {
        **some(
            expert=STRING,
            model=STRING,
            router=STRING,
            why=STRING,
            request_id=STRING,
            confidence={"type": "number", "minimum": 0, "maximum": 1},
            margin={"type": "number"},
            abstained=BOOLEAN,
            fallbacks=listed(some(**{"from": STRING, "to": STRING, "reason": STRING})),
        ),
        "required": ["expert", "model", "router", "why", "fallbacks", "request_id"],
    },
    "Model": {**some(id=STRING, object={"const": "model"}, created=COUNT, owned_by=STRING), "required": ["id"]},
    "Models": {**some(object={"const": "list"}, data=listed(ref("Model"))), "required": ["object", "data"]},
    "Route": {
        **only(
            "",
            input={"anyOf": [STRING, listed(STRING, minItems=1, maxItems=1_000)]},
            messages=ref("Messages"),
            explain=or_null(BOOLEAN),
            flips=or_null(BOOLEAN),
            selector=or_null(STRING),
            k=or_null({"type": "integer", "minimum": 1, "maximum": MOST_TOKENS}),
            scorer=or_null(STRING),
            weights=or_null(_WEIGHTS),
        ),
        "oneOf": [{"required": ["input"]}, {"required": ["messages"]}],
    },
    "Decisions": {
        **some(
            object={"const": "list"},
            router=STRING,
            experts=STRINGS,
            data=listed({**some(index=COUNT, expert=STRING), "required": ["index", "expert", "confidence", "ranking"]}),
            options=some(selectors={"type": "array"}, scorers={"type": "array"}),
        ),
        "required": ["object", "router", "experts", "data", "options"],
    },
    "Health": {**some(status={"enum": ["ok", "degraded", "unavailable"]}), "required": ["status"]},
    "Version": {**some(name={"const": "ir3de"}, version=STRING, router=STRING), "required": ["name", "version"]},
    "NewExpert": only(
        "name",
        name={**_NAME, "maxLength": 200},
        upstream=or_null({"type": "object", "description": "The fields of an expert in the configuration file."}),
        texts=or_null(STRINGS),
        file=or_null(only("name content", name={**_NAME, "maxLength": 1_000}, content=STRING)),
        merge=BOOLEAN,
    ),
    "OtherRouter": only("path", path={**_NAME, "maxLength": 4_000}),
    "Expert": {
        **some(
            name=STRING,
            upstream={"type": ["object", "null"]},
            routed=BOOLEAN,
            breaker={"enum": ["closed", "open", "half-open"]},
            in_flight=COUNT,
            waiting=COUNT,
            prompts={"type": ["integer", "null"]},
            tokens={"type": ["integer", "null"]},
        ),
        "required": ["name", "upstream", "routed"],
    },
    "Experts": {**some(object={"const": "list"}, data=listed(ref("Expert"))), "required": ["data"]},
    "Router": {**some(path=STRING, digest=STRING, experts=STRINGS), "required": ["path", "digest", "experts"]},
    "Anything": {"type": "object"},
}
