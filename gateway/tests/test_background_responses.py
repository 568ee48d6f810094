"""Responses in the background: reserved for when they are made, charged once when they are retrieved."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from api_answers import RESPONSE
from client_keys import bearer, key, write_keys
from ir3de_gateway.app import create_app
from ir3de_gateway.gateway import Gateway
from ir3de_gateway.store.pins import StoredObjects
from object_servers import ObjectServer
from raw_sockets import Got, ask, eventually, sent
from redis_process import needs_redis, running_redis
from running_gateway import config_for, served, small_router

PRICE = {"input_per_1m": 1e6, "output_per_1m": 1e6}  # a token costs 1
LONGEST = 2_000  # tokens of an answer
TOKENS = 15  # that a response takes


@dataclass
class Pair:
    """Two gateways with one state folder, as two workers have it, or with one store; and the expert behind them."""

    urls: list[str]
    server: ObjectServer

    def begin(self, name: str, **fields: Any) -> str:
        """A response in the background: its id."""
        body = {"model": "law", "input": "Is it void?", "background": True, **fields}
        made = ask(self.urls[0], body, "/v1/responses", **bearer(name))
        assert (made.status, made.json["status"], made.json["usage"]) == (200, "queued", None)
        return str(made.json["id"])

    def complete(self, response_id: str, **fields: Any) -> None:
        self.server.objects[f"law/responses/{response_id}"] = {**json.loads(RESPONSE), "id": response_id, **fields}

    def call(self, name: str, path: str, method: str = "GET", place: int = 0) -> Got:
        return ask(self.urls[place], path=f"/v1/responses/{path}", method=method, **bearer(name))

    def read(self, name: str) -> tuple[int, float, int]:
        """Tokens and cost of the day, and requests that the expert has answered."""
        found = ask(self.urls[0], path="/v1/usage", **bearer(name)).json
        [row] = found["by_expert"]
        assert row["tokens"] == found["used"]["day"]["tokens"] and row["cost"] == found["used"]["day"]["cost"]
        assert found["used"]["concurrent"] == 0
        return found["used"]["day"]["tokens"], found["used"]["day"]["cost"], row["requests"]


@pytest.fixture(scope="module", params=["file", pytest.param("redis", marks=[pytest.mark.slow, needs_redis])])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder, server = tmp_path_factory.mktemp("background"), ObjectServer()
    small_router().save(folder / "router")
    names = ("whole", "stream", "cancel", "silent", "many", "left", "failed", "failed-stream")
    leavers = [key(f"leaver{of}", concurrent=1) for of in ("", "-whole", "-stream", "-cancel")]
    limited = key("poor", budget_per_day=10), *leavers
    file = write_keys(folder / "keys.yaml", *map(key, names), *limited)
    with ExitStack() as stack:
        url = stack.enter_context(served(server.app()))
        law = {"price": PRICE, "capabilities": ["chat", "responses"], "max_output_tokens": LONGEST}
        state: Any = str(folder / "state")
        if request.param == "redis":
            state = {"store": stack.enter_context(running_redis(folder / "redis")).url, "folder": state}
        options = {"server": {"keys_file": str(file)}, "state": state}
        config = config_for(url, folder / "router", experts={"law": law}, **options)
        yield Pair([stack.enter_context(served(create_app(Gateway.open(config)))) for _ in range(2)], server)


@pytest.mark.parametrize(("name", "query"), [("whole", ""), ("stream", "?stream=true")])
def test_a_response_is_charged_when_it_is_retrieved_and_once(pair: Pair, name: str, query: str) -> None:
    made = pair.begin(name)
    tokens, cost, requests = pair.read(name)
    assert LONGEST < tokens == cost < LONGEST + 200 and requests == 1  # what was reserved stays charged
    assert pair.call(name, made).json["status"] == "queued"
    assert pair.read(name) == (tokens, cost, 1)
    pair.complete(made)
    assert pair.call(name, made + query, place=1).status == 200
    assert pair.read(name) == (TOKENS, TOKENS, 1)
    for place in (0, 1, 0):
        assert pair.call(name, made, place=place).json["usage"]["total_tokens"] == TOKENS
        assert pair.call(name, f"{made}?stream=true", place=place).status == 200
    assert pair.read(name) == (TOKENS, TOKENS, 1)


def test_many_retrievals_at_once_through_two_workers_charge_it_once(pair: Pair) -> None:
    made = [pair.begin("many") for _ in range(3)]
    for one in made:
        pair.complete(one)
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda at: pair.call("many", made[at % 3], place=at % 2).status, range(24)))
    assert found == [200] * 24
    assert pair.read("many") == (3 * TOKENS, 3 * TOKENS, 3)


def test_a_response_that_is_cancelled_is_charged_by_the_usage_it_tells(pair: Pair) -> None:
    told, silent = pair.begin("cancel"), pair.begin("silent")
    pair.complete(told, status="in_progress")
    assert pair.call("cancel", told).json["usage"]["total_tokens"] == TOKENS  # so far
    assert pair.read("cancel")[0] > LONGEST
    assert pair.call("cancel", f"{told}/cancel", "POST").json["status"] == "cancelled"
    assert pair.read("cancel")[0] == TOKENS
    reserved = pair.read("silent")
    assert pair.call("silent", f"{silent}/cancel", "POST").json["usage"] is None
    assert pair.call("silent", silent, "DELETE").status == 200
    assert pair.read("silent") == reserved  # nobody knows what was written by then


@pytest.mark.parametrize(("name", "query"), [("failed", ""), ("failed-stream", "?stream=true")])
def test_a_response_that_failed_without_usage_costs_nothing(pair: Pair, name: str, query: str) -> None:
    made = pair.begin(name)
    assert pair.read(name)[0] > LONGEST
    pair.complete(made, status="failed", output=[], usage=None)
    for place in (1, 0):
        assert b'"failed"' in pair.call(name, made + query, place=place).body
        assert pair.read(name) == (0, 0, 1)


def test_who_has_spent_its_budget_may_still_have_what_is_its_own(pair: Pair) -> None:
    made = pair.begin("poor")
    pair.complete(made)
    assert pair.call("poor", made).status == 200  # 15 of 10 are spent
    again = ask(pair.urls[0], {"model": "law", "input": "x"}, "/v1/responses", **bearer("poor"))
    assert (again.status, again.error["code"]) == (429, "insufficient_quota")
    found = [
        pair.call("poor", made),
        pair.call("poor", f"{made}?stream=true"),
        pair.call("poor", f"{made}/input_items"),
        pair.call("poor", f"{made}/cancel", "POST"),
        pair.call("poor", made, "DELETE"),
    ]
    assert [got.status for got in found] == [200] * 5
    assert pair.call("poor", made).status == 404


def test_a_client_that_leaves_while_its_charge_is_written_gets_its_place_back_and_is_charged(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store over the network takes a moment to write what is to be settled later."""
    has_begun, write = threading.Event(), StoredObjects.remember_charge

    async def write_slowly(*arguments: Any) -> None:
        has_begun.set()
        await asyncio.sleep(0.3)
        await write(*arguments)

    def has_ended() -> bool:
        return bool(ask(pair.urls[0], path="/v1/usage", **bearer("leaver")).json["used"]["concurrent"] == 0)

    monkeypatch.setattr(StoredObjects, "remember_charge", write_slowly)
    content = json.dumps({"model": "law", "input": "Is it void?", "background": True}).encode()
    with sent(pair.urls[0], content, "/v1/responses", **bearer("leaver")):
        assert has_begun.wait(10)
    assert eventually(has_ended)
    assert pair.read("leaver")[0] > LONGEST
    made = f"resp_law_{pair.server.made}"
    pair.complete(made)
    assert pair.call("leaver", made).status == 200
    assert pair.read("leaver") == (TOKENS, TOKENS, 1)


