"""Hooks before and after, in Python and over HTTP: they see, change and refuse; and the gateway outlives them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import hook_functions
from api_answers import EVERYTHING, SAID, WORDS, saying, tell_all
from hook_functions import DOES, LET_GO, SEEN
from ir3de.errors import InputError
from ir3de_gateway.config.document import HookConfig, Hooks
from ir3de_gateway.gateway import Gateway
from ir3de_gateway.hooks import hook as one_hook
from object_servers import serving_objects
from raw_sockets import ask, chat, eventually
from running_gateway import QUESTIONS, TEXTS, Running, config_for, running, served

Base = tuple[Running, str]

LAW = QUESTIONS["law"]
STREAMED = [
    ("/v1/chat/completions", chat(LAW, "law"), "choice"),
    ("/v1/completions", {"model": "law", "prompt": LAW}, "choice"),
    ("/v1/responses", {"model": "law", "input": LAW}, "item"),
    ("/v1/messages", {**chat(LAW, "law"), "max_tokens": 5}, "block"),
]


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    SEEN.clear()
    DOES.clear()
    LET_GO.clear()
    yield
    LET_GO.set()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, str]]:
    """A gateway, and a server for hooks."""
    experts = {name: {"capabilities": EVERYTHING, "breaker": {"failures": 10_000}} for name in TEXTS}
    folder, routing = tmp_path_factory.mktemp("hooks"), {"default": "maths"}
    with served(hook_server()) as url, running(folder, experts=experts, routing=routing) as gateway:
        yield gateway, url


@contextmanager
def serving(base: Base, *, kind: str = "call", **hooks: Any) -> Iterator[Running]:
    """That gateway with hooks: `before` and `after` are what their configurations have beside the target."""
    gateway, url = base
    targets = {
        "call": "hook_functions:{0}",
        "async": "hook_functions:{0}_async",
        "file": f"{Path(hook_functions.__file__)}:{{0}}",
        "url": f"{url}/{{0}}?x=1",
    }
    field = "url" if kind == "url" else "call"
    given = {
        name: [{field: targets[kind].format(name), "timeout": 60, **one} for one in configured]
        for name, configured in hooks.items()
    }
    tell_all(gateway)
    live = gateway.gateway.live
    plain = live.snapshot
    live.swap(replace(plain, config=plain.config.model_copy(update={"hooks": Hooks.model_validate(given)})))
    try:
        yield gateway
    finally:
        live.swap(plain)


def hook_server() -> Starlette:
    async def call(request: Request) -> Response:
        found = hook_functions._do(request.path_params["which"], await request.json())
        return Response(status_code=204) if found is None else JSONResponse(found)

    return Starlette(routes=[Route("/{which}", call, methods=["POST"])])


@pytest.mark.parametrize("kind", ["call", "async", "file", "url"])
def test_hooks_see_and_change_requests_and_answers(base: Base, kind: str) -> None:
    functions = hook_functions if kind != "file" else one_hook._load_file(Path(hook_functions.__file__))
    with serving(base, kind=kind, before=[{}], after=[{}]) as gateway:
        got = ask(gateway.url, chat(LAW, "law"), x_request_id="r1")
        assert got.json["choices"][0]["message"]["content"] == SAID
        first, second = functions.SEEN
        assert {name: first[name] for name in ("hook", "request_id", "endpoint", "path", "key", "texts")} == {
            "hook": "before", "request_id": "r1", "endpoint": "chat", "path": "/v1/chat/completions", "key": "",
            "texts": [LAW],
        }  # fmt: skip
        assert first["body"] == chat(LAW, "law")
        assert (second["hook"], second["expert"], second["texts"], second["events"]) == ("after", "law", [SAID], None)
        assert second["body"]["usage"]["total_tokens"] == 15
        functions.DOES["before"] = lambda event: {"texts": ["How do I boil an egg?"]}
        functions.DOES["after"] = lambda event: {"texts": [text.upper() for text in event["texts"]]}
        got = ask(gateway.url, chat(LAW, ir3de={"session": "s"}))
        assert got.json["choices"][0]["message"]["content"] == SAID.upper()
        assert got.headers["x-ir3de-expert"] == "cooking"  # what is routed is what the hook left
        assert json.loads(gateway.upstream.bodies[-1])["messages"][0]["content"] == "How do I boil an egg?"
        functions.DOES["before"] = lambda event: {"body": {**event["body"], "model": "maths", "n": 1}}
        functions.DOES["after"] = lambda event: {"body": {"id": "mine"}}
        got = ask(gateway.url, chat(LAW))
        assert (got.json, got.headers["x-ir3de-expert"]) == ({"id": "mine"}, "maths")
        lines = ask(gateway.url, path="/metrics").body.decode().splitlines()
    counted = [line for line in lines if line.startswith("ir3de_hook_calls_total")]
    for outcome, count in (("changed", 2), ("ok", 1)):
        assert sum(f'outcome="{outcome}"}} {count}.0' in line for line in counted) >= 2
    functions.SEEN.clear()
    functions.DOES.clear()


@pytest.mark.parametrize(("path", "body", "_"), STREAMED)
def test_streams_are_held_and_changed_as_a_whole(base: Base, path: str, body: Any, _: str) -> None:
    """A text that is cut into pieces is one text for the hook, in every format."""
    with serving(base, after=[{}]) as gateway:
        DOES["after"] = lambda event: {"texts": [text.replace("it depends", "[redacted]") for text in event["texts"]]}
        got = ask(gateway.url, {**body, "stream": True}, path)
        assert SEEN[0]["texts"] == [SAID]
        assert SEEN[0]["body"] is None
        whole = got.body.decode()
        assert "Café, [redacted]." in whole
        assert "depends" not in whole
        kinds = [json.loads(line[6:]) for line in whole.splitlines() if line.startswith("data: {")]
        assert len(kinds) == len(SEEN[0]["events"])
        assert whole.count("[redacted]") == (2 if "responses" in path else 1)  # one repeats it at its end
        DOES["after"] = lambda event: None
        again = ask(gateway.url, {**body, "stream": True}, path)
        assert [word for word in WORDS if json.dumps(word)[1:-1] not in again.body.decode()] == []


def test_the_client_gets_a_held_stream_as_a_stream(base: Base) -> None:
    with (
        serving(base, after=[{}]) as gateway,
        openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client,
    ):
        DOES["after"] = lambda event: {"events": [*event["events"][:3], *event["events"][-2:]]}
        chunks = list(client.chat.completions.create(model="law", messages=chat(LAW)["messages"], stream=True))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Café, "
        assert chunks[0].ir3de["expert"] == "law"
        DOES["after"] = lambda event: {"texts": ["no"]}
        *_, last = client.responses.create(model="law", input=LAW, stream=True)
        assert last.response.output_text == "no"


def test_the_expert_is_free_while_a_hook_looks_at_a_stream(base: Base) -> None:
    with serving(base, after=[{"streams": "observe"}]) as gateway:
        DOES["after"] = hook_functions.hang
        with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="x", max_retries=0) as client:
            assert list(client.chat.completions.create(**chat(LAW, "law", stream=True)))
            assert eventually(lambda: len(SEEN) == 1)  # the hook has it, and hangs
            in_use = gateway.gateway.live.snapshot.experts["law"].concurrency.in_use
            LET_GO.set()
        assert in_use == 0


def test_the_first_byte_of_a_held_answer_is_when_it_is_sent(tmp_path: Path) -> None:
    log, given = tmp_path / "access.jsonl", {"after": [{"call": "hook_functions:after", "timeout": 60}]}
    with running(tmp_path, server={"timing": True}, logs={"access": str(log)}, hooks=given) as gateway:
        for stream in (False, True):
            took: list[float] = []
            DOES["after"] = lambda event, took=took: took.append(hook_functions.linger())
            got = ask(gateway.url, chat(LAW, "law", stream=stream))
            timing = dict(re.findall(r"(\w+)(?:;desc=[^;]*)?;dur=([0-9.]+)", got.headers["server-timing"]))
            assert list(timing) == ["read", "queue", "upstream", "hooks", "total"]
            assert float(timing["hooks"]) >= took[0] * 1e3
            assert float(timing["total"]) + 0.01 >= float(timing["hooks"]) + float(timing["upstream"])
        DOES["after"] = lambda event: {"refuse": {}}
        assert ask(gateway.url, chat(LAW, "law", stream=True)).status == 403
        metrics = ask(gateway.url, path="/metrics").body.decode()
    assert 'ir3de_ttft_seconds_count{expert="law"} 2' in metrics
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["ttft_ms"] is not None for line in lines] == [True, True, False]
    assert all(line["ttft_ms"] >= 20 for line in lines[:2])


def test_neither_clients_nor_metrics_learn_where_a_hook_lies(base: Base) -> None:
    file = Path(hook_functions.__file__)
    with serving(base, before=[{"call": f"{file}:crash"}]) as gateway:
        told = ask(gateway.url, chat(LAW, "law")).error["message"]
        metrics = ask(gateway.url, path="/metrics").body.decode()
    assert "'hook_functions.py:crash'" in told and 'hook="hook_functions.py:crash"' in metrics
    assert str(file.parent) not in told + metrics
    DOES["before"] = lambda event: {"refuse": {}}
    with serving(base, kind="url", before=[{}]) as gateway:
        assert ask(gateway.url, chat(LAW, "law")).error["message"] == "refused by 'before'"
    assert HookConfig(name="mine", call="/a/b.py:c").public_label == HookConfig(name="mine", url="http://x/").label


def test_a_hook_that_is_late_is_one_line_of_the_log(base: Base, caplog: pytest.LogCaptureFixture) -> None:
    with serving(base, before=[{"call": "hook_functions:hang", "timeout": 0.02}]) as gateway:
        assert ask(gateway.url, chat(LAW, "law")).status == 504
    (line,) = [line for line in caplog.records if "took longer" in line.getMessage()]
    assert not line.exc_info and "Traceback" not in caplog.text


def test_a_stream_that_is_observed_is_not_held(base: Base) -> None:
    with serving(base, after=[{"streams": "observe"}]) as gateway:
        DOES["after"] = lambda event: {"texts": ["never seen"]} if event["body"] is None else {"refuse": {}}
        got = ask(gateway.url, chat(LAW, "law", stream=True))
        assert got.status == 200
        assert got.body.endswith(b"data: [DONE]\n\n")
        assert b"never seen" not in got.body
        assert ask(gateway.url, chat(LAW, "law")).status == 403  # a whole answer is held
    assert SEEN[0]["texts"] == [SAID]


@pytest.mark.parametrize("which", ["before", "after"])
@pytest.mark.parametrize(("path", "body", "_"), STREAMED)
def test_a_refusal_has_the_callers_format(base: Base, which: str, path: str, body: Any, _: str) -> None:
    with serving(base, before=[{}], after=[{}]) as gateway:
        DOES[which] = lambda event: {"refuse": {"status": 451, "message": "not here", "code": "policy"}}
        for stream in (False, True):
            got = ask(gateway.url, {**body, "stream": stream}, path)
            assert got.status == 451
            assert got.json["error"]["message"] == "not here"
            assert got.json.get("type") == ("error" if "messages" in path else None)
        DOES[which] = lambda event: {"refuse": {}}
        assert ask(gateway.url, body, path).status == 403
        assert gateway.upstream.asked == ([] if which == "before" else ["law"] * 3)


@pytest.mark.parametrize("which", ["before", "after"])
@pytest.mark.parametrize(
    ("what", "status", "code"),
    [
        ({"call": "hook_functions:hang", "timeout": 0.05}, 504, "hook_timeout"),
        ({"call": "hook_functions:crash"}, 502, "hook_failed"),
        ({"call": "hook_functions:leave"}, 502, "hook_failed"),
        ({"call": "hook_functions:exhaust", "timeout": 20}, 502, "hook_failed"),
        ({"call": "builtins:len"}, 502, "hook_failed"),  # returns what is no verdict
        ({"url": "http://127.0.0.1:1/", "call": None}, 502, "hook_failed"),
    ],
)
def test_a_hook_that_hangs_or_raises(base: Base, which: str, what: Any, status: int, code: str) -> None:
    """The fitting error within its time, in the caller's format, and the next request is served."""
    special = {"endpoints": ["chat", "messages"], **what}
    with serving(base, **{which: [special]}) as gateway:
        for stream in (False, True):
            got = ask(gateway.url, chat(LAW, "law", stream=stream))
            assert (got.status, got.error["code"]) == (status, code)
        told = ask(gateway.url, {**chat(LAW, "law"), "max_tokens": 5}, "/v1/messages").json
        assert (told["type"], told["error"]["code"]) == ("error", code)
        assert ask(gateway.url, {"model": "law", "prompt": "x"}, "/v1/completions").status == 200
        assert 'ir3de_requests_total{expert="' in ask(gateway.url, path="/metrics").body.decode()
    with serving(base, **{which: [{**special, "on_failure": "continue"}]}) as gateway:
        assert ask(gateway.url, chat(LAW, "law")).status == 200
        assert b"[DONE]" in ask(gateway.url, chat(LAW, "law", stream=True)).body


