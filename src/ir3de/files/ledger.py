"""What was done to a router, one entry a change, each sealed and chained to the one before it.

An entry names the contribution that came or went by the hash of its statistics, and the router before and after by the
hash of its `router.json`, which covers every other file. Nothing in a router depends on its ledger.

    {"entry": 7, "when": …, "action": "remove", "expert": "law",
     "contribution": {"id": …, "owner": …, "digest": …, "prompts": …, "tokens": …},
     "statistics": {"before": …, "after": …},      of all that the expert has
     "router": {"before": …, "after": …},
     "previous": …, "sha256": …}                   of the entry before, and of this one without this field
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from ir3de import files
from ir3de.errors import ArtifactError

Action = Literal["fit", "add", "merge", "remove", "tune", "settings"]
_DAMAGE = (ValueError, KeyError, TypeError, RecursionError)
DESCRIPTION, TAUGHT = "description", "taught"
RECEIPT, RECEIPT_VERSION = "ir3de.receipt", 1


@dataclass(frozen=True)
class ContributionRecord:
    """What was given to an expert or taken from it: its hash and its size, without its content."""

    digest: str  # of the statistics
    prompts: int
    tokens: int
    id: str | None = None  # None for texts that were counted here, which cannot be separated later
    owner: str = ""
    kind: str = ""  # "description" for words that count as prompts, "taught" for prompts that a teacher labelled

    def to_dict(self) -> dict[str, Any]:
        """As entries have it. Texts of people have no kind: entries of earlier versions keep their hashes."""
        return {name: value for name, value in asdict(self).items() if name != "kind" or value}

    @property
    def is_description(self) -> bool:
        return self.kind == DESCRIPTION


@dataclass(frozen=True)
class Change:
    """One thing done to a router; `before` and `after` are digests of all that the expert has."""

    action: Action
    expert: str | None = None
    given: ContributionRecord | None = None
    before: str | None = None
    after: str | None = None
    when: str = ""

    @classmethod
    def now(cls, action: Action, **details: Any) -> Change:
        return cls(action, **details, when=datetime.now(UTC).isoformat(timespec="seconds"))


@dataclass(frozen=True)
class Entry:
    """A change as it was saved: which router it made out of which."""

    entry: int
    change: Change
    router_before: str | None
    router_after: str
    previous: str | None
    sha256: str = ""

    def seal(self) -> Entry:
        return replace(self, sha256=files.seal(self._content())["sha256"])

    @property
    def is_intact(self) -> bool:
        """Whether the entry is as it was written."""
        return self.seal().sha256 == self.sha256

    def to_dict(self) -> dict[str, Any]:
        return {**self._content(), "sha256": self.sha256}

    def _content(self) -> dict[str, Any]:
        change = self.change
        return {
            "entry": self.entry,
            "when": change.when,
            "action": change.action,
            "expert": change.expert,
            "contribution": None if change.given is None else change.given.to_dict(),
            "statistics": {"before": change.before, "after": change.after},
            "router": {"before": self.router_before, "after": self.router_after},
            "previous": self.previous,
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Entry:
        _check_plain(found)
        given = found["contribution"]
        change = Change(
            found["action"],
            found["expert"],
            None if given is None else ContributionRecord(**given),
            found["statistics"]["before"],
            found["statistics"]["after"],
            found["when"],
        )
        router = found["router"]
        return cls(
            int(found["entry"]), change, router["before"], str(router["after"]), found["previous"], found["sha256"]
        )


def _check_plain(value: object, name: str = "") -> None:
    """Reject what an entry never holds: it comes from others, and is shown on a terminal."""
    if isinstance(value, Mapping) and name in ("", "contribution", "statistics", "router"):
        for key, inner in value.items():
            _check_plain(inner, key)
    elif name in _NUMBERS:
        if type(value) is not int:
            raise ValueError(f"'{name}' is {value!r:.40}, not a number")
    elif value is None and name in _OPTIONAL:
        return
    elif not isinstance(value, str) or any(c < " " or "\ud800" <= c <= "\udfff" for c in value):
        raise ValueError(f"'{name}' is {value!r:.40}, not plain text")


_NUMBERS = ("entry", "version", "prompts", "tokens")
_OPTIONAL = ("expert", "contribution", "id", "before", "after", "previous")
History = tuple[Entry, ...]


def extend_history(history: History, changes: Sequence[Change], after: str, *, before: str | None = None) -> History:
    """The history with these changes, which together led to the router of that hash from the one `before`.

    A save without a known change changed the settings. A router that the history does not lead to is named all the
    same: `faults` finds the gap.
    """
    last = history[-1].router_after if history else None
    before = before if history and before else last
    if not changes and last != after:
        changes = [Change.now("settings" if history else "fit")]
    for change in changes:
        previous = history[-1].sha256 if history else None
        history = (*history, Entry(len(history) + 1, change, before, after, previous).seal())
    return history


def trim_history(history: History, router: str) -> History:
    """The history as far as the router of that hash: what comes after it was written, but never came to be."""
    ends = [place for place, entry in enumerate(history, 1) if entry.router_after == router]
    return history[: ends[-1]] if ends else history


def faults(history: History, router: str) -> list[str]:
    """What is wrong with a history that should lead to the router of that hash; empty when it is sound."""
    found = []
    previous, reached, save = None, None, None
    for place, entry in enumerate(history, 1):
        if not entry.is_intact:
            found.append(f"entry {place} was edited: it does not match its own SHA-256")
        if entry.entry != place or entry.previous != previous:
            found.append(f"entry {place} does not follow the one before it: entries were taken out or put in")
        if entry.router_before != reached and (entry.router_before, entry.router_after) != save:
            found.append(f"entry {place} does not begin with the router that the one before it left")
        previous, reached, save = entry.sha256, entry.router_after, (entry.router_before, entry.router_after)
    if reached != router:
        found.append(f"it leads to router {str(reached)[:16]}, not to {router[:16]}: a change was made without it")
    return found


def to_lines(history: Iterable[Entry]) -> bytes:
    """One JSON object a line."""
    return b"".join(json.dumps(entry.to_dict(), ensure_ascii=False).encode() + b"\n" for entry in history)


def from_lines(content: bytes, path: Path) -> History:
    """The history in a file's bytes; `faults` checks it."""
    history = []
    for number, line in enumerate(content.splitlines(), 1):
        try:
            history.append(Entry.from_dict(json.loads(line)))
        except _DAMAGE as error:
            raise ArtifactError(
                f"{path}:{number} is damaged: it is not an entry of a ledger ({error!r}). Copy it again from where it "
                "came from, or delete it: the router itself does not need it"
            ) from error
    return tuple(history)


def receipt(entry: Entry) -> dict[str, Any]:
    """An entry as a document of its own, to be checked by others."""
    return {"kind": RECEIPT, "version": RECEIPT_VERSION, **entry.to_dict()}


def from_receipt(content: bytes, path: Path) -> Entry:
    """The entry of a receipt; rejects one that was changed."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} is not a receipt: it is not JSON ({error})") from error
    files.check_kind(found, RECEIPT, RECEIPT_VERSION, path)
    try:
        entry = Entry.from_dict(found)
    except _DAMAGE as error:
        raise ArtifactError(f"{path} is damaged: {error!r}. Request the receipt again") from error
    if not entry.is_intact:
        raise ArtifactError(
            f"{path} is damaged or was edited: its content does not match its own SHA-256. Request the receipt again"
        )
    return entry
