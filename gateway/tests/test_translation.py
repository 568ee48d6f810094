"""A client of one API is answered by an expert of the other, through a real gateway; or told why not."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from api_answers import (
    CHAT,
    CHAT_EVENTS,
    MESSAGE,
    MESSAGE_EVENTS,
    SAID,
    answer_as_servers_do,
    breaking_off,
    saying,
    serving,
    tell_all,
    without_provenance,
)
from client_keys import bearer, key, write_keys
from ir3de_gateway.app import create_app
from ir3de_gateway.config.document import Config
from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.exchange_record import ExchangeRecord
from ir3de_gateway.experts.upstream import UpstreamResponse
from ir3de_gateway.gateway import Gateway
from ir3de_gateway.translation.translation import TranslatedResponse
from ir3de_gateway.validation import ping_experts
from running_gateway import QUESTIONS, TEXTS, Running, Upstream, served, small_router

CAPABILITIES = {"law": ["chat", "tools", "vision"], "maths": ["messages", "tools"], "cooking": ["chat", "messages"]}
KEY = "IR3DE_TEST_EXPERT_KEY"


class Got(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json["error"]


@pytest.fixture(scope="module")
def one_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    experts = {name: {"capabilities": CAPABILITIES[name], "api_key_env": KEY} for name in TEXTS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY, "secret")
        folder, routing = tmp_path_factory.mktemp("translation"), {"default": "cooking"}
        with serving(folder, experts=experts, routing=routing) as gateway:
            yield gateway


@pytest.fixture
def gateway(one_gateway: Running) -> Running:
    tell_all(one_gateway)
    return one_gateway


def post(gateway: Running, path: str, body: dict[str, Any], **headers: str) -> Got:
    sent = {"content-type": "application/json", **headers}
    asked = HttpRequest(f"{gateway.url}/v1/{path}", json.dumps(body).encode(), sent)
    try:
        with urlopen(asked, timeout=30) as answer:
            return Got(answer.status, dict(answer.headers), answer.read())
    except HTTPError as error:
        with error:
            return Got(error.code, dict(error.headers), error.read())


def message(gateway: Running, about: str, path: str = "messages", **fields: Any) -> Got:
    given = {"model": "auto", "max_tokens": 9, "messages": [{"role": "user", "content": QUESTIONS[about]}]}
    return post(gateway, path, {**given, **fields})


def chat(gateway: Running, about: str, **fields: Any) -> Got:
    given = {"model": "auto", "messages": [{"role": "user", "content": QUESTIONS[about]}]}
    return post(gateway, "chat/completions", {**given, **fields})


# answers --------------------------------------------------------------------------------------------------------------


def test_the_router_s_choice_answers_a_client_of_anthropic_s_api(gateway: Running) -> None:
    got = message(gateway, "law", "messages?beta=true", system="Be brief.")
    assert (got.status, gateway.upstream.asked) == (200, ["law"])
    assert json.loads(gateway.upstream.bodies[0]) == {
        "model": "law-v1",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTIONS["law"]}],
        "max_tokens": 9,
    }
    answer = got.json
    assert (answer["type"], answer["content"]) == ("message", [{"type": "text", "text": SAID}])
    assert (answer["stop_reason"], answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]) == (
        "end_turn",
        10,
        5,
    )
    assert (answer["model"], answer["ir3de"]["expert"]) == ("served", "law")
    assert got.headers["x-ir3de-translated"] == "messages to chat"
    assert got.headers["request-id"] == got.headers["x-request-id"] == answer["ir3de"]["request_id"]
    assert gateway.upstream.headers[0]["authorization"] == "Bearer secret"


def test_and_a_client_of_openai_s(gateway: Running) -> None:
    got = chat(gateway, "maths", stop="END")
    assert (got.status, gateway.upstream.asked) == (200, ["maths"])
    assert json.loads(gateway.upstream.bodies[0]) == {
        "model": "maths-v1",
        "messages": [{"role": "user", "content": QUESTIONS["maths"]}],
        "max_tokens": 4096,
        "stop_sequences": ["END"],
    }
    sent = gateway.upstream.headers[0]
    assert (sent["x-api-key"], sent["anthropic-version"]) == ("secret", "2023-06-01")
    answer = got.json
    assert (answer["object"], answer["choices"][0]["message"]["content"]) == ("chat.completion", SAID)
    assert (answer["choices"][0]["finish_reason"], answer["usage"]["total_tokens"]) == ("stop", 15)
    assert (answer["ir3de"]["expert"], got.headers["x-ir3de-translated"]) == ("maths", "chat to messages")


def test_who_speaks_the_client_s_format_is_not_translated(gateway: Running) -> None:
    said = {"messages": MESSAGE, "chat/completions": CHAT}
    for got, native in (
        (message(gateway, "maths"), said["messages"]),
        (chat(gateway, "law"), said["chat/completions"]),
    ):
        assert "x-ir3de-translated" not in got.headers
        assert without_provenance(got.body)[0] == native
    assert (message(gateway, "cooking").status, chat(gateway, "cooking").status) == (200, 200)
    assert gateway.upstream.asked == ["maths", "law", "cooking", "cooking"]
    assert [b"max_completion" in body or b"stream_options" in body for body in gateway.upstream.bodies] == [False] * 4


def test_streams_are_the_client_s(gateway: Running) -> None:
    got = message(gateway, "law", stream=True)
    assert got.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert json.loads(gateway.upstream.bodies[0])["stream_options"] == {"include_usage": True}
    events = [json.loads(line[6:]) for line in got.body.split(b"\n") if line.startswith(b"data: ")]
    assert events[0]["type"] == "message_start" and events[0]["ir3de"]["expert"] == "law"
    assert "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta") == SAID
    assert events[-2]["usage"] | {"": 0} == {
        "input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "": 0,
    }  # fmt: skip
    got = chat(gateway, "maths", stream=True)
    assert got.body.endswith(b"data: [DONE]\n\n") and b'"usage":' not in got.body
    assert (
        b'"usage":{"prompt_tokens":10'
        in chat(gateway, "maths", stream=True, stream_options={"include_usage": True}).body
    )


def test_tokens_are_counted_though_the_client_is_not_told(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ExchangeRecord] = []
    monkeypatch.setattr(gateway.gateway.observer, "observe", seen.append)
    chat(gateway, "maths", stream=True)
    chat(gateway, "maths")
    message(gateway, "law", stream=True)
    assert [(record.prompt_tokens, record.completion_tokens) for record in seen] == [(10, 5)] * 3


def test_a_large_picture_arrives(gateway: Running) -> None:
    data = base64.b64encode(bytes(range(256)) * 2000).decode()
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    content = [{"type": "text", "text": QUESTIONS["law"]}, picture]
    assert message(gateway, "law", messages=[{"role": "user", "content": content}]).status == 200
    sent = json.loads(gateway.upstream.bodies[0])["messages"][0]["content"][1]
    assert sent == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def test_tokens_are_estimated_for_an_expert_that_cannot_count_them(gateway: Running) -> None:
    got = message(gateway, "law", "messages/count_tokens", max_tokens=None)
    assert (got.status, gateway.upstream.asked) == (200, [])
    assert 3 <= got.json["input_tokens"] <= 10
    assert (got.json["ir3de"]["expert"], got.headers["x-ir3de-estimated"]) == ("law", "true")


# what has no counterpart ----------------------------------------------------------------------------------------------

WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def test_another_expert_answers_what_has_no_counterpart(gateway: Running) -> None:
    got = chat(gateway, "maths", n=2)
    assert (got.status, got.json["ir3de"]["decided"], gateway.upstream.asked) == (200, "maths", ["cooking"])
    assert gateway.upstream.bodies[0].count(b'"n": 2') == 1


def test_an_expert_that_was_named_cannot_be_replaced(gateway: Running) -> None:
    got = chat(gateway, "maths", model="maths", n=2)
    assert (got.status, got.error["code"], got.error["param"]) == (400, "untranslatable", "n")
    assert got.error["message"] == (
        "n has no counterpart in Anthropic's messages. These experts need no translation: law, cooking"
    )
    assert gateway.upstream.asked == []
    assert chat(gateway, "maths").status == 200


def test_if_nobody_can_answer_each_expert_s_reason_is_told(gateway: Running) -> None:
    got = message(gateway, "law", tools=[WEB_SEARCH], ir3de={"deny": ["maths"]})
    assert (got.status, got.json["type"], got.error["type"]) == (400, "error", "invalid_request_error")
    assert (
        "law was chosen: tools[0] (web_search_20250305) has no counterpart in OpenAI's chat completions"
        in got.error["message"]
    )
    assert "maths: not allowed by the request" in got.error["message"]
    assert message(gateway, "law").status == 200


def test_a_large_request_is_refused_too(gateway: Running) -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": "A" * 700_000}
    content = [{"type": "text", "text": QUESTIONS["law"]}, {"type": "document", "source": source}]
    got = message(gateway, "law", messages=[{"role": "user", "content": content}])
    assert (got.status, got.error["param"]) == (400, "messages[0].content[1] (document)")
    assert "These experts need no translation: maths, cooking" in got.error["message"]


def test_translation_can_be_switched_off(tmp_path: Any) -> None:
    experts = {name: {"capabilities": ["chat"], "translate": False} for name in TEXTS}
    with serving(tmp_path, experts=experts) as gateway:
        got = message(gateway, "law")
    assert (got.status, got.error["code"]) == (400, "no_eligible_expert")
    assert "law was chosen: has no messages (capabilities)" in got.error["message"]


def test_sound_goes_only_to_those_who_hear(tmp_path: Any) -> None:
    sound = {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}
    spoken = [{"role": "user", "content": [{"type": "text", "text": QUESTIONS["law"]}, sound]}]
    experts = {"maths": {"capabilities": ["chat", "audio"]}}
    with serving(tmp_path, experts=experts, routing={"default": "maths"}) as gateway:
        assert chat(gateway, "law", messages=spoken).status == 200
        assert chat(gateway, "law", modalities=["text", "audio"], audio={"voice": "alloy"}).status == 200
        assert chat(gateway, "law").status == 200
        assert gateway.upstream.asked == ["maths", "maths", "law"]
        got = chat(gateway, "law", messages=spoken, ir3de={"deny": ["maths"]})
    assert (got.status, got.error["code"]) == (400, "no_eligible_expert")
    assert "law was chosen: has no audio (capabilities)" in got.error["message"]


def test_an_expert_with_anthropic_s_api_is_pinged_as_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "secret")
    upstream = Upstream()
    with served(upstream.app()) as address:
        told = {"base_url": f"{address}/claude/v1", "api_key_env": KEY, "capabilities": ["messages"]}
        upstream.behaviour["claude"] = saying(b'{"data": [{"id": "claude", "type": "model"}]}')
        assert ping_experts([ExpertConfig.model_validate({"name": "claude", **told})]) == []
    sent = upstream.headers[0]
    assert (sent["x-api-key"], sent["anthropic-version"]) == ("secret", "2023-06-01")


def test_a_counted_key_is_charged_for_what_was_used(tmp_path: Any) -> None:
    keys = write_keys(tmp_path / "keys.json", key("counted", tokens_per_minute=100_000))
    experts = {name: {"capabilities": CAPABILITIES[name]} for name in TEXTS}
    seen: list[ExchangeRecord] = []
    with (
        serving(tmp_path, experts=experts, server={"keys_file": str(keys)}) as gateway,
        pytest.MonkeyPatch.context() as on,
    ):
        on.setattr(gateway.gateway.observer, "observe", seen.append)
        body = {"model": "maths", "stream": True, "messages": [{"role": "user", "content": "?"}]}
        got = post(gateway, "chat/completions", body, **bearer("counted"))
        more = post(gateway, "messages", {**body, "model": "law", "max_tokens": 9}, **bearer("counted"))
    assert b"usage" not in got.body and got.body.endswith(b"data: [DONE]\n\n") and b"message_stop" in more.body
    told = [(one.prompt_tokens, one.completion_tokens, one.is_estimated) for one in seen]
    assert told == [(10, 5, False)] * 2


@pytest.mark.parametrize("hedged", [{}, {"hedge_after": 0.01}])
def test_another_replica_of_the_other_kind_answers(tmp_path: Any, hedged: dict[str, Any]) -> None:
    small_router().save(tmp_path / "router")
    upstream = Upstream({"one": saying(b'{"error":{"message":"no"}}', 500), "two": answer_as_servers_do})
    with served(upstream.app()) as address:
        replicas = [f"{address}/{name}/v1" for name in ("one", "two")]
        expert = {"name": "law", "replicas": replicas, "capabilities": ["chat"], "health": {"interval": 60}, **hedged}
        config = {"router": {"path": str(tmp_path / "router")}, "experts": [expert], "logs": {"access": None}}
        gateway = Gateway.open(Config.model_validate(config))
        with served(create_app(gateway)) as url:
            running = Running(url, upstream, gateway)
            for is_streamed in (False, True, False):
                got = message(running, "law", stream=is_streamed)
                assert (got.status, got.headers["x-ir3de-translated"]) == (200, "messages to chat")
                assert b'"type":"message"' in got.body
            upstream.behaviour["two"] = upstream.behaviour["one"]
            got = message(running, "law")
    assert (got.status, got.error["type"], got.error["message"]) == (500, "api_error", "no")


def test_nothing_of_an_answer_is_left_untranslated() -> None:
    """The translated answer is read in place of the expert's, so it must have all that the other one has."""
    public = {name for name in vars(UpstreamResponse) if not name.startswith("_")}
    assert public <= vars(TranslatedResponse).keys()