def test_hooks_that_hang_are_bounded(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_hook, "MAX_THREADS", 4)  # two for one key
    hook = {"call": "hook_functions:hang", "timeout": 0.05}
    with serving(base, before=[hook]) as gateway:
        codes = [ask(gateway.url, chat(LAW, "law")).error["code"] for _ in range(4)]
        assert codes == ["hook_timeout", "hook_timeout", "hook_failed", "hook_failed"]
        LET_GO.set()
        for _ in range(1_000):
            if ask(gateway.url, chat(LAW, "law")).status == 200:
                break
        else:
            pytest.fail("threads that have ended still count")


def test_a_verdict_of_the_wrong_form(base: Base) -> None:
    with serving(base, before=[{}]) as gateway:
        for verdict in ({"texts": []}, {"texts": [1]}, {"text": ["x"]}, {"body": []}, ["x"], "no", {"refuse": True}):
            DOES["before"] = lambda event, verdict=verdict: verdict
            got = ask(gateway.url, chat(LAW, "law"))
            assert (got.status, got.error["code"]) == (502, "hook_failed")
        DOES["before"] = lambda event: {"body": {"messages": 3}}
        assert ask(gateway.url, chat(LAW, "law")).error["param"] == "messages"
        assert gateway.upstream.asked == []


