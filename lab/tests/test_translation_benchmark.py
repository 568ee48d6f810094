"""The official clients of Anthropic and OpenAI, each against an expert of the other API: all as if asked natively."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ir3de_lab.benchmarks.translation import chat_side, messages_side
from ir3de_lab.benchmarks.translation.cases import CHATS, MESSAGES
from ir3de_lab.benchmarks.translation.comparing import Row, Seen, compare
from ir3de_lab.benchmarks.translation.model import Asked, answer
from ir3de_lab.benchmarks.translation.serving import both_servers


@pytest.mark.clients
@pytest.mark.nightly
def test_content_usage_and_stop_reasons_are_those_of_the_native_answer() -> None:
    pytest.importorskip("anthropic")
    rows = list(compare())
    assert [row for row in rows if not row.is_equal] == []
    assert len(rows) == 2 * (len(MESSAGES) + len(CHATS)) >= 70


def test_the_two_sides_of_the_model_read_the_same_from_the_same_request() -> None:
    """Otherwise equal answers would mean nothing: both clients' cases of the same name mean the same."""
    same = [
        name for name in CHATS if name in MESSAGES and name not in ("results of tools", "images", "system and turns")
    ]
    for name in same:
        chat = {"max_tokens": 5, **CHATS[name], **CHATS[name].get("extra_body", {})}
        message = {"max_tokens": 5, **MESSAGES[name], **MESSAGES[name].get("extra_body", {})}
        assert chat_side.read(chat) == messages_side.read(message), name


def test_the_model_s_answer_tells_what_it_saw() -> None:
    plain = answer(Asked(turns=[["user", ["text", "Hi"]]]))
    assert answer(Asked(turns=[["user", ["text", "Hi"]]], settings={"top_k": 1})).text != plain.text
    assert Row("OpenAI", "text", "whole", True, False, True).is_equal is False


@pytest.mark.clients
def test_an_expert_that_speaks_otherwise_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison sees a difference where there is one: here the chat side counts one token more."""
    pytest.importorskip("anthropic")
    from ir3de_lab.benchmarks.translation.comparing import _ask_messages

    usual = chat_side._usage

    def miscount(said: Any) -> dict[str, Any]:
        return {**usual(said), "completion_tokens": said.answer_tokens + 1}

    monkeypatch.setattr(chat_side, "_usage", miscount)
    with both_servers(tmp_path) as (model, gateway), ExitStack() as clients:
        native, translated = _ask_messages(model, clients), _ask_messages(gateway, clients)
        fields = MESSAGES["text"]
        one: Seen = native({**fields, "model": "both"}, False)
        other: Seen = translated({**fields, "model": "by-chat"}, False)
    assert (one.content, one.stop) == (other.content, other.stop)
    assert one.usage != other.usage
