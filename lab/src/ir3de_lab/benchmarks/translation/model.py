"""The model: what it is asked, in words of neither API, and what it answers. Its answer repeats what it was asked."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

PIECE_CHARS = 7  # of a text that is streamed
ERRORS = {"fail400": 400, "fail429": 429, "fail500": 500}  # words of a prompt: the status of the answer


class ModelError(Exception):
    """The model does not answer."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the model fails with {status}")
        self.status = status


@dataclass
class Asked:
    """A request. Both servers must read the same from requests that mean the same."""

    system: str = ""
    turns: list[list[Any]] = field(default_factory=list)  # role, then items such as ["text", "Hi"]
    tools: list[list[Any]] = field(default_factory=list)  # name, description, schema
    choice: list[str] = field(default_factory=list)  # auto, none, any, or tool and its name
    is_serial: bool = False
    max_tokens: int | None = None
    stops: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)  # temperature, top_p, top_k, user, effort, schema

    def add(self, role: str, *items: list[Any]) -> None:
        """Add to the turns; what follows from the same side is part of its turn."""
        if self.turns and self.turns[-1][0] == role:
            self.turns[-1] += items
        else:
            self.turns.append([role, *items])


@dataclass
class Answer:
    """What the model says, why it ended, and what it counted."""

    thought: str = ""
    text: str = ""
    refusal: str = ""
    calls: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)  # id, name, arguments
    end: str = "end"  # or length, calls, refusal, filter, stop
    stop: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    answer_tokens: int = 0


def answer(asked: Asked) -> Answer:
    """What the words of the last turn ask for."""
    words = " ".join(str(item[1]) for item in asked.turns[-1][1:] if item[0] == "text")
    for word, status in ERRORS.items():
        if word in words:
            raise ModelError(status)
    seen = json.dumps(asdict(asked), ensure_ascii=False)
    found = Answer(text=f"I was asked: {seen}", prompt_tokens=len(seen) // 4)
    if "cached" in words:
        found.cached_tokens = found.prompt_tokens // 2
    if "think" in words:
        found.thought = "Let me see. Café – 東京 😀."
    if "refuse" in words:
        found.text, found.refusal, found.end = "", "I will not.", "refusal"
    if asked.tools and "call" in words:
        found.calls = _build_calls(asked, words)
        found.end = "calls"
        found.text = "" if "silently" in words else "I look. " + found.text
    if "end early" in words:
        found.end = "length"
        found.text = found.text[:20]
    if "filter" in words:
        found.end = "filter"
    if asked.stops:
        found.end, found.stop = "stop", asked.stops[0]
    found.answer_tokens = 1 + len(found.text + found.thought + str(found.calls)) // 4
    return found


def _build_calls(asked: Asked, words: str) -> list[tuple[str, str, dict[str, Any]]]:
    names = [name for name, _, _ in asked.tools]
    arguments: list[dict[str, Any]] = [
        {"city": "Zürich", "days": [1, 2, {"a": None}]},
        {},
        {"city": 'a "quoted" \\ place\n'},
    ]
    wanted = 3 if "three" in words and not asked.is_serial else 1
    return [(f"call_{n}", names[n % len(names)], arguments[n]) for n in range(wanted)]


def cut(text: str) -> list[str]:
    """A text in the pieces of a stream."""
    return [text[n : n + PIECE_CHARS] for n in range(0, len(text), PIECE_CHARS)]
