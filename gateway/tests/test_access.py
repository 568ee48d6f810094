"""Who may come in: keys, pages, names of the machine, numbers of requests; and what never gets out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from hmac import compare_digest
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from ir3de_gateway.stages import accept as access
from ir3de_gateway.stages.accept import AccessControl
from raw_sockets import Got, ask, chat
from running_gateway import QUESTIONS, Running, config_for, failing, running

FRIEND, STRANGER = "https://friend.example", "https://stranger.example"
LAW = chat(QUESTIONS["law"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("doors")


@pytest.fixture(scope="module")
def locked(folder: Any) -> Iterator[Running]:
    """With two clients' keys, an admin token, a page that may call it, and an upstream key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEYS", "sk-one, sk-zwei-ä")
        patch.setenv("IR3DE_ADMIN_TOKEN", "root")
        patch.setenv("UPSTREAM", "sk-upstream")
        server = {"api_keys_env": ["KEYS"], "cors_origins": [FRIEND]}
        with running(folder, server=server, experts={"law": {"api_key_env": "UPSTREAM"}}) as found:
            yield found


@pytest.fixture(scope="module")
def unlocked(folder: Any) -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("IR3DE_API_KEY", raising=False)
        patch.delenv("IR3DE_ADMIN_TOKEN", raising=False)
        with running(folder, routing={"pinning": {"release": 1}}) as found:
            yield found


# keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer sk-two"}, 401),
        ({"authorization": "Bearer sk-on"}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": "Basic sk-one"}, 401),
        ({"authorization": "Bearer root"}, 401),  # the admin's is not a client's
        ({"authorization": "Bearer sk-one"}, 200),
        ({"authorization": "bearer  sk-one "}, 200),
        ({"x-api-key": "sk-one"}, 200),
        ({"authorization": "Bearer sk-zwei-ä".encode().decode("latin-1")}, 200),
    ],
)
def test_a_key_lets_in_and_nothing_else_does(locked: Running, headers: dict[str, str], status: int) -> None:
    for body, path in ((LAW, "/v1/chat/completions"), (None, "/v1/models")):
        got = ask(locked.url, body, path, **headers)
        assert got.status == status
        if status == 401:
            assert (got.error["code"], got.headers["www-authenticate"]) == ("invalid_api_key", "Bearer")


def test_a_key_that_is_missing_is_told_from_one_that_is_wrong(locked: Running) -> None:
    assert "is missing: send it" in ask(locked.url, LAW).error["message"]
    assert "unknown API key" in ask(locked.url, LAW, authorization="Bearer sk-two").error["message"]


def test_the_admin_has_a_token_of_its_own(locked: Running, unlocked: Running) -> None:
    for headers in ({}, {"authorization": "Bearer nobody's"}):
        got = ask(locked.url, path="/admin/experts", **headers)
        assert (got.status, got.error["code"]) == (401, "invalid_admin_token")
    got = ask(locked.url, path="/admin/experts", authorization="Bearer sk-one")  # a client's key, which is right
    assert (got.status, got.error["code"]) == (403, "missing_scope")
    assert "has no scope 'admin', only inference, metrics, models, route: contact the gateway" in got.error["message"]
    assert ask(locked.url, path="/admin/nothing", authorization="Bearer root").status == 404
    got = ask(unlocked.url, path="/admin/experts", authorization="Bearer root")
    assert (got.status, got.error["code"]) == (403, "no_admin")


@pytest.mark.parametrize("path", ["/health", "/livez", "/readyz", "/version"])
def test_whether_it_is_well_is_no_secret(locked: Running, path: str) -> None:
    assert ask(locked.url, path=path).status == 200


