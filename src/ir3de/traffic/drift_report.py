"""The drift of a journal: a row for each share and mean, window by window, and the changes that the monitor found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ir3de.errors import InputError
from ir3de.evaluation.intervals import JSONReport
from ir3de.router import Router
from ir3de.traffic.drift import LONG_TOKENS, NO_EXPERT, PAIR, WORD, Alarm, DriftMonitor, Observation, observe_record
from ir3de.traffic.records import TrafficRecord

MAX_WINDOWS = 24
ONE_CHANGE_PROMPTS = 1_000  # alarms that follow one another within so many belong together
KINDS = ("word", "pair", "expert", "sign", "number")  # those that are easy to understand first
_TITLES = {"confidence": "confidence", "in_domain": "P(in domain)", "tokens": "length"}


@dataclass(frozen=True)
class DriftRow(JSONReport):
    """A share or a mean: in the fit, in the reference, in the last window, and in each window. None is unknown."""

    name: str
    unit: str  # share or mean
    fit: float | None
    reference: float | None
    now: float | None
    windows: tuple[float | None, ...]


@dataclass(frozen=True)
class Change(JSONReport):
    """Alarms that came together, and a sentence about the first."""

    summary: str
    alarms: tuple[Alarm, ...]


@dataclass(frozen=True)
class DriftReport(JSONReport):
    """What `measure_drift` found."""

    prompts: int
    reference_prompts: int  # of the last router; fewer than wanted as long as the reference is incomplete
    is_learning: bool  # the reference is not complete: nothing can be found yet
    prompts_per_false_alarm: float
    keeps: tuple[str, ...]  # what the journal kept of prompts
    rows: tuple[DriftRow, ...]
    changes: tuple[Change, ...]


def measure_drift(router: Router, records: Iterable[TrafficRecord], monitor: DriftMonitor | None = None) -> DriftReport:
    """Look at the requests of a journal, in their order."""
    monitor = monitor or DriftMonitor()
    seen: list[Observation] = []
    alarms: list[Alarm] = []
    keeps: set[str] = set()
    for record in records:
        seen.append(observe_record(record))
        alarms += monitor.observe(seen[-1])
        keeps |= {record.prompt.keep} if record.prompt else set()
    if not seen:
        raise InputError("the journal has no requests yet: drift is looked for in routed requests")
    fit = _FitFacts(router)
    size = max(-(-len(seen) // MAX_WINDOWS), 1)
    windows = [seen[start : start + size] for start in range(0, len(seen), size)]
    rows = _build_rows(router, fit, seen[: monitor.reference_prompts], windows)
    changes = tuple(_describe(group, fit, seen) for group in _group(alarms))
    counts = len(seen), monitor.learnt, monitor.is_learning, monitor.prompts_per_false_alarm
    return DriftReport(*counts, tuple(sorted(keeps)), rows, changes)


def describe_alarms(router: Router, alarms: Sequence[Alarm]) -> list[Change]:
    """The changes that alarms report, in words; alarms that follow one another closely are one change."""
    fit = _FitFacts(router)
    return [_describe(group, fit) for group in _group(alarms)]


class _FitFacts:
    """What the fit saw: its kept prompts, routed by fits that did not see them."""

    def __init__(self, router: Router) -> None:
        self.kept = router.route_kept()
        self._tokenizer = router.tokenizer
        self._words: list[set[str]] | None = None
        total = sum(router.prompts.values())
        self.shares = {name: many / total for name, many in router.prompts.items()} if total else {}

    def mean(self, name: str) -> float | None:
        if name == "tokens":
            values: list[Any] = [min(len(one.ids), LONG_TOKENS) / LONG_TOKENS for one in self.kept]
        else:
            values = [getattr(one.decision, name) for one in self.kept]
        return _mean(values)

    def word_share(self, word: str) -> float | None:
        """The share of the kept prompts with that word, or with that token."""
        if not self.kept:
            return None
        if word.startswith("#"):
            return sum(int(word[1:]) in one.ids for one in self.kept) / len(self.kept)
        if self._words is None:
            texts = self._tokenizer.decode_batch([one.ids for one in self.kept])
            self._words = [set(WORD.findall(text.casefold())) for text in texts]
        return sum(word in own for own in self._words) / len(self.kept)

    def name_word(self, word: str) -> str:
        if not word.startswith("#"):
            return word
        return self._tokenizer.decode_batch([np.array([int(word[1:])], np.uint32)])[0].strip()


def _mean(values: Sequence[float | None]) -> float | None:
    known = [float(one) for one in values if one is not None]
    return sum(known) / len(known) if known else None


def _build_rows(
    router: Router, fit: _FitFacts, reference: Sequence[Observation], windows: Sequence[Sequence[Observation]]
) -> tuple[DriftRow, ...]:
    rows = []

    def add(name: str, unit: str, in_fit: float | None, read: Any) -> None:
        found = tuple(_mean([read(one) for one in window]) for window in windows)
        if any(one is not None for one in found):
            rows.append(DriftRow(name, unit, in_fit, _mean([read(one) for one in reference]), found[-1], found))

    for name in router.experts:
        add(name, "share", fit.shares.get(name), lambda one, name=name: one.expert == name)
    add("abstained", "share", fit.mean("abstained"), lambda one: "abstained" in one.signs)
    for name, title in _TITLES.items():
        scale = LONG_TOKENS if name == "tokens" else 1
        mean = fit.mean(name)
        add(title, "mean", None if mean is None else mean * scale, _read_number(name, scale))
    add("good scores", "share", None, _read_score)
    for script in sorted({sign for window in windows for one in window for sign in one.signs if " " in sign} - SCORES):
        add(script, "share", None, lambda one, script=script: script in one.signs)
    return tuple(rows)


SCORES = {"good score", "bad score"}


def _read_number(name: str, scale: int) -> Any:
    return lambda one: one.numbers[name] * scale if name in one.numbers else None


def _read_score(one: Observation) -> bool | None:
    return "good score" in one.signs if SCORES & set(one.signs) else None


def _group(alarms: Sequence[Alarm]) -> list[list[Alarm]]:
    """Alarms that follow one another closely are one change."""
    groups: list[list[Alarm]] = []
    for alarm in alarms:
        if groups and alarm.prompt - groups[-1][-1].prompt <= ONE_CHANGE_PROMPTS:
            groups[-1].append(alarm)
        else:
            groups.append([alarm])
    return groups


def _describe(alarms: Sequence[Alarm], fit: _FitFacts, seen: Sequence[Observation] = ()) -> Change:
    """A sentence about the alarm that is easiest to understand: a word, then an expert, then the rest.

    Shares are those of all prompts that were seen since; without them, those that the alarm found.
    """
    first = min(alarms, key=lambda one: KINDS.index(one.kind))
    since = f"since {datetime.fromtimestamp(first.since, UTC):%A, %d %B %Y}"
    if first.kind == "number":
        return Change(f"{since} the {_TITLES[first.name]} is {first.direction} than before", tuple(alarms))
    later = seen[first.since_prompt - 1 :]
    share = sum(_has(one, first) for one in later) / len(later) if later else first.share
    now = f"{since} {_percent(share)} of the prompts"
    before = f", before {_percent(first.share_before)}"
    if first.kind == "word":
        in_fit = fit.word_share(first.name)
        words = list(dict.fromkeys(fit.name_word(one.name) for one in alarms if one.kind == "word"))
        also = f" (also {', '.join(words[1:6])})" if len(words) > 1 else ""
        known = f"; {'none' if not in_fit else _percent(in_fit)} in the fit did" if in_fit is not None else ""
        return Change(f"{now} contain {words[0]!r}{also}{before}{known}", tuple(alarms))
    if first.kind == "pair":
        word, _, expert = first.name.partition(PAIR)
        return Change(f"{now} contain {fit.name_word(word)!r} and go to {expert}{before}", tuple(alarms))
    verb = f"go to {first.name}" if first.kind == "expert" else f"have {first.name!r}"
    return Change(f"{now} {verb}{before}", tuple(alarms))


def _has(seen: Observation, alarm: Alarm) -> bool:
    if alarm.kind == "pair":
        word, _, expert = alarm.name.partition(PAIR)
        return word in seen.words and (seen.expert or NO_EXPERT) == expert
    events = {"word": seen.words, "expert": (seen.expert,), "sign": seen.signs}
    return alarm.name in events[alarm.kind]


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0):.1f} %"
