"""GET /openapi.json: the gateway's endpoints as an OpenAPI 3.1 document, for tools that read one."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ir3de.gateway.config.models import Server
from ir3de.gateway.http.access import client_keys
from ir3de.gateway.http.openapi_schemas import COUNT, SCHEMAS, STRING, Schema, ref
from ir3de.gateway.requests.controls import PRICE
from ir3de.gateway.responses.provenance import HEADERS

_ERRORS = {
    "400": "The request cannot be read, or nobody may answer it; `param` names the field.",
    "401": "The key is missing or wrong.",
    "403": "The page or the host name is not known here, or there is no /admin.",
    "404": "There is nothing of this name.",
    "405": "Not with this method; `allow` names those that are possible.",
    "408": "The request did not arrive in time.",
    "413": "The request is too large.",
    "415": "The request is compressed.",
}
_UPSTREAM = {
    "429": "Every expert that may answer has as many requests as it takes; `retry-after` says when to come back.",
    "502": "The expert cannot be reached, or sent something that is no answer.",
    "503": "The experts that may answer have failed repeatedly and rest.",
    "504": "The expert did not answer in time.",
}
_CHANGES = {
    "409": "The change does not fit what there is.",
    "412": "Things have changed since the ETag in `if-match`.",
    "422": "A field is wrong, or does not go with what there is.",
    "500": "Nothing was changed.",
}
_ALL = _ERRORS | _UPSTREAM | _CHANGES
_NUMBER = {"x-request-id": {"schema": STRING, "description": "The request's number, its own or a new one."}}


def document(server: Server) -> dict[str, Any]:
    """The document; keys are asked for where the gateway asks for them."""
    return _document(bool(client_keys(server)))


@lru_cache(maxsize=2)
def _document(keys: bool) -> dict[str, Any]:
    client: list[Schema] = [{"bearer": []}, {"key": []}] if keys else []
    paths = {**_inference(client), **_questions(client), **_operations(), **_admin()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "IR3DE gateway",
            "version": version("ir3de"),
            "description": "One OpenAI-compatible endpoint in front of many experts. `auto` routes.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "responses": {f"Error{code}": _error(code, said) for code, said in _ALL.items()},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A client's key."},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The same."},
                "admin": {"type": "http", "scheme": "bearer", "description": "The admin's token."},
            },
        },
    }


def _inference(security: list[Schema]) -> dict[str, Schema]:
    controls = [
        _header("x-ir3de-allow", STRING, "Experts that may answer, separated by commas."),
        _header("x-ir3de-deny", STRING, "Experts that may not."),
        _header("x-ir3de-max-price", {"type": "string", "pattern": PRICE}, "For a million tokens."),
        _header("x-ir3de-skip", {"enum": ["true", "false", "1", "0"]}, "Straight to the default expert."),
        _header("x-session-id", STRING, "The conversation, which stays with its expert."),
    ]
    kinds = {
        "chat/completions": ("Chat", "OpenAI's chat completions."),
        "completions": ("Completion", "OpenAI's completions."),
        "responses": ("Response", "OpenAI's responses, where the expert has them."),
        "messages": ("AnthropicMessages", "Anthropic's messages, where the expert has them."),
        "messages/count_tokens": ("AnthropicMessages", "How many tokens such a request has."),
        "embeddings": ("Embeddings", "OpenAI's embeddings, always of the same expert."),
    }
    said = {name: {"schema": STRING} for name in HEADERS}
    answered = {
        "description": "The expert's answer as it came, and who gave it.",
        "headers": said,
        "content": {
            "application/json": {"schema": ref("Answer")},
            "text/event-stream": {},
        },
    }
    found = {}
    for path, (schema, summary) in kinds.items():
        more = {"default": {"description": "What an expert answered, passed on as it is."}}
        operation = _operation(summary, answered, _ERRORS | _UPSTREAM, security, schema, controls)
        operation["responses"] |= more
        found[f"/v1/{path}"] = {"post": operation}
    return found


def _questions(security: list[Schema]) -> dict[str, Schema]:
    name = {"name": "name", "in": "path", "required": True, "schema": STRING}
    asked = _ERRORS | {"422": _CHANGES["422"]}
    return {
        "/v1/models": {"get": _operation("`auto`, and every expert.", _json("Models"), _ERRORS, security)},
        "/v1/models/{name}": {"get": _operation("One of them.", _json("Model"), _ERRORS, security, parameters=[name])},
        "/v1/route": {
            "post": _operation("Where prompts would go, and why.", _json("Decisions"), asked, security, "Route")
        },
    }


def _operations() -> dict[str, Schema]:
    def text(kind: str) -> Schema:
        return {"description": "As it is.", "content": {kind: {"schema": STRING}}}

    resting = {"503": {"description": "Every expert rests.", "content": _content("Health")}}
    ready = _operation("Whether an expert can be asked.", _json("Health"), {})
    ready["responses"] |= resting
    file = {"name": "file", "in": "path", "required": True, "schema": STRING}
    known = {"200": {"description": "A file.", "content": {"*/*": {}}}, "304": {"description": "As you have it."}}
    part = _operation("A file of the page.", {}, {"404": _ERRORS["404"]}, parameters=[file])
    part["responses"] |= known
    return {
        "/health": {"get": _operation("How each expert is.", _json("Health"), {})},
        "/livez": {"get": _operation("Whether the process is there.", _json("Health"), {})},
        "/readyz": {"get": ready},
        "/version": {"get": _operation("Which version serves which router.", _json("Version"), {})},
        "/metrics": {"get": _operation("For Prometheus.", text("*/*"), {})},
        "/openapi.json": {"get": _operation("This document.", _json("Anything"), {})},
        "/": {"get": _operation("The page.", text("text/html"), {})},
        "/page/{file}": {"get": part},
    }


def _admin() -> dict[str, Schema]:
    security: list[Schema] = [{"admin": []}]
    match = _header("if-match", STRING, "The ETag that the change is meant for.")

    def change(summary: str, schema: str = "Anything", body: str = "", *more: Schema) -> Schema:
        return _operation(summary, _json(schema, etag=True), _ERRORS | _CHANGES, security, body, [match, *more])

    def show(summary: str, schema: str = "Anything", *more: Schema, etag: bool = True) -> Schema:
        return _operation(summary, _json(schema, etag=etag), _ERRORS | _CHANGES, security, parameters=list(more))

    name = {"name": "name", "in": "path", "required": True, "schema": STRING}
    added = change("Add an expert, or give more to one.", "Expert", "NewExpert")
    added["responses"]["201"] = _json("Expert", etag=True)
    last = _query("last", {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 100})
    return {
        "/admin/experts": {"get": show("Every expert.", "Experts"), "post": added},
        "/admin/experts/{name}": {
            "delete": change("Take an expert out.", "Anything", "", name, _query("domain", {"enum": ["keep"]}))
        },
        "/admin/router": {
            "get": show("The router that serves.", "Router"),
            "put": change("Serve another one.", "Router", "OtherRouter"),
            "delete": change("Serve the configured one again.", "Router"),
        },
        "/admin/reload": {
            "post": change("Read the configuration again.", "Anything", "", _query("router", {"enum": ["configured"]}))
        },
        "/admin/audit": {"get": show("The last changes, newest first.", "Anything", last)},
    }


# parts ----------------------------------------------------------------------------------------------------------


def _operation(
    summary: str,
    answered: Schema,
    errors: dict[str, str],
    security: list[Schema] | None = None,
    body: str = "",
    parameters: list[Schema] | None = None,
) -> Schema:
    responses: Schema = {"200": answered} if answered else {}
    responses |= {code: {"$ref": f"#/components/responses/Error{code}"} for code in errors}
    found: Schema = {"summary": summary, "responses": responses}
    if security:
        found["security"] = security
    if body:
        found["requestBody"] = {"required": True, "content": _content(body)}
    if parameters:
        found["parameters"] = parameters
    return found


def _error(code: str, said: str) -> Schema:
    headers = _NUMBER | ({"retry-after": {"schema": COUNT}} if code in ("429", "503") else {})
    return {"description": said, "headers": headers, "content": _content("Error")}


def _content(schema: str) -> Schema:
    return {"application/json": {"schema": ref(schema)}}


def _json(schema: str, *, etag: bool = False) -> Schema:
    headers = _NUMBER | ({"etag": {"schema": STRING, "required": True}} if etag else {})
    return {"description": "As asked for.", "headers": headers, "content": _content(schema)}


def _header(name: str, schema: Schema, description: str) -> Schema:
    return {"name": name, "in": "header", "schema": schema, "description": description}


def _query(name: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "schema": schema}


async def show(request: Request) -> Response:
    """The document of the gateway as it is configured."""
    return JSONResponse(document(request.app.state.gateway.live.snapshot.config.server))


routes = [Route("/openapi.json", show, methods=["GET"])]