@pytest.mark.parametrize(
    ("kind", "method", "rest"), [("whole", "GET", ""), ("stream", "GET", "?stream=true"), ("cancel", "POST", "/cancel")]
)
def test_a_client_that_leaves_while_its_reservation_is_replaced_is_charged_for_what_was_used(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, kind: str, method: str, rest: str
) -> None:
    """A store over the network has removed what stayed charged, and its answer is on its way."""
    name, has_begun, take = f"leaver-{kind}", threading.Event(), StoredObjects.take_charge

    async def take_slowly(*arguments: Any) -> Any:
        found = await take(*arguments)
        has_begun.set()
        await asyncio.sleep(0.3)
        return found

    def has_ended() -> bool:
        return bool(ask(pair.urls[0], path="/v1/usage", **bearer(name)).json["used"]["concurrent"] == 0)

    made = pair.begin(name)
    pair.complete(made)
    monkeypatch.setattr(StoredObjects, "take_charge", take_slowly)
    with sent(pair.urls[0], b"", f"/v1/responses/{made}{rest}", method, **bearer(name)):
        assert has_begun.wait(10)
    assert eventually(has_ended)
    assert pair.read(name) == (TOKENS, TOKENS, 1)
    assert pair.call(name, made, place=1).status == 200
    assert pair.read(name) == (TOKENS, TOKENS, 1)
