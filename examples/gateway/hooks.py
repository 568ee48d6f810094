"""Hooks for `ir3de serve`: addresses and card numbers reach neither an expert nor a log, and some words no client.

    hooks:
      before:
        - call: hooks.py:redact
        - call: hooks.py:refuse_weapons
      after:
        - call: hooks.py:hide_project
          streams: hold

`python examples/gateway/hooks.py` shows what they do.
"""

from __future__ import annotations

import re

from ir3de_gateway import HookAnswer, HookRequest, HookVerdict

PRIVATE = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\b(?:\d[ -]?){13,16}\b")


def redact(request: HookRequest) -> HookVerdict | None:
    """Take private data out of every text that a model would read."""
    texts = [PRIVATE.sub("[private]", text) for text in request["texts"]]
    return {"texts": texts} if texts != request["texts"] else None


async def refuse_weapons(request: HookRequest) -> HookVerdict | None:
    """Refuse what one team may not ask; another key may."""
    if request["key"] != "research" and any("weapon" in text.lower() for text in request["texts"]):
        return {"refuse": {"status": 403, "message": "this gateway does not answer questions about weapons"}}
    return None


def hide_project(answer: HookAnswer) -> HookVerdict | None:
    """Answers must not have the name of a project, even if a stream has it in pieces."""
    return {"texts": [text.replace("Project Heron", "the project") for text in answer["texts"]]}


if __name__ == "__main__":
    question = "My address is ada@example.org. Is my contract void?"
    request: HookRequest = {
        "request_id": "1",
        "endpoint": "chat",
        "path": "/v1/chat/completions",
        "key": "",
        "body": {"messages": [{"role": "user", "content": question}]},
        "texts": [question],
    }
    print(redact(request))
