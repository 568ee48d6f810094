"""Write openapi.json, which the gateway serves, and docs/http.md; `--check` only compares.

The schemas are generated from pydantic models: those that the gateway validates with, and openapi_*models.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import openapi_admin_models as admin
import openapi_models as s
from ir3de_gateway.admin.candidate import Promotion, Rollback
from ir3de_gateway.admin.changes import ExpertAddition, ReplicaChange, RouterReplacement
from ir3de_gateway.admin.key_routes import KeyAddition
from ir3de_gateway.http.feedback import FeedbackRequest
from ir3de_gateway.http.service import DOCUMENT as TARGET
from ir3de_gateway.http.traffic import Label
from ir3de_gateway.requests.client import PRICE_PATTERN
from ir3de_gateway.stages.relay import PROVENANCE_HEADERS
from ir3de_gateway.wire.formats import PASSTHROUGH_FORMATS, PassthroughFormat
from reference_pages import describe_http

Schema = dict[str, Any]
Model = type[BaseModel]

PAGE = Path(__file__).parent.parent / "docs" / "http.md"
_STRING: Schema = {"type": "string"}
_REF = "#/components/schemas/{model}"
_models: set[Model] = set()  # that the document refers to
_ERRORS = {
    "400": "The request is not valid, or no expert may answer it; `param` names the field.",
    "401": "The key is missing or wrong.",
    "403": "The origin or the host name is not allowed, or /admin is off.",
    "404": "The resource does not exist.",
    "405": "The method is not allowed; `allow` names those that are.",
    "408": "The request did not arrive in time.",
    "413": "The request is too large.",
    "415": "The request is compressed.",
}
_UPSTREAM = {
    "429": "Every expert that may answer has reached its concurrency limit; `retry-after` gives the seconds to wait.",
    "502": "The expert cannot be reached, or sent an invalid answer.",
    "503": "The experts that may answer have failed repeatedly; their circuit breakers are open.",
    "504": "The expert did not answer in time.",
}
_CHANGES = {
    "409": "The change conflicts with the current state.",
    "412": "The state has changed since the ETag in `if-match`.",
    "422": "A field is wrong, or does not fit the current state.",
    "500": "Nothing was changed.",
}
_INFERENCE: dict[str, tuple[str, Model]] = {
    "chat/completions": ("OpenAI's chat completions.", s.ChatRequest),
    "completions": ("OpenAI's completions.", s.CompletionRequest),
    "responses": ("OpenAI's responses, where the expert has them.", s.ResponseRequest),
    "messages": ("Anthropic's messages, where the expert has them.", s.MessagesRequest),
    "messages/count_tokens": ("The number of tokens of such a request.", s.MessagesRequest),
    "embeddings": ("OpenAI's embeddings, always from the same expert.", s.EmbeddingRequest),
}


def build_document() -> Schema:
    """The document of a gateway that demands keys. Its version is filled in when it is served."""
    security: list[Schema] = [{"bearer": []}, {"key": []}]
    errors = _ERRORS | _UPSTREAM | _CHANGES
    responses = {f"Error{code}": _describe_error(code, text) for code, text in errors.items()}
    paths = {
        **_describe_v1(security),
        **_describe_feedback(security),
        **_describe_passthrough(security),
        **_describe_service(),
        **_describe_admin(),
    }
    models = sorted(_models, key=lambda model: model.__name__)
    _, definitions = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "IR3DE gateway",
            "version": "",
            "description": "One OpenAI-compatible endpoint in front of many experts. The model `auto` routes.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "responses": responses,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A client's key."},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "A client's key."},
                "admin": {"type": "http", "scheme": "bearer", "description": "The admin token."},
            },
        },
    }


def _describe_v1(security: list[Schema]) -> dict[str, Schema]:
    controls = [
        _parameter("header", "x-ir3de-allow", _STRING, "Experts that may answer, separated by commas."),
        _parameter("header", "x-ir3de-deny", _STRING, "Experts that may not answer."),
        _parameter("header", "x-ir3de-max-price", {"type": "string", "pattern": PRICE_PATTERN}, "Of a million tokens."),
        _parameter("header", "x-ir3de-skip", {"enum": ["true", "false", "1", "0"]}, "Use the default expert."),
        _parameter("header", "x-session-id", _STRING, "The conversation, which stays with its expert."),
    ]
    answer = _answer(s.Answer) | {"headers": {name: {"schema": _STRING} for name in PROVENANCE_HEADERS}}
    answer["content"]["text/event-stream"] = {}
    found: dict[str, Schema] = {}
    for path, (summary, body) in _INFERENCE.items():
        operation = _operation(summary, answer, _ERRORS | _UPSTREAM, security, body, controls)
        operation["responses"]["default"] = {"description": "The answer of an expert, unchanged."}
        found[f"/v1/{path}"] = {"post": operation}
    name = _parameter("path", "name", _STRING, "An expert, or `auto`.")
    errors = _ERRORS | {"422": _CHANGES["422"]}
    return found | {
        "/v1/models": {"get": _operation("`auto`, and every expert.", _answer(s.ModelList), _ERRORS, security)},
        "/v1/models/{name}": {"get": _operation("One model.", _answer(s.Model), _ERRORS, security, None, [name])},
        "/v1/usage": {"get": _operation("The limits and the usage of the key.", _answer(admin.Key), _ERRORS, security)},
        "/v1/route": {
            "post": _operation("Route prompts, and explain.", _answer(s.RouteAnswer), errors, security, s.RouteRequest)
        },
    }


def _describe_feedback(security: list[Schema]) -> dict[str, Schema]:
    errors, security = _ERRORS | {"503": "The journal cannot be written now."}, [*security, {"admin": []}]
    request = [_parameter("path", "id", _STRING, "The request, or its answer.")]
    give = _operation("Keep feedback on an answer.", _answer(s.Feedback), errors, security, FeedbackRequest)
    show = _operation("The feedback on an answer.", _answer(s.FeedbackList), errors, security, None, request)
    delete = _operation("Delete one's feedback.", _answer(s.DeletedFeedback), errors, security, None, request)
    return {"/v1/feedback": {"post": give}, "/v1/feedback/{id}": {"get": show, "delete": delete}}


def _describe_passthrough(security: list[Schema]) -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    for wire in PASSTHROUGH_FORMATS:
        for path in filter(None, (f"/v1/{wire.path}", wire.also_at)):
            found.setdefault(path, {})[wire.method.lower()] = _describe_passed(wire, security)
    return found


def _describe_passed(wire: PassthroughFormat, security: list[Schema]) -> Schema:
    """A passed-through endpoint: only what the gateway itself reads is described."""
    answer: Schema = {
        "description": "The answer of the expert, unchanged.",
        "headers": {name: {"schema": _STRING} for name in PROVENANCE_HEADERS},
        "content": {"*/*": {}},
    }
    parameters = [_parameter("header", "x-ir3de-allow", _STRING, "Experts that may answer, separated by commas.")]
    if wire.finds is not None:
        parameters.append(_parameter("path", "id", _STRING, f"The {wire.finds}."))
    operation = _operation(wire.summary, answer, _ERRORS | _UPSTREAM, security, None, parameters)
    operation["responses"]["default"] = {"description": "The answer of the expert, unchanged."}
    if wire.body == "json":
        operation["requestBody"] = {"required": True, "content": _content(s.PassedRequest)}
    elif wire.body == "form":
        content = {"multipart/form-data": {"schema": _refer(s.PassedForm)}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _describe_service() -> dict[str, Schema]:
    def show(summary: str, answer: Schema) -> dict[str, Schema]:
        return {"get": _operation(summary, answer)}

    def text(kind: str) -> Schema:
        return {"description": "Text.", "content": {kind: {"schema": _STRING}}}

    ready = show("Whether an expert is available.", _answer(s.Health))
    ready["get"]["responses"]["503"] = _answer(s.Health)
    file = _operation("A file of the page.", {"description": "The file.", "content": {"*/*": {}}}, _pick("404"))
    file["parameters"] = [_parameter("path", "file", _STRING, "Its name.")]
    file["responses"]["304"] = {"description": "The client already has it."}
    return {
        "/health": show("The state of each expert's circuit breaker.", _answer(s.Health)),
        "/livez": show("Whether the process is alive.", _answer(s.Health)),
        "/readyz": ready,
        "/version": show("The version of the gateway and its router.", _answer(s.Version)),
        "/metrics": show("Metrics for Prometheus.", text("*/*")),
        "/openapi.json": show("This document.", _answer(s.AnyObject)),
        "/": show("The page.", text("text/html")),
        "/page/{file}": {"get": file},
    }


def _describe_admin() -> dict[str, Schema]:
    match = _parameter("header", "if-match", _STRING, "The ETag that the change is meant for.")

    def show(summary: str, answer: Model, *parameters: Schema, body: Model | None = None) -> Schema:
        errors = _ERRORS | _CHANGES
        return _operation(summary, _answer(answer, etag=True), errors, [{"admin": []}], body, list(parameters))

    def change(summary: str, answer: Model, *parameters: Schema, body: Model | None = None) -> Schema:
        return show(summary, answer, match, *parameters, body=body)

    name = _parameter("path", "name", _STRING, "The expert.")
    replica = _parameter("path", "replica", _STRING, "The replica's name, as GET /admin/experts has it.")
    keep = _parameter("query", "domain", {"enum": ["keep"]}, "Remove the endpoint only; the router keeps the domain.")
    configured = _parameter("query", "router", {"enum": ["configured"]}, "Serve the configured router.")
    last = _parameter("query", "last", {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 100}, "Lines.")
    many = _parameter("query", "n", {"type": "integer", "minimum": 1, "maximum": 200, "default": 20}, "How many.")
    listed = _parameter("query", "limit", {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}, "How many.")
    before = _parameter("query", "before", {"type": "integer", "minimum": 1}, "Those before: `older` of an answer.")
    labelled = _parameter("path", "id", _STRING, "The request with the prompt.")
    why = _parameter("query", "why", _STRING, "The reason, for the history.")
    of = "by number, or the beginning of its digest"
    pair = (
        _parameter("query", "from", _STRING, f"A version, {of}; by default the one before."),
        _parameter("query", "to", _STRING, f"A version, {of}; by default the live one."),
    )
    choose = _parameter("query", "scorer", {"enum": ["choose"]}, "Choose the router's scorer again.")
    added = change("Add an expert, or more texts for one.", admin.ChangedExpert, body=ExpertAddition)
    added["responses"]["201"] = _answer(admin.ChangedExpert, etag=True)
    keyed = change("Add a key, or change or rotate one.", admin.MadeKey, body=KeyAddition)
    keyed["responses"]["201"] = _answer(admin.MadeKey, etag=True)
    key = _parameter("path", "name", _STRING, "The key.")
    return {
        "/admin/experts": {"get": show("Every expert.", admin.ExpertList), "post": added},
        "/admin/experts/{name}": {"delete": change("Remove an expert.", admin.RemovedExpert, name, keep, choose)},
        "/admin/experts/{name}/replicas/{replica}": {
            "put": change("Drain or resume a replica.", admin.Replica, name, replica, body=ReplicaChange)
        },
        "/admin/router": {
            "get": show("The router that serves.", admin.Router),
            "put": change("Serve another router.", admin.Router, body=RouterReplacement),
            "delete": change("Serve the configured router again.", admin.Router),
        },
        "/admin/router/history": {"get": show("Every router that went live, newest first.", admin.RouterHistory)},
        "/admin/router/diff": {"get": show("What differs between two versions.", admin.RouterDiff, *pair)},
        "/admin/router/rollback": {"post": change("Serve an earlier version again.", admin.Router, body=Rollback)},
        "/admin/candidate": {
            "get": show("The candidate router, and where its test stands.", admin.Candidate),
            "delete": change("End its trial.", admin.Candidate, why),
        },
        "/admin/candidate/promote": {"post": change("Put the candidate live.", admin.Router, body=Promotion)},
        "/admin/requests": {"get": show("The last requests, newest first.", admin.RoutedRequestList, listed, before)},
        "/admin/drift": {"get": show("The changes of the traffic, in words, and shares in windows.", admin.Drift)},
        "/admin/labels/next": {"get": show("The prompts whose labels would help most.", s.AnyObject, many)},
        "/admin/labels/domains": {"get": show("Groups of prompts that fit no expert.", s.AnyObject)},
        "/admin/labels": {"post": show("Label a prompt.", s.AnyObject, body=Label)},
        "/admin/labels/{id}": {"delete": show("Delete your label of a prompt.", s.AnyObject, labelled)},
        "/admin/reload": {"post": change("Read the configuration again.", s.AnyObject, configured)},
        "/admin/keys": {
            "get": _operation("Every key.", _answer(admin.KeyList), _ERRORS | _CHANGES, [{"admin": []}]),
            "post": keyed,
        },
        "/admin/keys/{name}": {"delete": change("Remove a key.", s.AnyObject, key)},
        "/admin/audit": {"get": show("The last changes, newest first.", s.AnyObject, last)},
    }


def _pick(*codes: str) -> dict[str, str]:
    return {code: _ERRORS[code] for code in codes}


def _operation(
    summary: str,
    answer: Schema,
    errors: dict[str, str] | None = None,
    security: list[Schema] | None = None,
    body: Model | None = None,
    parameters: list[Schema] | None = None,
) -> Schema:
    responses = {code: {"$ref": f"#/components/responses/Error{code}"} for code in errors or ()}
    found: Schema = {"summary": summary, "responses": {"200": answer, **responses}}
    if security:
        found["security"] = security
    if body:
        found["requestBody"] = {"required": True, "content": _content(body)}
    if parameters:
        found["parameters"] = parameters
    return found


def _describe_error(code: str, text: str) -> Schema:
    found = _answer(s.Error) | {"description": text}
    if code in ("429", "503"):
        found["headers"]["retry-after"] = {"schema": {"type": "integer", "minimum": 0}}
    return found


def _answer(model: Model, *, etag: bool = False) -> Schema:
    headers: Schema = {"x-request-id": {"schema": _STRING, "description": "The client's own request id, or a new one."}}
    if etag:
        headers["etag"] = {"schema": _STRING, "required": True}
    return {"description": model.__doc__ or model.__name__, "headers": headers, "content": _content(model)}


def _content(model: Model) -> Schema:
    return {"application/json": {"schema": _refer(model)}}


def _refer(model: Model) -> Schema:
    _models.add(model)
    return {"$ref": _REF.format(model=model.__name__)}


def _parameter(place: str, name: str, schema: Schema, description: str) -> Schema:
    required = {"required": True} if place == "path" else {}
    return {"name": name, "in": place, "schema": schema, "description": description, **required}


def main() -> int:
    document = build_document()
    wanted = {TARGET: json.dumps(document, indent=1, ensure_ascii=False) + "\n", PAGE: describe_http(document)}
    failed = 0
    for target, made in wanted.items():
        if "--check" not in sys.argv[1:]:
            target.write_text(made, encoding="utf-8")
        elif not target.is_file() or target.read_text(encoding="utf-8") != made:
            print(f"{target.name} is out of date: run python scripts/generate_openapi.py", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
