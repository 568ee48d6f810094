"""Proposals: which expert a teacher would name for a text. A person confirms or overrules each; nothing is learnt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ir3de.fitting.chat_teacher import ChatTeacher
from ir3de.fitting.encoder_head import fit_head
from ir3de.fitting.lessons import Lesson
from ir3de.fitting.parts import RouterParts
from ir3de.fitting.teachers import Answer, AnswerFile, Floats, ask, read_names, read_vectors
from ir3de.fitting.teaching import MAX_TEXT_CHARACTERS, LabelledPrompts, make_class


@dataclass(frozen=True)
class Proposal:
    """The expert that a teacher names, and its probability; None if the teacher gave a name alone."""

    expert: str
    probability: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def propose(parts: RouterParts, texts: Sequence[str], lesson: Lesson) -> list[Proposal | None]:
    """The teacher's proposal for each text, None where it has no answer. An encoder learns from the kept prompts.

    The router has no part in it: a person who labels sees two opinions, and measures the teacher alone.
    """
    experts, teacher = parts.compiled.experts, lesson.teacher
    prompts = LabelledPrompts.gather(experts, list(parts.training.statistics().values()), parts.embedding())
    school, _ = make_class(lesson, experts, prompts)
    asked = [text[:MAX_TEXT_CHARACTERS] if text.strip() else "?" for text in texts]
    if isinstance(teacher, ChatTeacher) and lesson.confirm is not None:
        lesson.confirm(teacher.estimate(asked, school))
    kept = AnswerFile(lesson.answers, teacher, school)
    if not teacher.gives_vectors:
        answers = ask(teacher, school, asked, kept)
        rows, _ = read_names(answers, experts, teacher.name)
        return [_read(row, answer, experts) for row, answer in zip(rows, answers, strict=True)]
    vectors = read_vectors(ask(teacher, school, [*prompts.texts, *asked], kept))
    head = fit_head(vectors[: len(prompts.texts)], prompts.experts, len(experts))
    return [_read(row, None, experts) for row in np.exp(head.predict(vectors[len(prompts.texts) :]))]


def _read(row: Floats, answer: Answer, experts: Sequence[str]) -> Proposal | None:
    if not row.any():
        return None
    best = int(row.argmax())
    return Proposal(experts[best], None if isinstance(answer, str) else round(float(row[best]), 6))
