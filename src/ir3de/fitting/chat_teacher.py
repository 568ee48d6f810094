"""A language model as a teacher: an OpenAI-compatible chat endpoint that answers with the names of experts."""

from __future__ import annotations

import json
import os
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ir3de.errors import ArtifactError, InputError
from ir3de.fitting.teachers import MAX_NAME_CHARACTERS, Answer, Class

KEY_VARIABLE = "IR3DE_TEACHER_KEY"
CONCURRENCY = 8  # requests at once
AT_ONCE = 32  # texts; what was answered is kept after so many
TIMEOUT_S = 60.0
RETRIES = 5
FIRST_WAIT_S, MAX_WAIT_S = 1.0, 60.0
RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
MAX_ANSWER_TOKENS = 64
MAX_TEXT_CHARACTERS = 4_000  # of a text in a request
MAX_EXAMPLE_CHARACTERS = 300
CHARACTERS_PER_TOKEN = 4
NONE = "none"


@dataclass(frozen=True)
class ChatTeacher:
    """A chat endpoint. It gets the experts' names, descriptions and examples, and answers with a name."""

    url: str  # the base, such as http://127.0.0.1:8080/v1
    model: str
    concurrency: int = CONCURRENCY
    timeout_s: float = TIMEOUT_S
    retries: int = RETRIES
    first_wait_s: float = FIRST_WAIT_S
    at_once: int = AT_ONCE
    gives_vectors: bool = False

    @classmethod
    def parse(cls, address: str) -> ChatTeacher:
        """From http://host:port/v1#model."""
        base, _, model = address.partition("#")
        if not model or not re.fullmatch(r"https?://[^/\s]+\S*", base):
            raise InputError(f"a chat endpoint is http://host:port/v1#model, with the model's name, found '{address}'")
        return cls(base.rstrip("/"), model)

    @property
    def name(self) -> str:
        return f"{self.model} at {self.url.partition('://')[2].partition('/')[0]}"[:MAX_NAME_CHARACTERS]

    def identify(self, school: Class) -> Mapping[str, Any]:
        return {"url": self.url, "model": self.model, "instructions": write_instructions(school)}

    def answer(self, texts: Sequence[str], school: Class) -> list[Answer]:
        instructions, left, stop = write_instructions(school), list(enumerate(texts))[::-1], threading.Event()
        said: dict[int, str] = {}
        failed: list[Exception] = []

        def work() -> None:
            while left and not stop.is_set():
                with suppress(IndexError):  # another thread may take the last text
                    place, text = left.pop()
                    try:
                        said[place] = self._request(instructions, text, stop)
                    except Exception as error:
                        failed.append(error)
                        stop.set()

        # Daemons, because a request may take a minute, and a program that is stopped must not wait for it.
        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(self.concurrency, len(texts)))]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            stop.set()
        if failed:
            raise failed[0]
        return [read_name(said[place], school.experts) for place in range(len(texts))]

    def estimate(self, texts: Sequence[str], school: Class) -> dict[str, int]:
        """What labelling these texts takes, about: requests, and tokens that are sent and received."""
        fixed = len(write_instructions(school)) // CHARACTERS_PER_TOKEN + 16
        sent = sum(min(len(text), MAX_TEXT_CHARACTERS) // CHARACTERS_PER_TOKEN + fixed for text in texts)
        return {"requests": len(texts), "tokens_sent": sent, "tokens_received": 8 * len(texts)}

    def _request(self, instructions: str, text: str, stop: threading.Event) -> str:
        """The model's answer to one text. Overload and failed connections are tried again, after longer and longer."""
        body = {
            "model": self.model,
            "temperature": 0,
            "max_tokens": MAX_ANSWER_TOKENS,
            "messages": [
                {"role": "system", "content": instructions},
                {"role": "user", "content": f"Prompt:\n{text[:MAX_TEXT_CHARACTERS]}\n\nExpert:"},
            ],
        }
        headers = {"content-type": "application/json"}
        if key := os.environ.get(KEY_VARIABLE):
            headers["authorization"] = f"Bearer {key}"
        content, wait_s = json.dumps(body).encode(), self.first_wait_s
        for attempt in range(self.retries + 1):
            asked_s = None
            try:
                sent = urllib.request.Request(f"{self.url}/chat/completions", content, headers)  # noqa: S310
                with urllib.request.urlopen(sent, timeout=self.timeout_s) as answer:  # noqa: S310
                    return _read_answer(answer.read(), self.name)
            except urllib.error.HTTPError as error:
                reason = f"HTTP {error.code}: {error.read(300).decode(errors='replace').strip()}"
                if error.code not in RETRIED:
                    hint = f" Set the key in {KEY_VARIABLE}." if error.code in (401, 403) else ""
                    raise InputError(f"the teacher {self.name} rejected the request: {reason:.300}{hint}") from error
                asked_s = error.headers.get("retry-after")
            except (OSError, ValueError) as error:  # no connection, a timeout, an answer that is not JSON
                reason = str(error)
            if attempt < self.retries:
                seconds = float(asked_s) if asked_s and asked_s.replace(".", "", 1).isdigit() else wait_s
                if stop.wait(min(seconds, MAX_WAIT_S)):
                    break
                wait_s *= 2
        raise ArtifactError(
            f"the teacher {self.name} failed {attempt + 1} times: {reason:.300}. What it answered before is kept: "
            "run the same again once it is back"
        )


def _read_answer(content: bytes, name: str) -> str:
    """The text of a chat completion."""
    try:
        found = json.loads(content)["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"{name} gave no chat completion, but {content[:100].decode(errors='replace')}") from error
    return found if isinstance(found, str) else ""


def write_instructions(school: Class) -> str:
    """What the model gets about the experts."""
    lines = [
        "You sort prompts. Each prompt belongs to one of the experts below. Answer with its name exactly "
        f"as it is written, and with nothing else. Answer {NONE} if the prompt belongs to none of them.",
        "",
    ]
    for expert in school.experts:
        about = school.descriptions.get(expert)
        lines.append(f"Expert: {expert}" + (f" ({about})" if about else ""))
        lines += [f"- {' '.join(text.split())[:MAX_EXAMPLE_CHARACTERS]}" for text in school.examples.get(expert, ())]
    return "\n".join(lines)


def read_name(answer: str, experts: Sequence[str]) -> str | None:
    """The expert that an answer names, however it is written; None for none; else the answer itself, shortened.

    >>> read_name(' "Law". ', ("maths", "law")), read_name("Expert: maths", ("maths", "law")), read_name("None.", ())
    ('law', 'maths', None)
    """
    text = re.sub(r"(?s)<think>.*?(</think>|$)", "", answer).strip()
    first = text.splitlines()[0] if text else ""
    for said in (text, first, first.partition(":")[2] if first.lower().startswith("expert") else first):
        bare = _strip(said)
        if bare in ("", NONE):
            continue
        for expert in experts:
            if bare == _strip(expert):
                return expert
    named = [name for name in experts if re.search(rf"(?<!\w){re.escape(name.lower())}(?!\w)", text.lower())]
    if len(named) == 1:
        return named[0]
    return None if _strip(first) in ("", NONE) else first[:60]


def _strip(text: str) -> str:
    return text.strip().strip("\"'`*.,:;!()[]<> \t").lower()


def with_examples(school: Class, texts: Mapping[str, Sequence[str]], each: int) -> Class:
    """The same with the first prompts of each expert as examples."""
    return replace(school, examples={name: tuple(own[:each]) for name, own in texts.items()})
