"""What became of each request, held against what the upstream says it did."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ir3de_lab.benchmarks.gateway.upstream import WAYS
from ir3de_lab.benchmarks.gateway.wire import Answer

Kind = Literal[
    "answered",  # the whole answer, and nobody else's
    "cancelled",  # the client left
    "refused",  # an error object
    "cut",  # a part, and then an error or the end
    "wrong",  # what looks whole and is not what was asked for
    "lost",  # nothing
]


@dataclass(frozen=True)
class Fate:
    """What a client saw of one request."""

    identity: str
    kind: Kind
    status: int = 0


def fate(identity: str, answer: Answer, tokens: int, *, stream: bool) -> Fate:
    """What the answer is worth to the one who asked for so many tokens."""
    if not answer.status:
        return Fate(identity, "lost")
    if answer.status != 200:
        told = _object(bytes(answer.body)) if answer.complete else {}
        return Fate(identity, "refused" if "error" in told else "wrong", answer.status)
    words = [f"tok{n}" for n in range(tokens)]
    kind = _of_stream(identity, answer, words) if stream else _of_whole(identity, answer, words)
    return Fate(identity, kind, 200)


def _of_whole(identity: str, answer: Answer, words: Sequence[str]) -> Kind:
    if not answer.complete:
        return "cut"
    told = _object(bytes(answer.body))
    content = str(told["choices"][0]["message"]["content"]) if told.get("choices") else ""
    return "answered" if content.split() == [identity, *words] else "wrong"


def _of_stream(identity: str, answer: Answer, words: Sequence[str]) -> Kind:
    events = [line[6:] for line in bytes(answer.body).split(b"\n") if line.startswith(b"data: ")]
    pieces = [_object(event) for event in events if event != b"[DONE]"]
    choices = [piece for piece in pieces if piece.get("choices")]
    if any(piece.get("id") != f"chatcmpl-{identity}" for piece in choices):
        return "wrong"
    said = "".join(piece["choices"][0]["delta"].get("content") or "" for piece in choices).split()
    if answer.complete and events and events[-1] == b"[DONE]" and said == words:
        return "answered"
    failed = not answer.complete or any("error" in piece for piece in pieces)
    return "cut" if failed and said == words[: len(said)] else "wrong"


def _object(text: bytes) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


NOTES = {
    "lost": "no answer at all",
    "wrong": "not what was asked for",
    "doubled": "the upstream was made to answer twice",
    "unjust error": "an error that was not the upstream's last word",
    "unjust cut": "a part of an answer, though the upstream gave all of it",
    "propagated": "the upstream saw the client leave",
    "ignored": "the upstream went on to the end although the client had left",
    "hung up": "the upstream was left while the client was waiting",
    "fallback": "answered in another attempt than the first",
    "resting": "refused without asking, because the experts had asked for a rest",
}
WRONGS = tuple(NOTES)[:5]


@dataclass(frozen=True)
class Verdict:
    """How the requests ended, and what is to be said about them; `examples` has some ids of what should not be."""

    kinds: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)  # in the words of `NOTES`
    examples: dict[str, list[str]] = field(default_factory=dict)


def judge(fates: Iterable[Fate], seen: Mapping[str, Sequence[str]], shown: int = 5) -> Verdict:
    """Hold what the clients saw against the upstream's own account: id, and how each attempt ended."""
    verdict = Verdict()
    for one in fates:
        verdict.kinds[one.kind] += 1
        verdict.statuses[str(one.status)] += 1
        for note in _notes(one, seen.get(one.identity, ())):
            verdict.notes[note] += 1
            if note in WRONGS and verdict.notes[note] <= shown:
                verdict.examples.setdefault(note, []).append(one.identity)
    return verdict


def _notes(one: Fate, attempts: Sequence[str]) -> Iterable[str]:
    """What there is to say about a request, in the words of `NOTES`."""
    served = sum(attempt == "served" for attempt in attempts)
    if one.kind == "cancelled":
        yield from ("propagated",) if "left" in attempts else ("ignored",) if served else ()
        return
    if served > 1:
        yield "doubled"
    if "left" in attempts:
        yield "hung up"
    if one.kind in ("lost", "wrong"):
        yield one.kind
    elif one.kind == "answered":
        yield from ("fallback",) if len(attempts) > 1 else () if served else ("wrong",)
    elif one.kind == "refused" and one.status in (429, 503) and not attempts:
        yield "resting"
    elif one.kind == "refused" and not _all_failed(attempts):
        yield "unjust error"
    elif one.kind == "cut" and not _all_failed(attempts):
        yield "unjust cut"


def _all_failed(attempts: Sequence[str]) -> bool:
    """Whether the upstream was asked, and failed each time."""
    return bool(attempts) and all(attempt in WAYS for attempt in attempts)
