"""A teacher labels the requests without a label, and the candidate learns from these labels, too.

The teacher's labels of one request depend on the labels and requests of all sources. So they are one contribution to
each expert, and `forget` takes all of them out with any source: what is left is the router that never had a teacher,
and never saw the source. Learning again with the teacher gives what the other sources alone would have given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ir3de.errors import InputError
from ir3de.fitting.lessons import Lesson
from ir3de.fitting.teachers import TeacherChoice
from ir3de.fitting.teaching_report import Teaching
from ir3de.router import Router
from ir3de.statistics.contributions import FEEDBACK, TEACHER, Contribution
from ir3de.traffic.journal import Journal
from ir3de.traffic.labels import read_unlabelled
from ir3de.traffic.sources import TEACHER_AUTHOR

TAUGHT_TRAFFIC_ID = "taught-traffic"  # of the contribution to each expert


def is_taught_traffic(contribution: Contribution) -> bool:
    """Whether a teacher labelled these requests while a router learnt."""
    return contribution.is_feedback and contribution.is_taught and contribution.id == TAUGHT_TRAFFIC_ID


def teach_traffic(
    router: Router, journal: Journal, teacher: TeacherChoice | Lesson, answers: str | Path | None = None
) -> tuple[dict[str, Contribution], Teaching]:
    """What a teacher's labels of a journal's other requests would give each expert, and what they bring.

    The teacher learns from the router's labelled prompts. Nothing is given if that does not help on held-out ones.
    """
    texts = read_unlabelled(journal, router)
    if not texts:
        raise InputError(
            "no request is left for the teacher: the journal has none without a label whose text or tokens were kept. "
            "`feedback.keep` in the gateway's configuration names what is kept; learn without a teacher"
        )
    given = replace(teacher, texts=texts) if isinstance(teacher, Lesson) else teacher
    found = router.ask_teacher(texts, given, answers=answers)
    return _sign(found.contributions, found.report.teacher), found.report


def _sign(contributions: Mapping[str, Contribution], teacher: str) -> dict[str, Contribution]:
    author = f"{TEACHER_AUTHOR}{teacher}"
    return {
        name: Contribution.of(
            one.statistics(),
            owner=f"{FEEDBACK}:{author}",
            id=TAUGHT_TRAFFIC_ID,
            recipe={**one.recipe, FEEDBACK: author, TEACHER: teacher, "key": "", "day": ""},
        )
        for name, one in contributions.items()
    }
