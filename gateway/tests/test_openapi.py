"""The OpenAPI document says what the gateway does, and the gateway does what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ir3de_gateway.app import other_routes
from ir3de_gateway.config.document import Server
from ir3de_gateway.http.service import build_document
from ir3de_gateway.wire import FORMATS
from raw_sockets import ask
from running_gateway import Running, running

KEY = "one-key-for-both-doors"
ABLE = {"capabilities": ["chat", "completions", "responses", "messages", "embeddings", "tools", "vision"]}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IR3DE_API_KEY", "IR3DE_ADMIN_TOKEN"):
            patch.setenv(name, KEY)
        experts = dict.fromkeys(("law", "maths", "cooking"), ABLE)
        with running(tmp_path_factory.mktemp("openapi"), experts=experts) as found:
            yield found


@pytest.fixture(scope="module")
def api(gateway: Running) -> Any:
    schemathesis = pytest.importorskip("schemathesis")
    return schemathesis.openapi.from_url(f"{gateway.url}/openapi.json")


OPERATIONS = [
    (path, method, mode)
    for path, found in build_document(Server())["paths"].items()
    for method, operation in found.items()
    for mode in ("POSITIVE", "NEGATIVE")
    if mode == "POSITIVE" or "requestBody" in operation  # where nothing is read, nothing is wrong
]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method", "mode"), OPERATIONS)
def test_every_endpoint_keeps_to_the_document(api: Any, path: str, method: str, mode: str) -> None:
    """Any request, valid or not: an answer that is documented, never an error of the server."""
    import schemathesis

    cases = api[path][method].as_strategy(generation_mode=schemathesis.GenerationMode[mode])

    @given(case=cases)
    @settings(max_examples=7, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    def check(case: Any) -> None:
        case.call_and_validate(
            headers={"authorization": f"Bearer {KEY}"},
            excluded_checks=[
                schemathesis.checks.positive_data_acceptance,  # which experts there are is not for a schema to say
                schemathesis.checks.ignored_auth,  # sends the key that is given here
            ],
        )

    check()


def test_every_route_is_documented_and_nothing_else(gateway: Running) -> None:
    there = {(f"/v1/{path}", "post") for path in FORMATS} | {
        (re.sub(r":\w+}", "}", route.path), method.lower())
        for route in other_routes(gateway.gateway)
        for method in (route.methods or set()) - {"HEAD"}
    }
    said = ask(gateway.url, path="/openapi.json").json["paths"]
    assert {(path, method) for path, operations in said.items() for method in operations} == there


def test_keys_are_asked_for_where_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    def security(path: str, method: str) -> Any:
        return build_document(Server(api_keys_env=("KEYS",)))["paths"][path][method].get("security")

    monkeypatch.setenv("KEYS", "x")
    assert security("/v1/models", "get") == [{"bearer": []}, {"key": []}]
    monkeypatch.delenv("KEYS")
    assert security("/v1/models", "get") is None
    assert security("/admin/experts", "get") == [{"admin": []}]
    assert security("/health", "get") is None


def test_what_the_document_points_to_is_there() -> None:
    def pointers(value: Any) -> Iterator[str]:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if key == "$ref":
                yield inner
            elif isinstance(inner, (dict, list)):
                yield from pointers(inner)

    said = build_document(Server())
    used = set(pointers(said))
    assert used == {
        f"#/components/{kind}/{name}" for kind in ("schemas", "responses") for name in said["components"][kind]
    }
