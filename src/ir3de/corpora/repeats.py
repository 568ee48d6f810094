"""Prompts that occur twice in labelled texts, and prompts with several labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

MAX_EXAMPLES = 3
MAX_NAMED_LABELS = 3


@dataclass(frozen=True)
class Duplicate:
    """A prompt that stands in several rows with one label."""

    text: str
    label: str
    rows: int


@dataclass(frozen=True)
class Conflict:
    """A prompt that stands in rows with different labels."""

    text: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Repeats:
    """How many rows repeat an earlier one with its label, how many prompts have several labels, and some of both."""

    duplicates: int
    conflicts: int
    duplicate_examples: tuple[Duplicate, ...]
    conflict_examples: tuple[Conflict, ...]

    def without_examples(self) -> Repeats:
        """The same numbers without any text."""
        return replace(self, duplicate_examples=(), conflict_examples=())

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def find_repeats(texts: Mapping[str, Iterable[str]]) -> Repeats:
    """Compare all texts of {label: texts}, without the space around them.

    >>> found = find_repeats({"cards": ["Where is my card?"] * 2, "travel": ["Where is my card?", "Where to?"]})
    >>> found.duplicates, found.conflicts, found.conflict_examples[0].labels
    (1, 1, ('cards', 'travel'))
    """
    rows: dict[str, dict[str, int]] = {}
    for label, own in texts.items():
        for text in own:
            labels = rows.setdefault(text.strip(), {})
            labels[label] = labels.get(label, 0) + 1
    again = [
        Duplicate(text, label, count) for text, found in rows.items() for label, count in found.items() if count > 1
    ]
    several = [Conflict(text, tuple(found)) for text, found in rows.items() if len(found) > 1]
    again.sort(key=lambda one: -one.rows)
    several.sort(key=lambda one: -len(one.labels))
    duplicates = sum(one.rows - 1 for one in again)
    return Repeats(duplicates, len(several), tuple(again[:MAX_EXAMPLES]), tuple(several[:MAX_EXAMPLES]))


def describe_repeats(found: Repeats, shorten: Callable[[str], str]) -> Iterator[str]:
    """What was found, in sentences, each with an example where there is one."""
    if found.conflicts:
        text = "1 prompt has" if found.conflicts == 1 else f"{found.conflicts:,} prompts have"
        text += " more than one label"
        if found.conflict_examples:
            first = found.conflict_examples[0]
            more = len(first.labels) - MAX_NAMED_LABELS
            labels = [*first.labels[:MAX_NAMED_LABELS], *([f"{more} more"] if more > 0 else [])]
            text += f": “{shorten(first.text)}” is under {', '.join(labels[:-1])} and {labels[-1]}"
        yield f"{text}. All of them are counted, and the router can name only one for the same prompt."
    if found.duplicates:
        text = "1 row repeats" if found.duplicates == 1 else f"{found.duplicates:,} rows repeat"
        text += " an earlier row with the same label"
        if found.duplicate_examples:
            again = found.duplicate_examples[0]
            text += f": “{shorten(again.text)}” is there {again.rows:,} times under {again.label}"
        yield f"{text}. Every row is counted; copies are held out together."
