"""The response cache: equal requests get the same answer without an expert, and no others do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_answers import CHAT_EVENTS, EVERYTHING, breaking_off, saying, tell_all
from client_keys import bearer, key, write_keys
from ir3de_gateway.config.document import Cache
from ir3de_gateway.headers import HeaderFilter
from ir3de_gateway.requests.answer_cache import ENTRY_BYTES, AnswerCache, CacheControl, CachedAnswer, build_key
from raw_sockets import Got, ask, chat
from running_gateway import QUESTIONS, TEXTS, Running, running

LAW = QUESTIONS["law"]
PRICE = {"input_per_1m": 1_000.0, "output_per_1m": 1_000.0}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Path]]:
    folder = tmp_path_factory.mktemp("cache")
    experts = {name: {"capabilities": EVERYTHING, "model": f"{name}-v1", "price": PRICE} for name in TEXTS}
    server = {"keys_file": str(write_keys(folder / "keys.yaml", key("alice", budget_per_day=100), key("bob")))}
    logs = {"access": str(folder / "access")}
    with running(folder, experts=experts, server=server, cache={"ttl": 3_600}, logs=logs) as gateway:
        yield gateway, folder / "access"


@pytest.fixture
def gateway(base: tuple[Running, Path]) -> Running:
    found = base[0]
    tell_all(found)
    cache = found.gateway.get_cache(found.gateway.live.snapshot)
    assert cache is not None
    cache.clear()
    return found


def post(gateway: Running, body: Any, path: str = "/v1/chat/completions", name: str = "alice", **headers: str) -> Got:
    return ask(gateway.url, body, path, **bearer(name), **headers)


def result(got: Got) -> str | None:
    return got.headers.get("x-ir3de-cache")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", chat(LAW)),
        ("/v1/completions", {"prompt": LAW}),
        ("/v1/responses", {"input": LAW, "store": False}),
        ("/v1/messages", {**chat(LAW), "max_tokens": 5}),
        ("/v1/embeddings", {"input": LAW}),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_the_second_answer_is_the_first_one(gateway: Running, path: str, body: Any, stream: bool) -> None:
    asked = {**body, "stream": True} if stream and "embeddings" not in path else body
    first, second = post(gateway, asked, path, x_request_id="r"), post(gateway, asked, path, x_request_id="r")
    assert (first.status, result(first), result(second)) == (200, "miss", "hit")
    assert int(second.headers["age"]) >= 0
    assert "age" not in first.headers
    assert len(gateway.upstream.asked) == 1
    expert = gateway.upstream.asked[0]
    assert first.headers["x-ir3de-expert"] == second.headers["x-ir3de-expert"] == expert
    assert first.headers["content-type"] == second.headers["content-type"]
    assert _without_times(first.body) == _without_times(second.body)
    assert (b'"ir3de"' in second.body) == (b'"ir3de"' in first.body)


def _without_times(content: bytes) -> bytes:
    """Routing takes another time each time."""
    start = content.find(b'"route_us":')
    return content[:start] + content[content.find(b",", start) :] if start >= 0 else content


@pytest.mark.parametrize(
    ("change", "other"),
    [
        ({"temperature": 0.1}, {}),
        ({"model": "maths"}, {}),
        ({"user": "x"}, {}),
        ({"stream": True}, {}),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, {}),
        ({}, {"name": "bob"}),
        ({}, {"anthropic_beta": "x"}),
        ({}, {"x_tenant": "x"}),  # which experts get
        ({}, {"path": "/v1/chat/completions?a=1"}),
    ],
)
def test_what_differs_is_asked_again(gateway: Running, change: dict[str, Any], other: dict[str, Any]) -> None:
    assert result(post(gateway, chat(LAW))) == "miss"
    assert result(post(gateway, {**chat(LAW), **change}, **other)) == "miss"
    assert result(post(gateway, chat(LAW))) == "hit"


def test_what_does_not_matter_does_not_differ(gateway: Running) -> None:
    post(gateway, chat(LAW, n=1))
    spaced = json.dumps({"n": 1, "ir3de": {"deny": ["maths"]}, **chat(LAW, "law")}, indent=3).encode()
    assert result(post(gateway, spaced)) == "hit"  # by name or by routing: the same expert would get the same
    same = {"user_agent": "another", "x_session_id": "s", "x_stainless_retry_count": "1", "x_b3_traceid": "1"}
    assert result(post(gateway, chat(LAW, n=1), **same)) == "hit"


@pytest.mark.parametrize(
    "refused",
    [
        saying(b'{"error": {"message": "no"}}', 400),
        saying(b'{"error": {"message": "no"}}', 503),
        breaking_off(CHAT_EVENTS[:3]),
        saying(b"not json"),
    ],
)
def test_only_good_and_complete_answers_are_kept(gateway: Running, refused: Any) -> None:
    for stream in (False, True):
        gateway.upstream.behaviour["law"] = refused
        post(gateway, chat(LAW, stream=stream))
        tell_all(gateway)
        got = post(gateway, chat(LAW, stream=stream))
        assert (got.status, result(got), got.headers["x-ir3de-expert"]) == (200, "miss", "law")
        assert result(post(gateway, chat(LAW, stream=stream))) == "hit"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": LAW}),
        ("/v1/responses", {"input": LAW, "store": False, "background": True}),
        ("/v1/chat/completions", chat(LAW, store=True)),
    ],
)
def test_answers_that_are_stored_are_not_kept(gateway: Running, path: str, body: Any) -> None:
    assert [result(post(gateway, body, path)) for _ in range(2)] == [None, None]
    assert len(gateway.upstream.asked) == 2


def test_the_client_may_decline(gateway: Running) -> None:
    assert result(post(gateway, chat(LAW), cache_control="no-store")) is None
    assert result(post(gateway, chat(LAW))) == "miss"
    assert result(post(gateway, chat(LAW), cache_control="no-store")) is None
    assert result(post(gateway, chat(LAW), cache_control="no-cache")) == "miss"
    assert result(post(gateway, chat(LAW), cache_control="max-age=3600")) == "hit"
    assert len(gateway.upstream.asked) == 4


def test_a_hit_costs_nothing_and_is_logged(base: tuple[Running, Path], gateway: Running) -> None:
    usage = ask(gateway.url, path="/v1/usage", **bearer("alice")).json
    for stream in (False, True):
        post(gateway, chat("Is a void contract valid?", stream=stream))
        before = ask(gateway.url, path="/v1/usage", **bearer("alice")).json
        post(gateway, chat("Is a void contract valid?", stream=stream))
        after = ask(gateway.url, path="/v1/usage", **bearer("alice")).json
        assert json.dumps(before) != json.dumps(usage)
        assert _find(before, "cost") == _find(after, "cost") != []
    said = ask(gateway.url, path="/metrics").body.decode()
    assert 'ir3de_cache_total{result="hit"}' in said
    gateway.gateway.observer.flush()
    lines = [json.loads(line) for line in base[1].read_text().splitlines()]
    hits = [line for line in lines if line.get("cache") == "hit"]
    assert hits
    assert {line["cost"] for line in hits} == {None}


def test_a_hit_costs_nothing_where_nobody_has_a_key(tmp_path: Path) -> None:
    log, experts = tmp_path / "access", {name: {"price": PRICE} for name in TEXTS}
    with running(tmp_path, experts=experts, cache={"ttl": 60}, logs={"access": str(log)}) as gateway:
        tell_all(gateway)
        for _ in range(2):
            assert ask(gateway.url, chat(LAW)).status == 200
    first, second = (json.loads(line) for line in log.read_text().splitlines())
    assert (first["cache"], second["cache"]) == ("miss", "hit")
    assert first["cost"] > 0.0
    assert (second["cost"], second["prompt_tokens"]) == (None, None)


def _find(value: Any, name: str) -> list[Any]:
    """All values of that name, wherever they are."""
    if isinstance(value, dict):
        return [one for key, inner in value.items() for one in ([inner] if name in key else _find(inner, name))]
    return [one for inner in value for one in _find(inner, name)] if isinstance(value, list) else []


def test_another_configuration_begins_with_nothing(gateway: Running) -> None:
    """A new router, or an expert that has changed, gives its own answers."""
    assert [result(post(gateway, chat(LAW))) for _ in range(2)] == ["miss", "hit"]
    live = gateway.gateway.live
    before = live.snapshot
    live.swap(replace(before))
    try:
        assert [result(post(gateway, chat(LAW))) for _ in range(2)] == ["miss", "hit"]
    finally:
        live.swap(before)


def test_headers_that_experts_get_by_name_are_compared(gateway: Running) -> None:
    """Such as the client's own account with the expert, whose answers are nobody else's."""
    live = gateway.gateway.live
    before = live.snapshot
    routing = before.config.routing
    headers = {"forward_headers": (*routing.forward_headers, "X-Account-Token")}
    config = before.config.model_copy(update={"routing": routing.model_copy(update=headers)})
    live.swap(replace(before, config=config))
    try:
        for token, agent, wanted in (("a", "a", "miss"), ("b", "a", "miss"), ("a", "b", "hit")):
            assert result(post(gateway, chat(LAW), x_account_token=token, user_agent=agent)) == wanted
    finally:
        live.swap(before)


def test_the_official_client_sees_no_difference(gateway: Running) -> None:
    with openai.OpenAI(
        base_url=f"{gateway.url}/v1", api_key=bearer("bob")["authorization"][7:], max_retries=0
    ) as client:
        told = []
        for _ in range(2):
            chunks = list(client.chat.completions.create(model="auto", messages=chat(LAW)["messages"], stream=True))
            told.append([chunk.model_dump(exclude={"ir3de"}) for chunk in chunks])
        assert told[0] == told[1]
        assert len(gateway.upstream.asked) == 1


def test_without_a_cache_nothing_is_said(tmp_path: Path) -> None:
    with running(tmp_path) as plain:
        for _ in range(2):
            assert result(ask(plain.url, chat(LAW))) is None
        assert len(plain.upstream.asked) == 2


# laws ---------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60_000), st.integers(0, 40)), max_size=40))
def test_the_cache_is_a_map_that_forgets(steps: list[tuple[int, int, int]]) -> None:
    """What it gives is what was put last, and young; it never holds more than it may."""
    now, last = [0.0], dict[bytes, tuple[bytes, float]]()
    cache = AnswerCache(Cache(ttl=100, max_bytes=100_000, answer_bytes=50_000), clock=lambda: now[0])
    for name, size, pause in steps:
        now[0] += pause
        key_, content = b"%d" % name, b"x" * size
        found = cache.get(key_)
        if found is not None:
            assert (found.content, found.cached_at) == last[key_]
            assert now[0] - found.cached_at < 100
        cache.put(key_, CachedAnswer(content, b"", False, False, now[0]))
        if size <= 50_000:
            last[key_] = content, now[0]
            assert cache.get(key_) is not None
        assert cache.size == sum(len(one.content) + ENTRY_BYTES for one in cache._answers.values()) <= 100_000


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=4), st.randoms(), JSON)
def test_equal_requests_have_equal_keys_and_others_do_not(values: dict[str, Any], random: Any, other: Any) -> None:
    equal = HeaderFilter(["accept-language"])

    def build(values: Any, *parts: str, headers: Any = (), **dump: Any) -> bytes:
        return build_key(parts or ("chat", "law"), list(headers), equal.keeps, json.dumps(values, **dump).encode())

    names = list(values)
    random.shuffle(names)
    first = build(values)
    assert build({name: values[name] for name in names}, indent=1) == first
    assert build(values, headers=[(b"user-agent", b"x")]) == first
    assert build(values, headers=[(b"accept-language", b"x")]) != first
    assert build(values, "cha", "tlaw") != first
    changed = {**values, "new": other}
    assert (build(changed) == first) == (json.dumps(changed, sort_keys=True) == json.dumps(values, sort_keys=True))


def test_names_that_occur_twice_make_another_key() -> None:
    """No reader of a request may get the answer to what another one reads."""
    bodies = (
        b'{"a":[{"b":1,"b":2}]}',
        b'{"a":[{"b":2}]}',
        b'{"a":[{"b":1}]}',
        b'{"a":[{"b":2,"b":1}]}',
        b'{"a":1,"a":[{"b":2}]}',
        b'{"a":[[["b",2]]]}',
        b'{"a":[{"":[["b",2]]}]}',
        b'{"a":[{"b":1e400}]}',
        b'{"a":[{"b":1e401}]}',
    )
    assert len({build_key((), [], lambda name: True, body) for body in bodies}) == len(bodies)


@pytest.mark.parametrize(
    ("said", "wishes"),
    [
        (b"", (True, True, None)),
        (b"No-Cache", (False, True, None)),
        (b"no-store, max-age=0", (False, False, None)),
        (b"max-age=60", (True, True, 60.0)),
        (b"public", (True, True, None)),
    ],
)
def test_cache_control(said: bytes, wishes: Any) -> None:
    assert tuple(CacheControl.from_headers({b"cache-control": said})) == wishes


@pytest.mark.parametrize("stream", [False, True])
def test_translated_answers_are_kept_as_the_client_got_them(tmp_path: Path, stream: bool) -> None:
    """An expert of OpenAI's API that answers a client of Anthropic's."""
    experts = {name: {"capabilities": ["chat"]} for name in TEXTS}
    with running(tmp_path, experts=experts, cache={"ttl": 60}) as gateway:
        body = {**chat(LAW), "max_tokens": 5, "stream": stream}
        first, second = (ask(gateway.url, body, "/v1/messages", x_request_id="r") for _ in range(2))
        assert (result(first), result(second), len(gateway.upstream.asked)) == ("miss", "hit", 1)
        assert _without_times(first.body) == _without_times(second.body)
        names = {"date", "age", "x-ir3de-cache", "x-ir3de-route-us", "content-length", "transfer-encoding"}
        assert {name: second.headers.get(name) for name in set(first.headers) - names} == {
            name: value for name, value in first.headers.items() if name not in names
        }
