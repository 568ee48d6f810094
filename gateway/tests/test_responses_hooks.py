"""Stored responses where a hook changes the conversation before it is sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hook_functions import DOES
from official_client import connect_as
from running_gateway import ANSWER, running


def shout(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text.upper()}]


def forget_ids(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": item["role"], "content": item["content"]} for item in items]


SYSTEM = {"role": "system", "content": "Be kind."}
HOOK_EDITS: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "keeps the end": lambda items: items[-3:],
    "keeps the end as plain messages": lambda items: forget_ids(items[-3:]),
    "keeps the client's": lambda items: items[-1:],
    "puts one in front": lambda items: [SYSTEM, *items],
    "puts one in front of plain messages": lambda items: [SYSTEM, *forget_ids(items)],
    "changes the answers": lambda items: [
        {**item, "content": "Hm."} if item["role"] == "assistant" else item for item in items
    ],
    "changes the client's": lambda items: [*items[:-1], *shout(items[-1]["content"])],
    "adds to the client's": lambda items: [*items, SYSTEM],
    "keeps the end and adds to it": lambda items: [*items[-4:], SYSTEM],
}


@pytest.mark.parametrize("edit", HOOK_EDITS)
def test_what_a_hook_does_to_the_conversation_is_not_stored_and_what_it_does_to_the_question_is(
    tmp_path: Path, edit: str
) -> None:
    questions = ["One?", "Two?", "Two?", "Four?", "Five?", "Six?"]

    def change(event: dict[str, Any]) -> Any:
        given = event["body"]["input"]
        return {"body": {**event["body"], "input": HOOK_EDITS[edit](given)}} if isinstance(given, list) else None

    DOES["before"] = change
    try:
        with running(tmp_path, hooks={"before": [{"call": "hook_functions:before"}]}) as gateway:
            client, last = connect_as(gateway.url, "a"), dict[str, Any]()
            for question in questions:
                got = client.responses.create(model="law", input=question, **last)
                last = {"previous_response_id": got.id}
            items = client.responses.input_items.list(got.id, order="asc", limit=100)
            stored = [(item.role, item.content[0].text) for item in items]  # type: ignore[union-attr]
    finally:
        DOES.clear()
    expected = [("user", questions[0])]
    for question in questions[1:]:
        asked = question.upper() if edit == "changes the client's" else question
        expected += [("assistant", "".join(ANSWER)), ("user", asked)]
        expected += [("system", "Be kind.")] if "adds" in edit else []
    assert stored == expected