def test_the_admin_token_is_compared_in_constant_time_and_kept_as_a_hash(
    locked: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare_digest(one, other)

    monkeypatch.setattr(access.hmac, "compare_digest", compare)  # watches, and compares all the same
    assert ask(locked.url, path="/admin/experts", authorization="Bearer root").status == 200
    assert ask(locked.url, path="/admin/experts", authorization="Bearer roo").status == 401
    assert len(compared) == 2 and {len(side) for pair in compared for side in pair} == {32}


def test_a_gateway_below_another_application_is_locked_too(locked: Running) -> None:
    """Paths are then longer; neither the lock nor the way may depend on that."""
    config = config_for(
        "http://127.0.0.1:1", locked.gateway.live.snapshot.config.router.path, server={"api_keys_env": ["KEYS"]}
    )
    seen = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["path"])

    async def call(path: str, root: str = "", app: Any = None) -> list[Any]:
        said: list[Any] = []

        async def send(message: Any) -> None:
            said.append(message)

        app = app or Starlette(routes=[Mount("/below", guard)])
        scope = {"type": "http", "method": "POST", "path": path, "root_path": root, "headers": [(b"host", b"x")]}
        await app(scope, lambda: asyncio.sleep(0), send)
        return [message.get("status") for message in said if message["type"] == "http.response.start"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEYS", "sk-one")
        guard = AccessControl(inner, config, {})
    assert asyncio.run(call("/below/v1/models")) == [401]
    assert asyncio.run(call("/above/below/admin/x", "/above")) == [403]
    assert asyncio.run(call("/v1/models", "/v", guard)) == [401]  # a prefix ends where a name ends
    assert asyncio.run(call("/below/health")) == []
    assert seen == ["/below/health"]


# pages ----------------------------------------------------------------------------------------------------------


def test_a_page_that_may_call_is_told_so_before_it_has_a_key(locked: Running) -> None:
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-mine"}
    got = ask(locked.url, None, method="OPTIONS", origin=FRIEND, **asks)
    assert got.status == 204
    assert got.headers["access-control-allow-origin"] == FRIEND
    assert "POST" in got.headers["access-control-allow-methods"]
    assert got.headers["access-control-allow-headers"] == "authorization,x-mine"
    got = ask(locked.url, LAW, origin=FRIEND, authorization="Bearer sk-one")
    assert (got.status, got.headers["access-control-allow-origin"]) == (200, FRIEND)
    exposed = got.headers["access-control-expose-headers"].split(", ")
    assert {"x-ir3de-expert", "x-ir3de-confidence", "x-request-id", "retry-after", "etag"} <= set(exposed)
    assert "origin" in got.headers["vary"]
    refused = ask(locked.url, LAW, origin=FRIEND)  # a page can read why it was refused
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, FRIEND)


@pytest.mark.parametrize("origin", [STRANGER, "null", "", "http://[", "https://friend.example.stranger.example"])
@pytest.mark.parametrize("method", ["OPTIONS", "POST"])
def test_other_pages_may_not(locked: Running, unlocked: Running, origin: str, method: str) -> None:
    for gateway in (locked, unlocked):
        before = len(gateway.upstream.asked)
        got = ask(gateway.url, LAW, method=method, origin=origin, authorization="Bearer sk-one")
        assert (got.status, got.error["code"]) == (403, "wrong_origin")
        assert not [name for name in got.headers if name.startswith("access-control-")]
        assert len(gateway.upstream.asked) == before


def test_its_own_page_may(unlocked: Running) -> None:
    assert ask(unlocked.url, LAW, origin=unlocked.url).status == 200


def test_experts_do_not_speak_about_pages_for_the_gateway(locked: Running) -> None:
    async def shouts(request: Any, asked: Any) -> Any:
        answered = await failing(400, **{"access-control-allow-origin": "*", "x-ir3de-expert": "me"})(request, asked)
        answered.headers["set-cookie"] = "a=b"
        return answered

    locked.upstream.behaviour["law"] = shouts
    got = ask(locked.url, LAW, origin=FRIEND, authorization="Bearer sk-one")
    locked.upstream.behaviour.clear()
    assert got.headers["access-control-allow-origin"] == FRIEND
    assert got.headers["x-ir3de-expert"] == "law"
    assert "set-cookie" not in got.headers
    assert not {"origin", "cookie"} & set(locked.upstream.headers[-1])


# names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "[", "[::1", "192.168.0.7:8100"])
def test_without_a_key_it_answers_to_its_own_names_only(unlocked: Running, locked: Running, host: str) -> None:
    got = ask(unlocked.url, LAW, host=host)
    assert (got.status, got.error["code"]) == (403, "wrong_host")
    assert ask(locked.url, LAW, host=host, authorization="Bearer sk-one").status == 200


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.2:80", "[::1]:8100", "a.localhost"])
def test_these_are_its_own_names(unlocked: Running, host: str) -> None:
    assert ask(unlocked.url, path="/v1/models", host=host).status == 200


# numbers --------------------------------------------------------------------------------------------------------


def test_a_request_keeps_the_number_it_came_with_or_gets_one(unlocked: Running) -> None:
    got = ask(unlocked.url, LAW, x_request_id="mine-1")
    assert got.headers["x-request-id"] == got.json["ir3de"]["request_id"] == "mine-1"
    assert unlocked.upstream.headers[-1]["x-request-id"] == "mine-1"
    seen = set()
    for given in ("", "two words", "x" * 129, "ä"):
        for body, path in (
            (LAW, "/v1/chat/completions"),
            (b"{", "/v1/chat/completions"),
            (None, "/nowhere"),
            (None, "/v1/models/no"),
        ):
            number = ask(unlocked.url, body, path, x_request_id=given).headers["x-request-id"]
            assert number != given
            seen.add(number)
    assert len(seen) == 16


