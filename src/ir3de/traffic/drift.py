"""Does traffic still look like the traffic before? A monitor that gets one request at a time, and reports changes.

From the first requests it learns what is normal; another router begins anew. Then detectors look at each request:

    words     words that become more frequent, which a new domain brings; tokens where the text is not kept
    pairs     words that become more frequent among the prompts of an expert
    experts   experts that get a larger share
    signs     abstentions, bad scores, scripts
    numbers   the ranks of confidence, P(in domain) and length

Together they raise a false alarm after `prompts_per_false_alarm` prompts or more on average: see `detectors`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from ir3de.errors import InputError
from ir3de.traffic.detectors import RankDetector, RateDetector
from ir3de.traffic.records import TrafficRecord

REFERENCE_PROMPTS = 4_000
PROMPTS_PER_FALSE_ALARM = 100_000
WORD = re.compile(r"[^\W\d_]{2,40}")
MAX_WORDS = 128  # of a prompt that are looked at
RATES = ("word", "pair", "expert", "sign")
FAMILIES = len(RATES) + 1  # with numbers: each has its part of the false alarms
PAIR = " → "  # between a word and the expert of its prompt
LONG_TOKENS = 4_096  # a prompt of so many counts as 1 in the bins of lengths
SCRIPT_CHARACTERS = 200  # of a prompt, in which its script is looked for
BAD_SCORE = 0.5
NO_EXPERT = "no expert"
TOLD_PROMPTS = 2_000  # after a word or an expert was reported, its pairs are not
NUMBERS = ("confidence", "in_domain", "tokens")


@dataclass(frozen=True)
class Observation:
    """What the monitor looks at in one request."""

    time: float
    router: str = ""
    expert: str | None = None
    words: tuple[str, ...] = ()  # each once; of a prompt whose text was not kept `#` and a token's id
    signs: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)  # of NUMBERS, those that are known; from 0 to 1


@dataclass(frozen=True)
class Alarm:
    """One change. `share` is that of the prompts since it began; None if a number became lower or higher."""

    kind: str  # word, pair, expert, sign or number
    name: str  # the word, the word and the expert, the expert, the sign, the number
    direction: str  # more, lower or higher
    prompt: int  # after which it was found, counted from the beginning of the traffic
    time: float
    since_prompt: int  # where it began, as far as the evidence shows
    since: float
    share: float | None = None
    share_before: float | None = None  # in the reference

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class DriftMonitor:
    """Is fed one request at a time; its state can be kept as JSON.

    >>> monitor = DriftMonitor(reference_prompts=100)
    >>> for number in range(200):
    ...     _ = monitor.observe(Observation(number, words=("the",)))
    >>> new = [Observation(number, words=("the", "invoice")) for number in range(200, 300)]
    >>> [(one.kind, one.name, one.since_prompt) for seen in new for one in monitor.observe(seen)]
    [('word', 'invoice', 201)]
    """

    def __init__(
        self,
        *,
        reference_prompts: int = REFERENCE_PROMPTS,
        prompts_per_false_alarm: float = PROMPTS_PER_FALSE_ALARM,
    ) -> None:
        if reference_prompts < 1 or prompts_per_false_alarm < 1:
            raise InputError("a reference and the prompts for each false alarm are numbers from 1")
        self.reference_prompts, self.prompts_per_false_alarm = reference_prompts, prompts_per_false_alarm
        self.router, self.prompts = "", 0
        self.told: dict[str, int] = {}  # the prompts at which words and experts were reported
        self.times: dict[str, float] = {}  # of prompts at which a number may have begun to change
        self._begin()

    def _begin(self) -> None:
        """A new reference."""
        self.learnt = 0
        self.rates = {kind: RateDetector() for kind in RATES}
        self.ranks = {name: RankDetector() for name in NUMBERS}

    @property
    def is_learning(self) -> bool:
        """Whether the reference is not complete yet."""
        return self.learnt < self.reference_prompts

    def observe(self, seen: Observation) -> list[Alarm]:
        """Look at the next request; the alarms it raises, most often none."""
        if seen.router != self.router:
            self.router = seen.router
            self._begin()
        self.prompts += 1
        events = {
            "word": list(seen.words),
            "pair": [f"{word}{PAIR}{seen.expert or NO_EXPERT}" for word in seen.words],
            "expert": [seen.expert] if seen.expert is not None else [],
            "sign": list(seen.signs),
        }
        if self.is_learning:
            self.learnt += 1
            for kind, detector in self.rates.items():
                detector.learn(events[kind])
            for name, value in seen.numbers.items():
                self.ranks[name].learn(value)
            return []
        found = [alarm for kind, names in events.items() for alarm in self._observe_events(kind, names, seen.time)]
        found += [
            alarm for name, value in seen.numbers.items() for alarm in self._observe_number(name, value, seen.time)
        ]
        return found

    def _observe_events(self, kind: str, names: list[str], time: float) -> Iterable[Alarm]:
        detector = self.rates[kind]
        for name, evidence in detector.observe(names, self.prompts, time):
            if evidence / FAMILIES >= self.prompts_per_false_alarm:
                state = detector.states[name]
                share = state.count / (self.prompts - state.since + 1)
                before = max(state.before - 1 / max(detector.reference, 1), 0.0)
                if not self._is_told(kind, name):
                    yield Alarm(kind, name, "more", self.prompts, time, state.since, state.time, share, before)
                detector.restart(name, share)

    def _is_told(self, kind: str, name: str) -> bool:
        """Whether it is a pair whose word or expert was reported; a word or an expert is noted."""
        if kind != "pair":
            self.told[f"{kind} {name}"] = self.prompts
            return False
        word, _, expert = name.partition(PAIR)
        last = max(self.told.get(f"word {word}", 0), self.told.get(f"expert {expert}", 0))
        return last > 0 and self.prompts - last <= TOLD_PROMPTS

    def _observe_number(self, name: str, value: float, time: float) -> Iterable[Alarm]:
        detector = self.ranks[name]
        evidence = detector.observe(value, self.prompts)
        if detector.since == self.prompts:
            self.times[name] = time
        if evidence / len(NUMBERS) / FAMILIES >= self.prompts_per_false_alarm:
            since = self.times.pop(name, time)
            yield Alarm("number", name, detector.direction, self.prompts, time, detector.since, since)
            self.ranks[name] = RankDetector()  # what is normal now is learnt anew

    def to_dict(self) -> dict[str, Any]:
        """The whole state, for JSON."""
        state = {name: value for name, value in vars(self).items() if name not in ("rates", "ranks")}
        rates = {kind: one.to_dict() for kind, one in self.rates.items()}
        return {**state, "rates": rates, "ranks": {name: one.to_dict() for name, one in self.ranks.items()}}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> DriftMonitor:
        """A monitor that goes on where `to_dict` was called."""
        try:
            monitor = cls()
            for name in vars(monitor):
                setattr(monitor, name, state[name])
            monitor.times, monitor.told = dict(state["times"]), dict(state["told"])
            monitor.rates = {kind: RateDetector.from_dict(one) for kind, one in state["rates"].items()}
            monitor.ranks = {name: RankDetector.from_dict(one) for name, one in state["ranks"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"this is not the state of a drift monitor ({error}): begin a new one") from error
        return monitor


def observe_record(record: TrafficRecord) -> Observation:
    """What the monitor looks at in a request of the journal: all that was kept of it."""
    words, script, length = _read_prompt(record)
    signs = ["abstained"] if record.abstained else []
    signs += [script] if script else []
    scores = [one.score for one in record.feedback if one.score is not None]
    if scores:
        signs.append("bad score" if sum(scores) / len(scores) < BAD_SCORE else "good score")
    length = length if record.prompt_tokens is None else record.prompt_tokens
    values: dict[str, float | None] = {"confidence": record.confidence, "in_domain": record.in_domain}
    values["tokens"] = min(length, LONG_TOKENS) / LONG_TOKENS if length else None
    numbers = {name: min(max(value, 0.0), 1.0) for name, value in values.items() if value is not None}
    return Observation(record.time, record.router, record.decided, words, tuple(signs), numbers)


def _read_prompt(record: TrafficRecord) -> tuple[tuple[str, ...], str, int]:
    """The words of a kept prompt, its script if the text was kept, and its length."""
    prompt = record.prompt
    if prompt is None:
        return (), "", 0
    if prompt.keep == "text":
        text = prompt.turns[-1] if prompt.turns else ""
        found = WORD.findall(text.casefold())
        return _choose_words(set(found)), find_script(text), len(found)
    ids = np.concatenate(prompt.ids) if prompt.ids else np.zeros(0, np.uint32)
    return _choose_words({f"#{one}" for one in ids.tolist()}), "", len(ids)


def _choose_words(words: set[str]) -> tuple[str, ...]:
    """The words of a prompt that are looked at. Of too many, the same words are chosen in every prompt."""
    chosen = sorted(words, key=lambda word: (crc32(word.encode(errors="surrogatepass")), word))[:MAX_WORDS]
    return tuple(sorted(chosen))


def find_script(text: str) -> str:
    """The script of most letters, as Unicode names it, if it is not Latin.

    >>> find_script("Привет"), find_script("hello")
    ('script CYRILLIC', '')
    """
    counts: dict[str, int] = {}
    for character in text[:SCRIPT_CHARACTERS]:
        if character.isalpha():
            name = unicodedata.name(character, "").partition(" ")[0]
            counts[name] = counts.get(name, 0) + 1
    most = max(sorted(counts), key=lambda name: counts[name], default="LATIN")
    return "" if most == "LATIN" else f"script {most}"
