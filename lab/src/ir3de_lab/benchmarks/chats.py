"""Chats built from the prompts of a suite, each turn of the user with the expert that should get it.

Which prompts meet in a chat depends on hashes of their texts, so every run builds the same chats. Prompts that were
fitted, prompts that weights are chosen on, and test prompts never meet.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from ir3de_lab.benchmarks import follow_ups
from ir3de_lab.benchmarks.protocol import prompt_hash

Texts = Mapping[str, Sequence[str]]
Message = dict[str, Any]

DOCUMENT_CHARS = (
    1_000  # a set whose texts are longer, in the middle, is one of documents: its questions are cut from them
)
QUESTION_WORDS = (12, 40)
SYSTEM = (
    "You are a careful assistant in a terminal. You can read files, run commands and search the web. Use a tool where "
    "it helps, keep answers short, and never make up file names. Today's date and the user's settings follow."
)
REMINDER = "<system-reminder>The to-do list is empty. Do not mention this to the user.</system-reminder>"
ANSWERS = ("Sure. Here is what I found.", "Let me explain.", "Of course, here it is.", "I looked into it.")
ASKS = {
    "train": ("Please summarise this:", "What does this say?"),
    "test": ("Sum this up for me:", "What is this about?"),
}


class Turn(NamedTuple):
    """A turn of the user: what it says, whose it is, and what kind of turn it is."""

    text: str
    expert: str
    kind: str


@dataclass(frozen=True)
class Chat:
    """A chat: all its messages, and the turns of the user in it."""

    kind: str
    messages: list[Message]
    turns: list[Turn]


@dataclass(frozen=True)
class Sources:
    """What chats of one set are built from. `documents` are pasted where the set has none of its own."""

    name: str
    split: str  # "train" or "test": which follow-ups are used
    prompts: Texts
    documents: Sequence[str] = ()

    @property
    def has_own_documents(self) -> bool:
        """Whether the set is one of documents."""
        texts = [text for some in self.prompts.values() for text in some[:20]]
        return median(map(len, texts)) > DOCUMENT_CHARS


def build_chats(sources: Sources, count: int) -> list[Chat]:
    """`count` chats of each kind, always the same ones."""
    make = Maker(sources)
    return [chat for place in range(count) for chat in make.chats(place)]


class Maker:
    """Deals out prompts, follow-ups and documents in an order that depends on hashes alone."""

    def __init__(self, sources: Sources) -> None:
        self.sources, self.experts = sources, sorted(sources.prompts)
        self.draw = random.Random(prompt_hash(f"{sources.name} {sources.split}"))
        self.pools = {name: sorted(texts, key=prompt_hash) for name, texts in sources.prompts.items()}
        self.dealt = dict.fromkeys(self.experts, 0)
        self.documents = sorted(sources.documents, key=prompt_hash)
        self.own = sources.has_own_documents
        is_train = sources.split == "train"
        self.empty = follow_ups.TRAIN_EMPTY if is_train else follow_ups.TEST_EMPTY
        self.pronouns = follow_ups.TRAIN_PRONOUNS if is_train else follow_ups.TEST_PRONOUNS

    def chats(self, place: int) -> Iterator[Chat]:
        a = (
            self.experts[place * 7 % len(self.experts)]
            if len(self.experts) % 7
            else self.experts[place % len(self.experts)]
        )
        b = self.draw.choice([name for name in self.experts if name != a])
        ask, more, empty, pronoun = self.ask, self.follow, "follow-up", "pronoun"
        yield _plain("follow-ups", [ask(a, "first"), more(a, empty), more(a, empty), ask(a, "same"), more(a, empty)])
        yield _plain("pronouns", [ask(a, "first"), more(a, pronoun), ask(a, "same"), more(a, pronoun)])
        switch = [ask(b, "switch"), more(b, empty), more(b, pronoun), ask(b, "same")]
        yield _plain("switch", [ask(a, "first"), more(a, empty), ask(a, "same"), *switch])
        if self.own or self.documents:
            after = [more(a, empty), ask(b, "switch"), more(b, empty)]
            yield _plain("paste", [ask(a, "first"), self.paste(a, "paste"), *after])
            lone = self.paste(b, "paste of another expert") if self.own else self.paste(a, "paste, no subject", False)
            yield _plain("lone paste", [ask(a, "first"), more(a, empty), lone])
        turns = [ask(a, "tool loop"), more(a, "tool loop, follow-up"), ask(a, "tool loop"), ask(b, "tool loop, switch")]
        yield Chat("tool loop", list(self.loop(turns)), turns)

    def take(self, expert: str) -> str:
        pool, place = self.pools[expert], self.dealt[expert]
        self.dealt[expert] = place + 1
        return pool[place % len(pool)]

    def ask(self, expert: str, kind: str) -> Turn:
        text = self.take(expert)
        if self.own:
            text = " ".join(text.split()[: self.draw.randint(*QUESTION_WORDS)])
        return Turn(text, expert, kind)

    def follow(self, expert: str, kind: str) -> Turn:
        return Turn(self.draw.choice(self.pronouns if kind == "pronoun" else self.empty), expert, kind)

    def paste(self, expert: str, kind: str, with_question: bool = True) -> Turn:
        """A document with a short question: the expert's own document, or one of no expert beside its question."""
        if self.own:
            return Turn(f"{self.draw.choice(ASKS[self.sources.split])}\n\n{self.take(expert)}", expert, kind)
        question = self.take(expert) if with_question else self.draw.choice(self.empty)
        return Turn(f"{question}\n\n{self.draw.choice(self.documents)}", expert, kind)

    def loop(self, turns: Sequence[Turn]) -> Iterator[Message]:
        """An agent at work: tool calls and long results between the user's turns, in both formats."""
        yield {"role": "system", "content": SYSTEM}
        for place, turn in enumerate(turns):
            yield {
                "role": "user",
                "content": [{"type": "text", "text": REMINDER + turn.text}] if place % 2 else turn.text,
            }
            for call in range(2):
                result = self.take(self.draw.choice(self.experts))
                if call:
                    call_block = {"type": "tool_use", "id": "1", "name": "read", "input": {"path": "notes.txt"}}
                    yield {"role": "assistant", "content": [call_block]}
                    block = {"type": "tool_result", "tool_use_id": "1", "content": result}
                    yield {"role": "user", "content": [block]}
                else:
                    arguments = json.dumps({"query": "more"})
                    function = {"name": "search", "arguments": arguments}
                    calls = [{"id": "0", "type": "function", "function": function}]
                    yield {"role": "assistant", "content": None, "tool_calls": calls}
                    yield {"role": "tool", "tool_call_id": "0", "content": result}
            yield {"role": "assistant", "content": ANSWERS[place % len(ANSWERS)]}


def _plain(kind: str, turns: list[Turn]) -> Chat:
    messages: list[Message] = []
    for place, turn in enumerate(turns):
        messages.append({"role": "user", "content": turn.text})
        messages.append({"role": "assistant", "content": ANSWERS[place % len(ANSWERS)]})
    return Chat(kind, messages, turns)


def split_held_out(texts: Texts) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Training prompts to fit on, and a fifth of them that is held out, by a hash of each."""
    is_held: Callable[[str], bool] = lambda text: prompt_hash(text) % 5 == 0  # noqa: E731
    fitted = {name: [text for text in some if not is_held(text)] for name, some in texts.items()}
    held = {name: [text for text in some if is_held(text)] or list(some[:1]) for name, some in texts.items()}
    return fitted, held