# errors ---------------------------------------------------------------------------------------------------------------


def test_an_expert_s_refusal_is_in_the_client_s_format(gateway: Running) -> None:
    said = b'{"error":{"message":"too many tokens","type":"invalid_request_error","code":"context_length_exceeded"}}'
    gateway.upstream.behaviour["law"] = saying(said, 400)
    got = message(gateway, "law")
    assert (got.status, got.json["type"], got.error["type"]) == (400, "error", "invalid_request_error")
    assert got.error["message"] == "too many tokens"
    gateway.upstream.behaviour["maths"] = saying(
        b'{"type":"error","error":{"type":"not_found_error","message":"x"}}', 404
    )
    got = chat(gateway, "maths", model="maths")
    assert (got.status, got.error["type"], got.error["message"]) == (404, "invalid_request_error", "x")
    assert got.headers["content-type"] == "application/json"


def test_the_last_failure_is_in_the_client_s_format(gateway: Running) -> None:
    overloaded = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    gateway.upstream.behaviour["maths"] = saying(overloaded, 529, retry_after="0")
    got = chat(gateway, "maths", model="maths")
    assert (got.status, got.error["message"], got.error["type"]) == (529, "Overloaded", "server_error")
    gateway.upstream.behaviour["law"] = saying(b"<html>bad gateway</html>", 502)
    got = message(gateway, "law", model="law")
    assert (got.status, got.json["type"], got.error["type"]) == (502, "error", "api_error")
    assert got.error["message"] == "'law' answered with status 502"
    gateway.upstream.behaviour["cooking"] = gateway.upstream.behaviour["law"]
    got = message(gateway, "law", ir3de={"allow": ["cooking", "law"]})
    assert got.error["message"] == "'cooking' answered with status 502. Tried before: law (5xx)"