def test_logs_have_what_the_hook_left(tmp_path: Path) -> None:
    log = tmp_path / "decisions"
    hooks = {"before": [{"call": "hook_functions:before", "timeout": 60}]}
    DOES["before"] = lambda event: {"texts": ["How do I boil an egg?" for _ in event["texts"]]}
    with running(tmp_path, hooks=hooks, logs={"access": None, "decisions": str(log), "prompts": True}) as gateway:
        ask(gateway.url, chat("My number is 12345. Is my contract void?"))
    assert "12345" not in log.read_text()
    assert json.loads(log.read_text().splitlines()[0])["expert"] == "cooking"


# a stream that ends too early, and one whose connection breaks: its length promises more
@pytest.mark.parametrize("length", [None, "1000"])
def test_the_next_expert_is_asked_while_a_stream_is_held(base: Base, length: str | None) -> None:
    headers = {"content_type": "text/event-stream", **({"content_length": length} if length else {})}
    with serving(base, after=[{}]) as gateway:
        gateway.upstream.behaviour["law"] = saying(b'data: {"choices":[]}\n\n', **headers)
        got = ask(gateway.url, chat(LAW, stream=True))
        assert got.body.endswith(b"data: [DONE]\n\n")
        assert got.headers["x-ir3de-fallbacks"] == "1"
        assert len(SEEN) == 1


