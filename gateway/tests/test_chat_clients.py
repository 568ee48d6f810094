"""Chats of stock clients that send no header: follow-ups stay with their expert, a new subject moves them."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from api_answers import EVERYTHING, serving, tell_all
from demo_router import chosen_demo_router
from ir3de import Conversation
from ir3de.corpora import examples, read_rows
from ir3de.traffic import DecisionLog, compare
from ir3de_gateway.app import create_app
from ir3de_gateway.config.document import Config
from ir3de_gateway.gateway import Gateway
from ir3de_gateway.requests.json_body import MAX_INLINE_BYTES
from ir3de_gateway.stages import choose as choosing
from raw_sockets import ask
from running_gateway import QUESTIONS, TEXTS, Running, Upstream, served, small_router
from strange_prompts import strange  # noqa: F401
from test_admin_workers import process

LANDLORD = "Can my landlord evict me?"
FOLLOW_UP = "ok, and how long does that take?"  # alone, it does not go to law
ASKED = (LANDLORD, FOLLOW_UP, QUESTIONS["maths"], FOLLOW_UP)
EXPERTS = ["law", "law", "maths", "maths"]
REASONS = [
    None,
    {"turn": 1, "decided": 0, "why": "stayed"},
    {"turn": 2, "decided": 2, "why": "new subject"},
    {"turn": 3, "decided": 2, "why": "stayed"},
]
Ask = Callable[[list[dict[str, Any]]], Any]


@pytest.fixture(scope="module")
def one_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("chats")) as gateway:
        yield gateway


@pytest.fixture
def gateway(one_gateway: Running) -> Running:
    tell_all(one_gateway)
    return one_gateway


@pytest.fixture
def client(gateway: Running) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def hold_chat(ask: Ask) -> list[Any]:
    """The provenance of each answer in a chat that grows as clients let it grow."""
    messages, found = list[dict[str, Any]](), list[Any]()
    for text in ASKED:
        messages.append({"role": "user", "content": text})
        found.append(ask(messages))
        messages.append({"role": "assistant", "content": QUESTIONS["cooking"]})
    return found


def test_chat_completions(gateway: Running, client: Any) -> None:
    system = {"role": "system", "content": "You are a cook. Boil an egg."}
    found = hold_chat(lambda chat: client.chat.completions.create(model="auto", messages=[system, *chat]).ir3de)
    assert [one["expert"] for one in found] == EXPERTS == gateway.upstream.asked
    assert [one.get("chat") for one in found] == REASONS and {one["why"] for one in found} == {"routed"}


def test_streams(client: Any) -> None:
    def ask(chat: Any) -> Any:
        with client.chat.completions.create(model="auto", messages=chat, stream=True) as stream:
            return next(iter(stream)).ir3de

    assert [one["expert"] for one in hold_chat(ask)] == EXPERTS


def test_responses(client: Any) -> None:
    create = client.responses.create
    found = hold_chat(lambda chat: create(model="auto", input=chat, instructions="Boil an egg.", store=False).ir3de)
    assert [one["expert"] for one in found] == EXPERTS and [one.get("chat") for one in found] == REASONS


def test_completions(client: Any) -> None:
    """A prompt has one turn: there is nothing that it could stay with."""
    found = [client.completions.create(model="auto", prompt=text).ir3de["expert"] for text in (LANDLORD, FOLLOW_UP)]
    assert found[0] == "law" != found[1]


@pytest.mark.clients
def test_messages(gateway: Running) -> None:
    anthropic = pytest.importorskip("anthropic")
    with anthropic.Anthropic(base_url=gateway.url, api_key="any", max_retries=0) as client:

        def ask(chat: Any, **more: Any) -> Any:
            asked = {"model": "auto", "max_tokens": 9, "system": "Boil an egg.", "messages": chat, **more}
            return client.messages.create(**asked).ir3de

        found = hold_chat(ask)
        assert [one["expert"] for one in found] == EXPERTS and [one.get("chat") for one in found] == REASONS
        result = {"type": "tool_result", "tool_use_id": "1", "content": "Boil an egg. " * 50}
        loop = [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
            {"role": "user", "content": [result]},
        ]
        assert ask([{"role": "user", "content": LANDLORD}, *loop])["expert"] == "law"


def test_headers_say_which_turn_decided(client: Any) -> None:
    messages = [{"role": "user", "content": text} for text in ASKED[:3]]
    headers = client.chat.completions.with_raw_response.create(model="auto", messages=messages).headers
    assert headers["x-ir3de-chat"] == 'turn=2, decided=2, why="new subject"'
    headers = client.chat.completions.with_raw_response.create(model="auto", messages=messages[:1]).headers
    assert not {"x-ir3de-chat", "x-ir3de-reason", "x-ir3de-instead"} & headers.keys()


def test_a_session_header_wins(client: Any) -> None:
    def ask(*texts: str) -> Any:
        session = {"x-session-id": "a chat about cooking"}
        return client.chat.completions.create(model="auto", messages=chat_of(*texts), extra_headers=session).ir3de

    assert ask(QUESTIONS["cooking"])["expert"] == "cooking"
    found = ask(LANDLORD, FOLLOW_UP)
    assert (found["expert"], found["why"], found["decided"]) == ("cooking", "pinned", "law")


def test_a_long_chat_is_routed_beside_the_event_loop(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, route_turns = list[str](), choosing.route_turns

    def route(*given: Any) -> Any:
        threads.append(threading.current_thread().name)
        return route_turns(*given)

    monkeypatch.setattr(choosing, "route_turns", route)
    for messages, thread in (
        (chat_of(LANDLORD, FOLLOW_UP), ""),
        (chat_of(*[LANDLORD, FOLLOW_UP] * 1_000), "ir3de-json"),
        (chat_of("x " * 100_000, *ASKED[:2]), "ir3de-json"),
        (chat_of(*ASKED[:2], "Boil an egg. " * (MAX_INLINE_BYTES // 4), *ASKED), "ir3de-json"),
        (chat_of(QUESTIONS["maths"], "Boil an egg. " * (MAX_INLINE_BYTES // 4) + f"\n\n{LANDLORD}"), "ir3de-json"),
        (
            [
                message
                for text in ASKED * 9
                for message in (*chat_of(f"{text} " * 9), {"role": "tool", "content": "Boil an egg. " * 8_000})
            ],
            "",
        ),
    ):
        got = ask(gateway.url, {"model": "auto", "messages": messages})
        decision = Conversation.from_messages(small_router(), messages).decision
        assert (got.json["ir3de"]["expert"], got.json["ir3de"]["confidence"]) == (
            decision.expert,
            pytest.approx(decision.confidence, abs=1e-4),
        )
        assert threads.pop().startswith(thread) and not threads
        asked_by_name = ask(gateway.url, {"model": "law", "messages": messages})
        assert asked_by_name.status == 200 and not threads


def chat_of(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text} for text in texts]


# what is said of prompts that no expert is for ------------------------------------------------------------------------


@pytest.mark.usefixtures("strange")
def test_answers_say_that_they_are_out_of_domain_and_who_gave_them(tmp_path: Path) -> None:
    logs = {"access": str(tmp_path / "access.jsonl"), "decisions": str(tmp_path / "decisions.jsonl")}
    with serving(tmp_path, logs=logs) as gateway:
        got = ask(gateway.url, {"model": "auto", "messages": chat_of(LANDLORD)})
    assert (got.headers["x-ir3de-why"], got.headers["x-ir3de-reason"]) == ("abstained", "out of domain")
    assert got.headers["x-ir3de-instead"] == got.json["ir3de"]["instead"] == "nearest expert"
    assert (got.json["ir3de"]["reason"], got.json["ir3de"]["expert"]) == ("out of domain", "law")
    for path in logs.values():
        (line,) = map(json.loads, Path(path).read_text("utf-8").splitlines())
        assert (line["why"], line["reason"], line["instead"]) == ("abstained", "out of domain", "nearest expert")


@pytest.mark.usefixtures("strange")
def test_out_of_domain_is_refused_in_the_caller_s_format_if_so_configured(tmp_path: Path) -> None:
    decisions = tmp_path / "decisions.jsonl"
    logs = {"access": None, "decisions": str(decisions)}
    with serving(tmp_path, routing={"out_of_domain": "refuse", "default": "law"}, logs=logs) as gateway:
        with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client:
            for create in (
                lambda **more: client.chat.completions.create(model="auto", messages=chat_of(LANDLORD), **more),  # type: ignore[call-overload]
                lambda **more: client.responses.create(model="auto", input=LANDLORD, **more),
                lambda **more: client.completions.create(model="auto", prompt=LANDLORD, **more),
            ):
                for stream in (False, True):
                    with pytest.raises(openai.UnprocessableEntityError, match="maths, law, cooking") as refused:
                        create(stream=stream)
                    assert (refused.value.code, refused.value.param) == ("out_of_domain", "model")
                    assert refused.value.response.headers["x-ir3de-reason"] == "out of domain"
            assert client.chat.completions.create(model="law", messages=chat_of(LANDLORD)).model  # type: ignore[arg-type]
        got = ask(gateway.url, {"model": "auto", "messages": chat_of(LANDLORD)}, "/v1/messages")
        assert (got.status, got.json["type"], got.json["error"]["type"]) == (422, "error", "invalid_request_error")
        assert got.json["error"]["code"] == "out_of_domain"
        target = ask(gateway.url, {"messages": chat_of(LANDLORD), "target": True}, "/v1/route").json["data"][0]
        assert target["target"]["expert"] is None and "out of domain" in target["target"]["why"]
        assert gateway.upstream.asked == ["law"]
    lines = [json.loads(line) for line in decisions.read_text("utf-8").splitlines()]
    assert len(lines) == 7
    assert {(line["why"], line["reason"], line["served"], line["status"]) for line in lines} == {
        ("refused", "out of domain", "", 422)
    }


@pytest.mark.slow
def test_the_demo_s_router_keeps_a_landlord_in_law_and_knows_what_it_does_not_know(tmp_path: Path) -> None:
    chosen_demo_router().save(tmp_path / "router", serving=True)
    foreign = "Der Torwart hielt den Elfmeter in der zweiten Halbzeit"

    def ask_all(texts: list[str], **routing: Any) -> list[Any]:
        experts = [{"name": name, "base_url": f"{url}/{name}/v1"} for name in examples.DOMAINS]
        given = {"router": {"path": str(tmp_path / "router")}, "experts": experts, "logs": {"access": None}}
        gateway = Gateway.open(Config.model_validate({**given, "routing": routing}))
        with served(create_app(gateway)) as own, openai.OpenAI(base_url=f"{own}/v1", api_key="any") as client:
            create = client.chat.completions.create
            return [create(model="auto", messages=chat_of(*texts[: end + 1])).ir3de for end in range(len(texts))]  # type: ignore[arg-type,attr-defined]

    with served(Upstream().app()) as url:
        texts = [LANDLORD, FOLLOW_UP, "How do I sort a list in Python?", "thanks"]
        assert [one["expert"] for one in ask_all(texts)] == ["law", "law", "coding", "coding"]
        assert [one["expert"] for one in ask_all(texts[:2], text="last_user")] == ["law", "medicine"]
        (told,) = ask_all([foreign])
        assert (told["reason"], told["instead"], told["decided"]) == ("out of domain", "nearest expert", None)
        (told,) = ask_all([foreign], default="law")
        assert (told["reason"], told["instead"], told["expert"]) == ("out of domain", "default expert", "law")
        with pytest.raises(openai.UnprocessableEntityError, match="out of domain: no expert is for prompts like this"):
            ask_all([foreign], out_of_domain="refuse")


# logs, routed again ---------------------------------------------------------------------------------------------------


def test_logged_chats_are_routed_again_as_they_were_routed(tmp_path: Path) -> None:
    logs = {name: str(tmp_path / f"{name}.jsonl") for name in ("access", "decisions")}
    long = "<system-reminder>egg</system-reminder>Is the contract void?\n\n" + "Boil an egg. " * 3_000
    with serving(tmp_path, logs={**logs, "prompts": True}) as gateway:
        hold_chat(lambda chat: ask(gateway.url, {"model": "auto", "messages": chat}))
        ask(gateway.url, {"model": "auto", "messages": chat_of(long)})
        ask(gateway.url, {"model": "auto", "messages": chat_of(*["Boil an egg. " * 5_000, *ASKED] * 9)})
    access, lines = (
        [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()] for path in logs.values()
    )
    assert [line.get("chat") for line in lines[:4]] == [line.get("chat") for line in access[:4]] == REASONS
    assert [line.get("turns") for line in lines[:2]] == [None, [LANDLORD, FOLLOW_UP]]
    assert "reminder" not in lines[4]["turns"][0] and len(json.dumps(lines[5])) < 110_000
    found = compare(None, small_router(), DecisionLog(read_rows([logs["decisions"]])))
    assert (found.requests, found.agreement.value) == (6, 1.0) and found.confidence is not None
    assert found.confidence.candidate == pytest.approx(found.confidence.live, abs=1e-5)
    alone = compare(None, small_router(), DecisionLog([{**line, "turns": None} for line in lines]))
    assert alone.agreement.value < 1


# several workers, and another start -----------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.slow
def test_workers_agree_and_responses_are_continued_after_a_restart(tmp_path: Path) -> None:
    small_router().save(tmp_path / "router")
    upstream = Upstream()
    with served(upstream.app()) as url:
        experts = [{"name": name, "base_url": f"{url}/{name}/v1", "capabilities": EVERYTHING} for name in TEXTS]
        changes = {"experts": experts, "server": {"drain": 5}, "logs": {"access": None}}
        with process(tmp_path, 2, **changes) as gateway:
            for _ in range(8):  # each by connections of its own, so that both workers are asked
                with openai.OpenAI(base_url=f"{gateway.address}/v1", api_key="any") as client:
                    create = client.chat.completions.create
                    found = hold_chat(lambda chat, create=create: create(model="auto", messages=chat).ir3de)  # type: ignore[misc]
                    assert [one["expert"] for one in found] == EXPERTS
                    assert [one.get("chat") for one in found] == REASONS
                    first = client.responses.create(model="auto", input=LANDLORD)
            gateway.running.send_signal(signal.SIGTERM)
            gateway.running.wait(60)
        with process(tmp_path, 2, **changes) as gateway:
            for _ in range(4):
                with openai.OpenAI(base_url=f"{gateway.address}/v1", api_key="any") as client:
                    more = {"input": QUESTIONS["maths"], "previous_response_id": first.id}
                    answer: Any = client.responses.create(model="auto", **more)
                    assert (answer.ir3de["expert"], answer.ir3de["why"]) == ("law", "pinned")
            gateway.kill()
