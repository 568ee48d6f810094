"""Conversation routing beside last-message and whole-text routing, on chats built from the prompts of each set.

A router is fitted on four fifths of the training prompts. The weights of turns are chosen on chats of the last fifth;
the figures that count are measured on chats of the test prompts, with follow-ups that were not looked at before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from statistics import mean
from time import perf_counter_ns
from typing import Any

from ir3de import Conversation, Router
from ir3de.policies import TurnWeights
from ir3de_lab.benchmarks.chats import Chat, Sources, build_chats, split_held_out
from ir3de_lab.benchmarks.defaults import Material
from ir3de_lab.benchmarks.protocol import prompt_hash

MOST_PROMPTS = 800  # of a domain, to fit on documents in a minute
MOST_DOCUMENTS = 300  # that are pasted
MAX_SWITCH_LOSS = 2.0  # points below last-message routing that weights may cost at a change of subject
LEVEL_POINTS = 0.2  # weights whose accuracies are closer than this are level
COST_ROUNDS = 30
GRID: Mapping[str, Sequence[float]] = {
    "decay": (0.5, 0.7, 0.9),
    "change": (1.0, 1.5, 2.0, 3.0),
    "cap": (8, 16, 32),
    "paste": (0.1, 0.25, 0.5),
}
# kinds of turns that are shown together
GROUPS: Mapping[str, tuple[str, ...]] = {
    "first": ("first",),
    "same subject": ("same",),
    "follow-ups": ("follow-up", "pronoun"),
    "without content": ("follow-up",),
    "pronouns": ("pronoun",),
    "switches": ("switch", "tool loop, switch"),
    "pastes": ("paste", "paste of another expert"),
    "pastes, no subject": ("paste, no subject",),
    "tool loops": ("tool loop", "tool loop, follow-up", "tool loop, switch"),
}


@dataclass(frozen=True)
class Row:
    """The share of turns at the right expert, in percent, for one way of routing and one set."""

    data: str
    routing: str
    turns: int
    accuracy: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Cost:
    """Microseconds of a turn in a conversation and of a single route of the same text, and their ratio."""

    data: str
    turns: str
    turn_us: float
    route_us: float

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.turn_us / self.route_us}


@dataclass(frozen=True, eq=False)
class Prepared:
    """A set with its router, the chats that weights are chosen on, and the chats of test prompts."""

    name: str
    router: Router
    train: list[Chat]
    test: list[Chat]
    sources: Mapping[str, Sources]  # of the chats, by split


def prepare(materials: Sequence[Material], count: int, only: Collection[str] = ()) -> Iterator[Prepared]:
    """Fit a router on each set, or on `only` these, and build its chats. Documents to paste come from other sets."""
    limited = {one.name: (_limit(one.train), _limit(one.splits["test"])) for one in materials}
    for name, (train, test) in limited.items():
        if only and name not in only:
            continue
        fitted, held = split_held_out(train)
        chats, sources = dict[str, list[Chat]](), dict[str, Sources]()
        for split, prompts, place in (("train", held, 0), ("test", test, 1)):
            documents = _foreign_documents(name, {other: parts[place] for other, parts in limited.items()})
            sources[split] = Sources(name, split, prompts, documents)
            chats[split] = build_chats(sources[split], count)
        yield Prepared(name, Router.fit(fitted), chats["train"], chats["test"], sources)


def _limit(texts: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {name: sorted(some, key=prompt_hash)[:MOST_PROMPTS] for name, some in texts.items()}


def _foreign_documents(name: str, sets: Mapping[str, Mapping[str, Sequence[str]]]) -> list[str]:
    """Documents of experts that the set does not have."""
    found = [
        text
        for other, experts in sets.items()
        if other != name and Sources(other, "", experts).has_own_documents
        for expert, texts in experts.items()
        if expert not in sets[name]
        for text in texts
    ]
    return sorted(found, key=prompt_hash)[:MOST_DOCUMENTS]


def measure(prepared: Prepared, chats: Sequence[Chat]) -> list[Row]:
    """Last-message, whole-text and conversation routing side by side."""
    router = prepared.router
    last = [[one.best for one in router.route_batch(turn.text for turn in chat.turns)] for chat in chats]
    whole = [[one.best for one in router.route_batch(_whole_texts(chat))] for chat in chats]
    return [
        count_right(prepared.name, "last message", chats, last),
        count_right(prepared.name, "whole text", chats, whole),
        measure_conversations(prepared, chats),
    ]


def measure_conversations(prepared: Prepared, chats: Sequence[Chat], weights: TurnWeights | None = None) -> Row:
    """Conversation routing, with the default weights or others."""
    made = [Conversation.from_messages(prepared.router, chat.messages, turn_weights=weights) for chat in chats]
    chosen = [[turn.decision.best for turn in conversation.turns] for conversation in made]
    return count_right(prepared.name, "conversation", chats, chosen)


def _whole_texts(chat: Chat) -> list[str]:
    return ["\n".join(turn.text for turn in chat.turns[: place + 1]) for place in range(len(chat.turns))]


def count_right(name: str, way: str, chats: Sequence[Chat], chosen: Sequence[Sequence[str]]) -> Row:
    """The shares of turns at the right expert, from the experts that were chosen for each turn of each chat."""
    right: dict[str, list[bool]] = {}
    stays: list[bool] = []
    for chat, experts in zip(chats, chosen, strict=True):
        for place, (turn, expert) in enumerate(zip(chat.turns, experts, strict=True)):
            right.setdefault(turn.kind, []).append(expert == turn.expert)
            if place and turn.kind in GROUPS["follow-ups"]:
                stays.append(expert == experts[place - 1])
    everything = [one for some in right.values() for one in some]
    accuracy = {"all": 100.0 * mean(everything)}
    for group, kinds in GROUPS.items():
        if some := [one for kind in kinds for one in right.get(kind, [])]:
            accuracy[group] = 100.0 * mean(some)
    accuracy["follow-ups that stay"] = 100.0 * mean(stays)
    return Row(name, way, len(everything), accuracy)


def average(rows: Sequence[Row]) -> list[Row]:
    """The mean over the sets, for each way of routing."""
    made = []
    for way in dict.fromkeys(row.routing for row in rows):
        own = [row for row in rows if row.routing == way]
        groups = dict.fromkeys(group for row in own for group in row.accuracy)
        means = {group: mean(row.accuracy[group] for row in own if group in row.accuracy) for group in groups}
        made.append(Row("mean", way, sum(row.turns for row in own), means))
    return made


def choose_weights(everything: Sequence[Prepared]) -> tuple[TurnWeights, list[dict[str, Any]]]:
    """The weights of the largest mean accuracy on chats of training prompts, and all that was tried.

    At a change of subject they may not lose more than `MAX_SWITCH_LOSS` points to last-message routing. Of weights that
    are level, those that lose least there are chosen, then those with the smallest decay: these chats are short, and
    longer ones drift.
    """
    last = average([row for one in everything for row in measure(one, one.train)[:1]])[0].accuracy["switches"]
    tried: list[dict[str, Any]] = []
    for values in product(*GRID.values()):
        weights = TurnWeights(**dict(zip(GRID, values, strict=True)))  # type: ignore[arg-type]
        own = average([measure_conversations(one, one.train, weights) for one in everything])[0].accuracy
        tried.append({"weights": asdict(weights), "accuracy": own, "switch_loss": last - own["switches"]})
    allowed = [one for one in tried if one["switch_loss"] <= MAX_SWITCH_LOSS] or tried
    best = max(one["accuracy"]["all"] for one in allowed)
    level = [one for one in allowed if one["accuracy"]["all"] >= best - LEVEL_POINTS]
    chosen = min(level, key=lambda one: (one["switch_loss"], one["weights"]["decay"], -one["accuracy"]["all"]))
    return TurnWeights(**chosen["weights"]), tried


def measure_costs(prepared: Prepared, rounds: int = COST_ROUNDS) -> list[Cost]:
    """Time each turn in its chat, and a route of its text alone; of each, the fastest of several rounds counts."""
    router, chats = prepared.router, [chat for chat in prepared.test if chat.kind in ("follow-ups", "switch")][:40]
    kinds = [turn.kind for chat in chats for turn in chat.turns]
    turns, routes = [[10**12] * len(kinds) for _ in range(2)]
    for _ in range(rounds):
        found = [second for chat in chats for second in _time(Conversation(router).route, chat)]
        turns = list(map(min, turns, found))
        found = [second for chat in chats for second in _time(router.route, chat)]
        routes = list(map(min, routes, found))
    groups = {
        "all": set(kinds),
        "with content, after the first": {"same", "switch"},
        "follow-ups": {"follow-up", "pronoun"},
    }
    made = []
    for group, chosen in groups.items():
        own = [place for place, kind in enumerate(kinds) if kind in chosen]
        means = [mean(times[place] for place in own) / 1_000 for times in (turns, routes)]
        made.append(Cost(prepared.name, group, *means))
    return made


def _time(route: Callable[[str], Any], chat: Chat) -> Iterator[int]:
    for turn in chat.turns:
        begun = perf_counter_ns()
        route(turn.text)
        yield perf_counter_ns() - begun
