"""Traces of agents, built from the prompts of a suite: a main loop with tools, sub-agents, and side requests.

All requests of a trace belong to one session. Each conversation in it has a system prompt of its own: the main loop,
whose user rarely changes the subject; sub-agents, whose tasks are of other experts; a request for a title at the
beginning, and one for a summary at the end. Every run builds the same traces.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count

from ir3de_lab.benchmarks.chats import ANSWERS, SYSTEM, Maker, Message, Sources, Turn

CHARS_PER_TOKEN = 4.5
RESULT_CHARS = (2_000, 8_000)  # of a tool
LOOP_CALLS = (2, 4)  # of tools, in a turn of the main loop
SWITCHING = 4  # of so many traces, one changes its subject
TOOLS = ("read", "write", "search", "list", "run", "fetch", "edit", "move")
MAIN = SYSTEM + "".join(
    f"\n- `{tool}`: use it only if the user's request needs it, describe what you did in one sentence, and never call "
    "it twice with the same arguments. Its result may be cut: ask for the rest if it matters."
    for tool in TOOLS
)
SUB_AGENTS = (
    "You are a sub-agent that searches. Work on the one task you are given, and report what you found.",
    "You are a sub-agent that plans. Break the task into steps, look up what is missing, and return the plan.",
)
TITLE = "You write titles. Answer with at most six words."
SUMMARY = "You summarise conversations. Keep names, numbers and decisions."


@dataclass(frozen=True)
class Ask:
    """A request: the conversation that it belongs to, its messages, and the expert that should get it."""

    conversation: str
    messages: list[Message]
    expert: str | None  # None for a side request, which any expert can answer

    @cached_property
    def tokens(self) -> int:
        """Roughly the tokens of the request."""
        return int(len(json.dumps(self.messages, ensure_ascii=False)) / CHARS_PER_TOKEN)


@dataclass
class Conversation:
    """A conversation that grows."""

    name: str
    messages: list[Message] = field(default_factory=list)


def build_traces(sources: Sources, count: int) -> list[list[Ask]]:
    """So many traces, always the same ones; each is the requests of a session, in their order."""
    tracer = Tracer(Sources(f"{sources.name} agents", sources.split, sources.prompts, sources.documents))
    return [list(tracer.trace(place)) for place in range(count)]


class Tracer(Maker):
    """Builds traces."""

    def trace(self, place: int) -> Iterator[Ask]:
        a = self.experts[place % len(self.experts)]
        b, c = (self.draw.choice([name for name in self.experts if name != a]) for _ in range(2))
        main, numbers = Conversation("main", [{"role": "system", "content": MAIN}]), count(1)
        turn = self.ask(a, "first")
        yield from self.work(main, turn)
        yield self.side("title", TITLE, [turn])
        yield from self.delegate(b, next(numbers))
        yield from self.work(main, self.follow(a, "follow-up"))
        second = self.ask(a, "same")
        yield from self.work(main, second)
        yield from self.delegate(c, next(numbers))
        third = self.follow(a, "pronoun")
        yield from self.work(main, third)
        turns = [turn, second, third]
        if place % SWITCHING == 0:
            turns.append(self.ask(b, "switch"))
            yield from self.work(main, turns[-1])
            yield from self.work(main, self.follow(b, "follow-up"))
        yield self.side("summary", SUMMARY, turns)

    def work(self, conversation: Conversation, turn: Turn) -> Iterator[Ask]:
        """A turn of the user, and the requests until it is answered: one for each result of a tool."""
        messages = conversation.messages
        messages.append({"role": "user", "content": turn.text})
        yield Ask(conversation.name, list(messages), turn.expert)
        for call in range(self.draw.randint(*LOOP_CALLS)):
            arguments = json.dumps({"query": f"part {call}"})
            function = {"name": self.draw.choice(TOOLS), "arguments": arguments}
            calls = [{"id": str(call), "type": "function", "function": function}]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            messages.append({"role": "tool", "tool_call_id": str(call), "content": self.write_result()})
            yield Ask(conversation.name, list(messages), turn.expert)
        messages.append({"role": "assistant", "content": self.draw.choice(ANSWERS)})

    def delegate(self, expert: str, number: int) -> Iterator[Ask]:
        """A sub-agent with a task."""
        system = {"role": "system", "content": self.draw.choice(SUB_AGENTS)}
        yield from self.work(Conversation(f"sub-agent {number}", [system]), self.ask(expert, "task"))

    def side(self, name: str, system: str, turns: Sequence[Turn]) -> Ask:
        """A side request about the main conversation."""
        said = "\n".join(turn.text for turn in turns)
        return Ask(name, [{"role": "system", "content": system}, {"role": "user", "content": said}], None)

    def write_result(self) -> str:
        """What a tool returns: prompts of any experts, as long as the contents of a file."""
        size, text = self.draw.randint(*RESULT_CHARS), ""
        while len(text) < size:
            text += self.take(self.draw.choice(self.experts)) + "\n"
        return text[:size]