@pytest.mark.parametrize(("status", "kind"), [(200, "text/plain"), (200, ""), (201, "application/json")])
def test_no_answer_slips_past_the_hooks(base: Base, status: int, kind: str) -> None:
    said = json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": "12345"}}]}).encode()
    with serving(base, after=[{}]) as gateway:
        gateway.upstream.behaviour["law"] = saying(said, status, content_type=kind)
        DOES["after"] = lambda event: {"refuse": {}} if "12345" in event["texts"] else None
        got = ask(gateway.url, chat(LAW, "law"))
    assert (got.status, b"12345" in got.body) == (403, False)


def test_large_requests_are_shown_whole(base: Base) -> None:
    text = "law " * 200_000
    with serving(base, before=[{}]) as gateway:
        DOES["before"] = lambda event: {"texts": [event["texts"][0] + "!"]}
        assert ask(gateway.url, chat(text, "law")).status == 200
        assert json.loads(gateway.upstream.bodies[0])["messages"][0]["content"] == text + "!"


def test_endpoints_that_are_passed_through(tmp_path: Path) -> None:
    hooks = {
        "before": [{"call": "hook_functions:before", "timeout": 60}],
        "after": [{"call": "hook_functions:after", "timeout": 60}],
    }
    with serving_objects(tmp_path, hooks=hooks) as (gateway, server):
        DOES["before"] = lambda event: {"texts": [text + "!" for text in event["texts"]]}
        assert ask(gateway.url, {"prompt": "a cat"}, "/v1/images/generations").status == 200
        assert json.loads(server.seen[0][3])["prompt"] == "a cat!"
        speech = ask(gateway.url, {"input": "hello", "voice": "a"}, "/v1/audio/speech")
        assert speech.headers["content-type"] == "audio/mpeg"
        assert [(one["hook"], one["endpoint"]) for one in SEEN] == [
            ("before", "images"), ("after", "images"), ("before", "audio_speech"),
        ]  # fmt: skip
        DOES["before"] = lambda event: {"refuse": {}} if event["body"] is None else None
        form = b'--b\r\ncontent-disposition: form-data; name="file"; filename="x"\r\n\r\nx\r\n--b--\r\n'
        kind = "multipart/form-data; boundary=b"
        assert ask(gateway.url, form, "/v1/audio/transcriptions", content_type=kind).status == 403


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("no_such_module:f", "No module named"),
        ("hook_functions:nothing", "nothing"),
        ("hook_functions:SEEN", "not callable"),
        ("/nowhere/hooks.py:f", "/nowhere/hooks.py"),
    ],
)
def test_a_hook_that_cannot_be_loaded_is_told_at_the_start(tmp_path: Path, name: str, part: str) -> None:
    config = config_for("http://127.0.0.1:1", tmp_path / "router", hooks={"before": [{"call": name}]})
    with pytest.raises(InputError, match=part):
        Gateway.open(config)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({}, "either call"),
        ({"call": "a:b", "url": "http://x/"}, "either call"),
        ({"call": "no colon"}, "package.module:function"),
        ({"url": "ftp://x"}, "http://127.0.0.1"),
        ({"url": "http://user:pass@x/"}, "http://127.0.0.1"),
    ],
)
def test_a_hook_that_is_configured_wrongly(given: dict[str, Any], part: str) -> None:
    with pytest.raises(ValueError, match=part):
        HookConfig.model_validate(given)