# what gets in, and what gets out --------------------------------------------------------------------------------


def test_secrets_stay_on_their_side(locked: Running) -> None:
    got = ask(
        locked.url,
        LAW | {"ir3de": {"deny": ["maths"]}},
        authorization="Bearer sk-one",
        cookie="a=b",
        x_ir3de_skip="false",
        x_mine="Grüße".encode().decode("latin-1"),
        content_type="text/plain",
    )
    assert got.status == 200
    headers, body = locked.upstream.headers[-1], json.loads(locked.upstream.bodies[-1])
    assert headers["authorization"] == "Bearer sk-upstream"
    assert headers["x-mine"].encode("latin-1").decode() == "Grüße"
    assert headers["content-type"] == "application/json"
    assert not {"cookie", "x-ir3de-skip", "x-api-key"} & set(headers)
    assert "ir3de" not in body
    assert b"sk-one" not in got.body + repr(got.headers).encode()


def test_errors_repeat_neither_key_nor_prompt_nor_headers(locked: Running) -> None:
    prompt, key, other = "my-secret-prompt", "sk-one", "my-secret-header"
    bad: list[Any] = [
        {"messages": [{"role": "user", "content": {"text": prompt}}]},
        {"messages": [prompt]},
        {"messages": prompt},
        json.dumps(chat(prompt)).encode()[:-1],
        b'{"messages": "' + prompt.encode() + b'\n"}',
        chat(prompt, "nobody"),
        chat(prompt, ir3de={"allow": []}),
        chat(prompt, ir3de=[]),
    ]
    for body in bad:
        for lock in ({"authorization": f"Bearer {key}"}, {"authorization": f"Bearer {key}x"}):
            got = ask(locked.url, body, x_other=other, **lock)
            assert 400 <= got.status < 500
            for secret in (prompt, key, other):
                assert secret not in got.body.decode() + str(got.headers)


def test_a_fault_of_the_gateway_itself_says_nothing_but_its_number(
    unlocked: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise ValueError("the prompt was: my-secret-prompt")

    monkeypatch.setattr("ir3de_gateway.stages.choose.choose_expert", breaks)
    got = ask(unlocked.url, LAW, x_request_id="number-7")
    assert (got.status, got.error["code"]) == (500, "internal_error")
    assert "number-7" in got.error["message"]
    assert "secret" not in got.body.decode()
    monkeypatch.undo()
    assert ask(unlocked.url, LAW).status == 200


@pytest.mark.parametrize("path", ["/nowhere", "/v1/nothing", "/v1/chat", "/%00", "/v1/models/%ff%00"])
def test_what_is_not_there_is_not_found(unlocked: Running, path: str) -> None:
    assert ask(unlocked.url, path=path).error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1/v1/messages", "but /v1/messages exists: base_url must not end in /v1"),
        ("/chat/completions", "but /v1/chat/completions exists: base_url must end in /v1"),
        ("/messages", "but /v1/messages exists: base_url must end in /v1"),
        ("/v1/v1/nothing", ""),
        ("/nowhere", ""),
    ],
)
def test_a_base_url_with_v1_twice_or_without_it_is_told(unlocked: Running, path: str, hint: str) -> None:
    got = ask(unlocked.url, LAW, path)
    assert (got.status, got.error["message"]) == (404, f"no endpoint {path}{hint and ', '}{hint}")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/health"])
def test_other_methods_are_refused_with_those_that_are_possible(unlocked: Running, path: str) -> None:
    got: Got = ask(unlocked.url, b"{}", path, method="DELETE")
    assert (got.status, got.error["code"]) == (405, "method_not_allowed")
    assert got.headers["allow"] in ("POST", "GET, HEAD", "HEAD, GET")


# conversations --------------------------------------------------------------------------------------------------


def test_a_conversation_stays_with_its_expert(unlocked: Running) -> None:
    def who(domain: str, **headers: str) -> tuple[str, str | None]:
        got = ask(unlocked.url, chat(QUESTIONS[domain]), **headers)
        return got.headers["x-ir3de-expert"], got.headers.get("x-ir3de-why")

    assert who("law", x_session_id="monday") == ("law", None)
    assert who("cooking", x_session_id="monday") == ("law", "pinned")
    assert who("cooking", x_session_id="tuesday") == ("cooking", None)
    assert who("cooking") == ("cooking", None)
    unlocked.upstream.behaviour["law"] = failing(400)
    assert who("law", x_session_id="wednesday")[0] == "law"
    unlocked.upstream.behaviour.clear()
    assert who("cooking", x_session_id="wednesday") == ("cooking", None)  # what failed is not kept
