"""Teaching: a teacher labels texts that people did not, and the router learns from both.

What was taught is a contribution of its own for each expert: named in the ledger, and removed like any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ir3de.corpora import read_texts
from ir3de.corpora.rows import text_of
from ir3de.embedding import Embedding
from ir3de.errors import InputError, name_some
from ir3de.fitting.calibration import HeldOut
from ir3de.fitting.chat_teacher import ChatTeacher, with_examples
from ir3de.fitting.lessons import Lesson
from ir3de.fitting.parts import RouterParts
from ir3de.fitting.taught_labels import FOLDS, Flags, Indices, Material, Verdict, judge
from ir3de.fitting.teachers import (
    AnswerFile,
    Class,
    ask,
    read_names,
    read_vectors,
)
from ir3de.fitting.teaching_report import Teaching
from ir3de.routing.compiled import decide_ids
from ir3de.scorers.logistic import Logistic
from ir3de.scorers.prompt_features import LONGEST, Prompts
from ir3de.statistics.contributions import TEACHER, Contribution
from ir3de.statistics.counting import Recipe, collect
from ir3de.statistics.domain import Statistics
from ir3de.statistics.sample import FULL_TRUST, TAUGHT, hash_text

TAUGHT_ID = "taught"  # of the contribution
MAX_TEXTS = 20_000  # unlabelled ones that are used, chosen by their hashes
MAX_TEXT_CHARACTERS = 8_192  # of a text
MAX_LABELLED = 4_000  # prompts of all experts that teach the teacher
MIN_LABELLED = 8  # of an expert, even where that exceeds it
MAX_NAMED = 300  # labelled prompts whose answers are compared with people's, where each answer is a request
MAX_EXAMPLES = 60  # prompts that a language model gets as examples
ASKED_AGAIN = 0.02  # of the texts, to see whether the teacher contradicts itself,
MIN_ASKED_AGAIN, MAX_ASKED_AGAIN = 10, 100  # but so many
FAR_SHARE = 0.02  # of labelled prompts lie so far from their nearest other prompt that such a text is left out
Z = 1.959963984540054  # 95 % of a normal distribution lie within so many standard deviations


@dataclass
class _Texts:
    """Texts to label, each once, and how many were left out."""

    given: int = 0
    blank: int = 0
    repeated: int = 0
    labelled: int = 0
    beyond: int = 0
    texts: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, source: Iterable[Any] | str | Path, known: frozenset[int]) -> _Texts:
        """Read texts one by one. Of many, those whose hashes come first are used, so that memory is bounded."""
        found, rows = cls(), read_texts([source]) if isinstance(source, (str, Path)) else source
        kept: dict[int, str] = {}
        limit = 1 << 32
        for row in rows:
            text = text_of(row)[:MAX_TEXT_CHARACTERS]
            found.given += 1
            place = hash_text(text)
            if not text.strip():
                found.blank += 1
            elif place in known:
                found.labelled += 1
            elif place in kept:
                found.repeated += 1
            elif place >= limit:
                found.beyond += 1
            else:
                kept[place] = text
            if len(kept) > 2 * MAX_TEXTS:
                limit = sorted(kept)[MAX_TEXTS]
                found.beyond += len(kept) - MAX_TEXTS
                kept = {place: text for place, text in kept.items() if place < limit}
        order = sorted(kept)
        found.beyond += max(0, len(order) - MAX_TEXTS)
        found.texts = [kept[place] for place in order[:MAX_TEXTS]]
        if not found.texts:
            raise InputError(
                f"no text is left for the teacher: of {found.given:,} texts, {found.blank:,} are blank and "
                f"{found.labelled:,} are labelled already. Give texts without labels"
            )
        return found


@dataclass(frozen=True, eq=False)
class Taught:
    """The contribution of each expert, empty if the teacher brought nothing, and the report."""

    contributions: Mapping[str, Contribution]
    report: Teaching


def find_taught(parts: RouterParts, held_out: HeldOut | None, lesson: Lesson, names: Sequence[str] | None) -> Taught:
    """Let the teacher label texts for a router, and keep the labels that help. `names` are experts to teach, or all.

    `held_out` has the router's own evidence for labelled prompts, from fits without them.
    """
    statistics, embedding, experts = parts.training.statistics(), parts.embedding(), parts.compiled.experts
    domains = list(statistics.values())
    prompts = LabelledPrompts.gather(experts, domains, embedding)
    if held_out is None:
        raise InputError(
            "what a teacher brings is measured on labelled prompts that are held out, and none can be: give at least "
            "two experts, with two prompts or more each"
        )
    hashes = [own.sample.hashes[: own.sample.labelled] for own in domains if own.sample is not None]
    found = _Texts.read(lesson.texts, frozenset(np.concatenate(hashes).tolist()))
    answered = _ask_all(lesson, experts, prompts, found.texts)
    flat, lengths = embedding.tokenizer.encode_batch(found.texts)
    ids = [one[:LONGEST] for one in np.split(flat, np.cumsum(lengths)[:-1])]
    routed = decide_ids(parts.compiled, ids, parts.tokenizer.unknown_id)
    allowed = answered.allowed & ~np.array(
        [not len(one) or decision.out_of_domain for one, decision in zip(ids, routed, strict=True)]
    )
    has_tokens = [one if len(one) else np.zeros(1, np.uint32) for one in ids]
    material = _make_material(prompts, has_tokens, answered, domains, embedding)
    wanted = None if names is None else [experts.index(name) for name in names]
    verdict = judge(material, allowed, wanted)
    report = _report(
        lesson.teacher.name, experts, found, answered, allowed, verdict, _compare(prompts, held_out, verdict)
    )
    if not report.is_used:
        return Taught({}, report)
    return Taught(_contribute(parts, lesson.teacher.name, found.texts, verdict, experts), report)


@dataclass(frozen=True, eq=False)
class LabelledPrompts:
    """The labelled prompts that the teacher learns from."""

    texts: list[str]
    ids: list[Any]
    experts: Indices
    places: Indices  # in the samples

    @classmethod
    def gather(cls, names: Sequence[str], domains: Sequence[Statistics], embedding: Embedding) -> LabelledPrompts:
        samples = [own.sample for own in domains]
        if bare := [name for name, one in zip(names, samples, strict=True) if one is None or not one.labelled]:
            raise InputError(
                f"a teacher learns from labelled prompts, and {name_some(bare)} has none that were kept: give each "
                "expert at least one prompt, and fit with keep_sample=True"
            )
        each = max(MIN_LABELLED, MAX_LABELLED // len(domains))
        taken = [one.take(np.arange(min(each, one.labelled))) for one in samples if one is not None]
        ids = [own for one in taken for own in one.split()]
        experts = np.repeat(np.arange(len(taken)), [len(one) for one in taken])
        places = np.concatenate([np.arange(len(one)) for one in taken])
        texts = [text if text.strip() else "?" for text in embedding.tokenizer.decode_batch(ids)]
        return cls(texts, [one[:LONGEST] for one in ids], experts, places)

    @property
    def folds(self) -> Indices:
        """−1 for an expert's only prompt."""
        return np.where(np.bincount(self.experts)[self.experts] > 1, self.places % FOLDS, -1)


