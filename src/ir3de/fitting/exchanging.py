"""Many contributions come and go with one fit, as feedback does; and what a teacher would give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ir3de.errors import InputError
from ir3de.fitting.domain_training import USUAL_CHOICES, DomainTraining
from ir3de.fitting.domains import Gift, ScorerChoice, check_choice, require_experts
from ir3de.fitting.outcomes import OutcomeTraining
from ir3de.fitting.parts import RouterParts
from ir3de.statistics.contributions import Contribution

if TYPE_CHECKING:
    from ir3de.fitting.lessons import Lesson
    from ir3de.fitting.proposals import Proposal
    from ir3de.fitting.teachers import TeacherChoice
    from ir3de.fitting.teaching import Taught


def exchange(
    parts: RouterParts,
    gone: Mapping[str, Sequence[str]],
    given: Mapping[str, Sequence[Contribution]],
    scorer: ScorerChoice | None,
) -> RouterParts:
    """The parts without the contributions of these ids, and with the given ones; by expert."""
    training = parts.training
    require_experts((*gone, *given), parts.compiled.experts)
    if isinstance(training, OutcomeTraining):
        return training.exchange(parts, gone, given)
    assert isinstance(training, DomainTraining)
    choice = USUAL_CHOICES[training.chosen_by] if scorer is None else scorer
    check_choice(choice)
    now = training.now(parts)
    for name, ids in gone.items():
        now = now.remove_parts(name, ids) if ids else now
    for name, contributions in given.items():
        gift = Gift(name, tuple(contributions))
        now = now.give(gift, training.recipe(name), parts.embedding()) if contributions else now
    return training.change(parts, now, choice) if now.entries else parts


def ask_teacher(
    parts: RouterParts, unlabelled: Iterable[Any], teacher: TeacherChoice | Lesson, answers: str | Path | None
) -> Taught:
    """What a teacher's labels of some texts would give each expert. The parts stay as they are."""
    from ir3de.fitting.teaching import find_taught

    training, lesson = _require_lesson(parts, unlabelled, teacher, answers)
    return find_taught(parts, training.hold_out(parts), lesson, None)


def ask_proposals(
    parts: RouterParts, texts: Sequence[str], teacher: TeacherChoice | Lesson, answers: str | Path | None
) -> list[Proposal | None]:
    """The expert that a teacher names for each text."""
    from ir3de.fitting.proposals import propose

    _, lesson = _require_lesson(parts, texts, teacher, answers)
    return propose(parts, texts, lesson)


def _require_lesson(
    parts: RouterParts, texts: Iterable[Any], teacher: TeacherChoice | Lesson, answers: str | Path | None
) -> tuple[DomainTraining, Lesson]:
    from ir3de.fitting.lessons import check_lesson

    training, lesson = parts.training, check_lesson(texts, teacher, answers)
    if not isinstance(training, DomainTraining) or lesson is None:
        raise InputError("this router was fitted from outcomes: a teacher labels texts, and outcomes have scores")
    return training, lesson
