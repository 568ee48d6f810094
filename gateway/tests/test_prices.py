"""What answers cost: tokens from an expert's prompt cache, and the price file, which a reload reads again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from admin_client import ENDPOINT, admin, config, error, folder, token  # noqa: F401
from api_answers import MESSAGE
from client_keys import bearer, describe, key, write_keys
from configurations import GOOD, parsed
from ir3de.errors import InputError
from ir3de_gateway.config.prices import check_price_file, read_price_file
from raw_sockets import GOOD as CHAT
from raw_sockets import ask, chat, eventually
from running_gateway import QUESTIONS, Behaviour, Running, event, running

PRICE = {"input_per_1m": 1_000.0, "cached_input_per_1m": 100.0, "output_per_1m": 2_000.0}
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}}
COST = (2 * 1_000 + 8 * 100 + 5 * 2_000) / 1e6


def says(**usage: Any) -> Behaviour:
    """An expert whose answers have that usage, whole or at the end of a stream."""

    async def behave(request: Request, asked: dict[str, Any]) -> Response:
        if asked.get("stream"):
            last = {"id": "x", "choices": [{"index": 0, "delta": {"content": "Yes"}, "finish_reason": "stop"}]}
            pieces = [event(last), event({"id": "x", "choices": [], "usage": usage}), b"data: [DONE]\n\n"]
            return StreamingResponse(iter(pieces), media_type="text/event-stream")
        return JSONResponse({**(json.loads(MESSAGE) if "max_tokens" in asked else CHAT), "usage": usage})

    return behave


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    here = tmp_path_factory.mktemp("prices")
    file = write_keys(here / "keys.yaml", *(key(name) for name in ("whole", "stream", "messages", "odd", "log")))
    (here / "prices.json").write_text(json.dumps({"law": PRICE, "elsewhere": {"input_per_1m": 1}}))
    experts = {"law": {"capabilities": ["chat", "messages"]}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IR3DE_ADMIN_TOKEN", "root")
        named = {"keys_file": str(file)}
        logs = {"access": str(here / "access.log")}
        prices = str(here / "prices.json")
        with running(here, server=named, experts=experts, prices=prices, logs=logs) as found:
            yield found


def cost_of(gateway: Running, name: str) -> float:
    return float(describe(gateway, name)["used"]["day"]["cost"])


def test_cached_tokens_cost_less_in_whole_answers_and_in_streams(gateway: Running) -> None:
    gateway.upstream.behaviour["law"] = says(**USAGE)
    assert ask(gateway.url, chat(QUESTIONS["law"], "law"), **bearer("whole")).status == 200
    assert ask(gateway.url, chat(QUESTIONS["law"], "law", stream=True), **bearer("stream")).status == 200
    assert cost_of(gateway, "whole") == pytest.approx(COST) == cost_of(gateway, "stream")


def test_anthropics_cache_is_counted_beside_the_prompt(gateway: Running) -> None:
    gateway.upstream.behaviour["law"] = says(
        input_tokens=2, output_tokens=5, cache_read_input_tokens=8, cache_creation_input_tokens=10
    )
    body = {**chat(QUESTIONS["law"], "law"), "max_tokens": 9}
    assert ask(gateway.url, body, path="/v1/messages", **bearer("messages")).status == 200
    assert cost_of(gateway, "messages") == pytest.approx(COST + 10 * 1_000 / 1e6)


@pytest.mark.parametrize("cached", [-1, "8", 2.5, None, True, 10**20])
def test_what_is_no_count_is_not_cached(gateway: Running, cached: Any) -> None:
    gateway.upstream.behaviour["law"] = says(**{**USAGE, "prompt_tokens_details": {"cached_tokens": cached}})
    before = cost_of(gateway, "odd")
    ask(gateway.url, chat(QUESTIONS["law"], "law"), **bearer("odd"))
    assert cost_of(gateway, "odd") - before == pytest.approx(0.02)


def test_more_cached_tokens_than_the_prompt_has_cost_no_less_than_all_of_it(gateway: Running) -> None:
    gateway.upstream.behaviour["law"] = says(**{**USAGE, "prompt_tokens_details": {"cached_tokens": 1_000}})
    before = cost_of(gateway, "odd")
    ask(gateway.url, chat(QUESTIONS["law"], "law"), **bearer("odd"))
    assert cost_of(gateway, "odd") - before == pytest.approx((10 * 100 + 5 * 2_000) / 1e6)


def test_the_access_log_has_the_cached_tokens(gateway: Running) -> None:
    gateway.upstream.behaviour["law"] = says(**USAGE)
    ask(gateway.url, chat(QUESTIONS["law"], "law"), **bearer("log"))
    log = Path(gateway.gateway.live.snapshot.config.logs.access or os.devnull)

    def find() -> list[dict[str, Any]]:
        return [line for line in map(json.loads, log.read_text().splitlines()) if line.get("key") == "log"]

    assert eventually(lambda: bool(find()))
    assert find()[0]["cached_tokens"] == 8 and find()[0]["cost"] == pytest.approx(COST)


# the file -----------------------------------------------------------------------------------------------------------


def price_of(client: Any, name: str) -> Any:
    rows = client.get("/admin/experts").json()["data"]
    return next(row["upstream"]["price"]["input_per_1m"] for row in rows if row["name"] == name)


def test_a_reload_reads_the_prices_again_and_a_broken_file_changes_nothing(folder: Path) -> None:  # noqa: F811
    path, names = folder / "prices.json", [one.name for one in config(folder).experts]
    path.write_text(json.dumps({names[0]: {"input_per_1m": 1}, "added": {"input_per_1m": 7}}))
    with admin(config(folder, prices=str(path))) as client:
        assert (price_of(client, names[0]), price_of(client, names[1])) == (1, 0)
        assert client.post("/admin/experts", json={"name": "added", "upstream": ENDPOINT}).status_code == 201
        assert price_of(client, "added") == 7
        path.write_text(json.dumps({names[0]: {"input_per_1m": 2}, "added": {"input_per_1m": 8}}))
        assert price_of(client, names[0]) == 1
        assert client.post("/admin/reload").status_code == 200
        assert (price_of(client, names[0]), price_of(client, "added")) == (2, 8)
        path.write_text('{"x": {"input_per_1m": -1}}')
        status, message = error(client.post("/admin/reload"))
        assert status == 422 and "input_per_1m is a price of a million tokens, found -1" in message
        assert price_of(client, names[0]) == 2


def test_sighup_reads_the_prices_again(folder: Path) -> None:  # noqa: F811
    path, name = folder / "prices.json", config(folder).experts[0].name
    path.write_text(json.dumps({name: {"input_per_1m": 1}}))
    with admin(config(folder, prices=str(path))) as client:
        path.write_text(json.dumps({name: {"input_per_1m": 3}}))
        client.portal.call(client.gateway.administration.reload_at_signal)
        assert price_of(client, name) == 3


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"law": {"input_per_1m": 1, "cached_input_per_1m": 2}}', "law: cached_input_per_1m must not be more than"),
        ('{"law": {"input_per_1M": 1}}', "a price has input_per_1m"),
        ('{"law": {"input_per_1m": 1, "currency": "EUR"}}', "unknown field 'currency'"),
        ("[1]", "prices are an object of experts"),
        ("{}", "has no price of any expert"),
    ],
)
def test_what_is_wrong_with_the_file_is_told(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "prices.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"prices\.json") as caught:
        read_price_file(path)
    assert told in str(caught.value)


def test_validation_names_a_missing_file_and_a_price_that_is_not_used(tmp_path: Path) -> None:
    given = parsed(GOOD + "    price: {input_per_1m: 1}\nprices: /nowhere/prices.json\n")
    [finding] = check_price_file(given)[1]
    assert (finding.level, finding.where) == ("error", "prices") and "/nowhere/prices.json" in finding.message
    path = tmp_path / "prices.yaml"
    path.write_text("law: {input_per_1m: 2}\n")
    priced, [finding] = check_price_file(given.model_copy(update={"prices": str(path)}))
    assert (finding.level, finding.where) == ("warning", "experts.0.price") and priced.experts[
        0
    ].price.input_per_1m == 1