@dataclass(frozen=True, eq=False)
class _Answers:
    """What the teacher knows of labelled prompts and texts, and which texts it has a use for."""

    vectors: Any = None
    named: Any = None
    allowed: Flags = field(default_factory=lambda: np.zeros(0, bool))
    unknown_names: int = 0
    contradicted: int = 0
    asked_again: int = 0


def make_class(lesson: Lesson, experts: tuple[str, ...], prompts: LabelledPrompts) -> tuple[Class, int]:
    """What the teacher may know of the experts, and how many prompts of each it gets as examples."""
    school = Class(experts, {name: about for name, about in lesson.descriptions.items() if name in experts})
    if not isinstance(lesson.teacher, ChatTeacher):
        return school, 0
    each = max(1, min(3, MAX_EXAMPLES // len(experts)))
    own = {name: [prompts.texts[at] for at in np.flatnonzero(prompts.experts == c)] for c, name in enumerate(experts)}
    return with_examples(school, own, each), each


def _ask_all(lesson: Lesson, experts: tuple[str, ...], prompts: LabelledPrompts, texts: list[str]) -> _Answers:
    teacher, n = lesson.teacher, len(prompts.texts)
    school, each = make_class(lesson, experts, prompts)
    asked = np.arange(n)
    if isinstance(teacher, ChatTeacher):
        order = np.argsort(prompts.places, kind="stable")  # the first prompts of every expert are the examples
        asked = order[prompts.places[order] >= each][:MAX_NAMED]
        if lesson.confirm is not None:
            lesson.confirm(teacher.estimate([prompts.texts[at] for at in asked] + texts, school))
    kept = AnswerFile(lesson.answers, teacher, school)
    answers = ask(teacher, school, [*(prompts.texts[at] for at in asked), *texts], kept)
    if teacher.gives_vectors:
        vectors = read_vectors(answers)
        return _Answers(vectors, None, _find_near(vectors[:n], vectors[n:]))
    rows, _ = read_names(answers, experts, teacher.name)
    _, unknown = read_names(answers[len(asked) :], experts, teacher.name)
    named = np.zeros((n + len(texts), len(experts)))
    named[asked], named[n:] = rows[: len(asked)], rows[len(asked) :]
    many = min(len(texts), MAX_ASKED_AGAIN, max(MIN_ASKED_AGAIN, round(ASKED_AGAIN * len(texts))))
    again, _ = read_names(ask(teacher, school, texts[:many], kept, "again: "), experts, teacher.name)
    differs = np.zeros(len(texts), bool)
    differs[:many] = again.argmax(axis=1) != named[n : n + many].argmax(axis=1)
    allowed = named[n:].any(axis=1) & ~differs
    return _Answers(None, named, allowed, unknown, int(differs.sum()), many)


def _find_near(labelled: Any, texts: Any) -> Flags:
    """Which texts are about as near to a labelled prompt as labelled prompts are to each other."""
    own = labelled @ labelled.T
    np.fill_diagonal(own, -1.0)
    usual = np.sort(own.max(axis=1))
    least = usual[int(FAR_SHARE * len(usual))]
    return np.concatenate(
        [(texts[begin : begin + 1_024] @ labelled.T).max(axis=1) >= least for begin in range(0, len(texts), 1_024)]
    )


def _make_material(
    prompts: LabelledPrompts, ids: list[Any], answered: _Answers, domains: Sequence[Statistics], embedding: Embedding
) -> Material:
    every = [*prompts.ids, *ids]
    lengths = np.array([len(one) for one in every], np.int64)
    experts = np.concatenate([prompts.experts, np.full(len(ids), -1)])
    gathered = Prompts(np.concatenate(every).astype(np.uint32), lengths, experts, np.arange(len(every)))
    few = Logistic.for_prompts(domains)
    more = 1 + len(ids) // max(1, len(prompts.ids))
    many = Logistic.for_prompts([replace(own, sample=_repeat(own, more)) for own in domains])
    known = (prompts.folds, len(domains), embedding.rows, few, many)
    return Material(gathered, *known, answered.vectors, answered.named)


def _repeat(own: Statistics, times: int) -> Any:
    """A sample of so many times as many prompts: only its size is used."""
    assert own.sample is not None
    return own.sample.take(np.tile(np.arange(len(own.sample)), times))


def _compare(prompts: LabelledPrompts, held_out: HeldOut, verdict: Verdict) -> tuple[Flags, Flags]:
    """Which held-out prompts are routed right: by the router without the teacher, and with it."""
    right = held_out.evidence.argmax(axis=1) == held_out.experts
    both = zip(held_out.experts.tolist(), held_out.places.tolist(), right.tolist(), strict=True)
    known = {(expert, place): is_right for expert, place, is_right in both}
    keys = list(zip(prompts.experts[verdict.held].tolist(), prompts.places[verdict.held].tolist(), strict=True))
    common = np.array([key in known for key in keys], bool)
    return np.array([known[key] for key in keys if key in known], bool), verdict.right[common]


def _report(
    teacher: str,
    experts: Sequence[str],
    found: _Texts,
    answered: _Answers,
    allowed: Flags,
    verdict: Verdict,
    compared: tuple[Flags, Flags],
) -> Teaching:
    without, with_it = compared
    gain, low, high = _estimate_gain(with_it, without)
    labels = verdict.labels.experts[verdict.chosen]
    counts = np.bincount(labels, minlength=len(experts)).tolist()
    return Teaching(
        teacher,
        gain > 0 and len(labels) > 0,
        found.given,
        found.blank,
        found.repeated,
        found.labelled,
        found.beyond,
        len(found.texts) - int(allowed.sum()) - answered.unknown_names - answered.contradicted,
        answered.unknown_names,
        answered.contradicted,
        answered.asked_again,
        verdict.share,
        {name: count for name, count in zip(experts, counts, strict=True) if count},
        len(without),
        round(float(verdict.teacher_right.mean()), 6),
        round(float(without.mean()), 6) if len(without) else 0.0,
        round(float(with_it.mean()), 6) if len(without) else 0.0,
        gain,
        low,
        high,
    )


def _estimate_gain(one: Flags, other: Flags) -> tuple[float, float, float]:
    """The difference of two accuracies on the same prompts, and Agresti and Min's interval for pairs."""
    if not len(one):
        return 0.0, 0.0, 0.0
    n, gained, lost = len(one) + 2, float((one & ~other).sum()), float((other & ~one).sum())
    more, less = (gained + 0.5) / n, (lost + 0.5) / n
    half = Z * math.sqrt(max(0.0, more + less - (more - less) ** 2) / n)
    gain, centre = (gained - lost) / len(one), more - less
    return round(gain, 6), round(min(gain, centre - half), 6), round(max(gain, centre + half), 6)


def _contribute(
    parts: RouterParts, teacher: str, texts: list[str], verdict: Verdict, experts: Sequence[str]
) -> dict[str, Contribution]:
    """The texts of each expert as a contribution. Each text carries the trust in what is measured with it."""
    embedding, found = parts.embedding(), {}
    source = TAUGHT + max(1, round(FULL_TRUST * verdict.trust))
    labels = verdict.labels.experts[verdict.chosen]
    for place, name in enumerate(experts):
        own = [texts[at] for at in verdict.chosen[labels == place]]
        if not own:
            continue
        recipe: Recipe = parts.training.recipe(name)
        counted = collect(
            own, embedding=embedding, window=recipe.window, prompt_sums=recipe.prompt_sums, keep_sample=True
        )
        assert counted.sample is not None
        marked = replace(counted.sample, sources=np.full(len(counted.sample), source, np.uint32))
        described = {TEACHER: teacher, "share": verdict.share}
        found[name] = Contribution.of(
            replace(counted, sample=marked), owner=f"teacher {teacher}", id=TAUGHT_ID, recipe=described
        )
    return found
