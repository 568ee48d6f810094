"""What a teacher is to label: which teacher is meant, and which texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ir3de.encoders import Encoder
from ir3de.encoders.sources import PACKAGED_ENCODERS
from ir3de.errors import InputError
from ir3de.fitting.chat_teacher import ChatTeacher
from ir3de.fitting.teachers import EncoderTeacher, FunctionTeacher, Teacher, TeacherChoice


def find_teacher(given: TeacherChoice) -> Teacher:
    """The teacher that is meant. One that cannot be found or read is rejected now, before anything is counted."""
    if isinstance(given, Encoder):
        return EncoderTeacher(given)
    if isinstance(given, str) and given.startswith(("http://", "https://")):
        return ChatTeacher.parse(given)
    if isinstance(given, str):
        try:
            return EncoderTeacher(Encoder.load(given))
        except InputError as error:
            raise InputError(
                f"unknown teacher '{given}': {error}; or a chat endpoint (http://host/v1#model)"
            ) from error
    if hasattr(given, "answer") and hasattr(given, "identify"):
        return given  # type: ignore[return-value]
    if callable(given):
        return FunctionTeacher(given)
    kinds = f"an encoder ({', '.join(PACKAGED_ENCODERS)}, a folder, a hub id), http://host/v1#model or a function"
    raise InputError(f"a teacher is {kinds}, found {given!r:.60}")


@dataclass(frozen=True)
class Lesson:
    """A teacher and the texts that it labels. `answers` is the file that keeps its answers."""

    teacher: Teacher
    texts: Iterable[Any] | str | Path
    answers: Path | None = None
    descriptions: Mapping[str, str] = field(default_factory=dict)
    confirm: Callable[[dict[str, int]], None] | None = None  # gets what a language model will cost, before it starts


def check_lesson(
    unlabelled: Iterable[Any] | str | Path | None,
    teacher: TeacherChoice | Lesson | None,
    answers: str | Path | None = None,
    descriptions: Mapping[str, str] | None = None,
) -> Lesson | None:
    """The lesson that is meant, None if there is none. Rejects what is wrong before anything is counted."""
    if isinstance(teacher, Lesson):
        return replace(teacher, descriptions={**(descriptions or {}), **teacher.descriptions})
    if teacher is None and unlabelled is None:
        if answers is not None:
            raise InputError("answers= names the file of a teacher's answers: give teacher= and unlabelled= too")
        return None
    if teacher is None:
        raise InputError("unlabelled= needs a teacher that labels these texts: give teacher=, such as 'minilm-l6'")
    if unlabelled is None:
        raise InputError("teacher= needs texts to label: give unlabelled=, such as your traffic")
    if not isinstance(unlabelled, (str, Path, Iterable)) or isinstance(unlabelled, Mapping):
        raise InputError(f"unlabelled must be texts or the path of a file, found {type(unlabelled).__name__}")
    path = None if answers is None else Path(answers).expanduser()
    return Lesson(find_teacher(teacher), unlabelled, path, descriptions or {})