@pytest.mark.parametrize("said", [b'{"content": 3}', b"[]", b"garbage"])
def test_an_unreadable_answer_is_somebody_else_s_turn(gateway: Running, said: bytes) -> None:
    gateway.upstream.behaviour["maths"] = saying(said)
    got = chat(gateway, "maths")
    assert (got.status, gateway.upstream.asked[0], got.json["ir3de"]["why"]) == (200, "maths", "routed")
    assert got.json["ir3de"]["fallbacks"][0]["reason"] == "garbage"
    assert "x-ir3de-translated" not in got.headers or got.headers["x-ir3de-expert"] == "maths"


def test_a_stream_that_has_ended_is_not_waited_for(gateway: Running) -> None:
    async def stay(request: Request, asked: Any) -> Response:
        async def events() -> AsyncIterator[bytes]:
            yield b"".join(CHAT_EVENTS)
            while (await request._receive())["type"] != "http.disconnect":
                pass

        return StreamingResponse(events(), media_type="text/event-stream")

    gateway.upstream.behaviour["law"] = stay
    got = message(gateway, "law", stream=True)  # otherwise the client would give up first
    assert got.body.endswith(b'data: {"type":"message_stop"}\n\n')


def test_a_stream_that_breaks_off_says_so_in_the_client_s_format(gateway: Running) -> None:
    gateway.upstream.behaviour["maths"] = breaking_off(MESSAGE_EVENTS[:-3])
    got = chat(gateway, "maths", stream=True)
    last = json.loads(got.body.rstrip().rpartition(b"data: ")[2])
    assert last["error"]["code"] == "upstream_broken" and b"[DONE]" not in got.body
    gateway.upstream.behaviour["law"] = breaking_off([b'data: {"id":"c","choices":[{"delta":{"content":"He"}}]}\n\n'])
    got = message(gateway, "law", stream=True)
    assert got.body.count(b"event: error\n") == 1 and b"message_stop" not in got.body
    gateway.upstream.behaviour["law"] = breaking_off([b"data: {broken\n\n"])
    got = message(gateway, "law", model="law", stream=True)
    assert (got.status, got.error["type"]) == (502, "api_error")  # nothing was sent yet
