"""Teachers: what labels the prompts that people did not. A sentence encoder, a function, or a language model.

A teacher answers a text with the name of an expert, with the experts' probabilities, or with None where no expert fits.
An encoder answers with a vector, and `teaching` fits a head to the vectors of labelled prompts.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ir3de.encoders import Encoder
from ir3de.errors import ArtifactError, InputError, IR3DEError, name_some
from ir3de.scorers.arithmetic import steps

KIND, VERSION = "ir3de.answers", 1
LABELLING = "labelling"  # the stage that is reported while a teacher answers
ENCODED_AT_ONCE = 256  # texts; what was answered is kept after so many
CALLED_AT_ONCE = 512
MAX_NAME_CHARACTERS = 120  # of a teacher, in the ledger

Answer: TypeAlias = "str | list[float] | None"
Floats = npt.NDArray[np.float64]
Function: TypeAlias = Callable[[list[str]], Iterable[Any]]


@dataclass(frozen=True)
class Class:
    """What a teacher may know of the experts: names, descriptions where there are any, and prompts of each."""

    experts: tuple[str, ...]
    descriptions: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Teacher(Protocol):
    """Answers texts. `at_once` is how many in one call; answers of a call are kept together."""

    @property
    def name(self) -> str: ...
    @property
    def at_once(self) -> int: ...
    @property
    def gives_vectors(self) -> bool: ...
    def identify(self, school: Class) -> Mapping[str, Any]:
        """All that the answers depend on, besides the text."""

    def answer(self, texts: Sequence[str], school: Class) -> list[Answer]: ...


TeacherChoice: TypeAlias = "str | Encoder | Teacher | Function"


@dataclass(frozen=True)
class EncoderTeacher:
    """A sentence encoder. Its answers are vectors, as text."""

    encoder: Encoder
    at_once: int = ENCODED_AT_ONCE
    gives_vectors: bool = True

    @property
    def name(self) -> str:
        return self.encoder.name[-MAX_NAME_CHARACTERS:]

    def identify(self, school: Class) -> Mapping[str, Any]:
        return {"encoder": self.encoder.digest}

    def answer(self, texts: Sequence[str], school: Class) -> list[Answer]:
        return [base64.b64encode(row.astype("<f2").tobytes()).decode() for row in self.encoder.encode(texts)]


def read_vectors(answers: Sequence[Answer]) -> npt.NDArray[np.float32]:
    """The vectors of an encoder's answers: (n, width)."""
    rows = [np.frombuffer(base64.b64decode(str(answer)), "<f2") for answer in answers]
    return np.stack(rows).astype(np.float32)


@dataclass(frozen=True)
class FunctionTeacher:
    """A function from texts to names, or to rows of probabilities in the order of the experts."""

    function: Function
    at_once: int = CALLED_AT_ONCE
    gives_vectors: bool = False

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))[:MAX_NAME_CHARACTERS]

    def identify(self, school: Class) -> Mapping[str, Any]:
        return {"function": self.name, "experts": list(school.experts)}

    def answer(self, texts: Sequence[str], school: Class) -> list[Answer]:
        try:
            given = self.function(list(texts))
            rows = given.tolist() if isinstance(given, np.ndarray) else list(given)
        except IR3DEError:
            raise
        except Exception as error:
            raise InputError(f"the teacher '{self.name}' failed: {type(error).__name__}: {error}") from error
        if len(rows) != len(texts):
            raise InputError(
                f"the teacher '{self.name}' gave {len(rows):,} answers for {len(texts):,} texts: return one for each"
            )
        return [self._read(row, len(school.experts)) for row in rows]

    def _read(self, row: Any, experts: int) -> Answer:
        if row is None or isinstance(row, str):
            return row
        with suppress(TypeError, ValueError):
            values = [float(value) for value in row]
            if len(values) == experts and np.isfinite(values).all() and min(values) >= 0:
                return values if sum(values) > 0 else None
        raise InputError(
            f"the teacher '{self.name}' gave {row!r:.80}: an answer is an expert's name, None, or {experts} "
            "probabilities, none below 0, in the order of the experts"
        )


class AnswerFile:
    """Answers of a teacher, line by line in a file, so that labelling can be stopped and continued.

    The first line names the teacher, and what its answers depend on. A text is known by its hash.
    """

    def __init__(self, path: Path | None, teacher: Teacher, school: Class) -> None:
        self.path, self.known, self._size = path, dict[str, Answer](), 0
        identity = json.dumps(teacher.identify(school), sort_keys=True, ensure_ascii=False)
        self._header = {
            "kind": KIND,
            "version": VERSION,
            "teacher": teacher.name,
            "of": hashlib.sha256(identity.encode(errors="replace")).hexdigest(),
        }
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ArtifactError(f"cannot read {path}: {error.strerror}") from error
        whole = content[: content.rfind(b"\n") + 1]  # a line that was cut off was never answered
        lines = whole.splitlines()
        try:
            header = json.loads(lines[0]) if lines else None
            found = [json.loads(line) for line in lines[1:]]
            if lines and (not isinstance(header, dict) or header.get("kind") != KIND):
                raise ValueError("it has another kind")
            self.known = {str(one["text"]): one["answer"] for one in found}
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactError(
                f"{path} is not a file of a teacher's answers ({error}): name another file, or delete it"
            ) from error
        if header is not None and header != self._header:
            raise InputError(
                f"{path} has answers of the teacher '{header.get('teacher')}' to another question: the teacher, its "
                "instructions or the experts are others. Delete it, or name another file"
            )
        self._size = len(whole)

    def add(self, keys: Sequence[str], answers: Sequence[Answer]) -> None:
        """Keep answers, on disk if there is a path. A disk that is full leaves the earlier ones as they were."""
        self.known |= dict(zip(keys, answers, strict=True))
        if self.path is None:
            return
        rows = [] if self._size else [self._header]
        rows += [{"text": key, "answer": answer} for key, answer in zip(keys, answers, strict=True)]
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode(errors="replace")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("r+b" if self.path.exists() else "w+b") as file:
                file.truncate(self._size)
                file.seek(self._size)
                file.write(content)
        except OSError as error:
            with suppress(OSError), self.path.open("r+b") as file:
                file.truncate(self._size)
            kept = len(self.known) - len(keys)
            raise ArtifactError(
                f"cannot write {self.path}: {error.strerror}. The {kept:,} answers before are kept there: make room, "
                "then run the same again, and it continues"
            ) from error
        self._size += len(content)


def ask(teacher: Teacher, school: Class, texts: Sequence[str], kept: AnswerFile, mark: str = "") -> list[Answer]:
    """The teacher's answer to each text. Those that are kept already are not requested again."""
    keys = [hashlib.sha256(f"{mark}{text}".encode(errors="replace")).hexdigest()[:32] for text in texts]
    missing = [(key, text) for key, text in zip(keys, texts, strict=True) if key not in kept.known]
    missing = list(dict(missing).items())
    begun, done = perf_counter(), 0
    with steps(LABELLING, len(missing)) as advance:
        for begin in range(0, len(missing), teacher.at_once):
            some = missing[begin : begin + teacher.at_once]
            try:
                kept.add([key for key, _ in some], teacher.answer([text for _, text in some], school))
            except KeyboardInterrupt:
                where = f"kept in {kept.path}: run the same again, and it continues" if kept.path else "lost"
                rate = done / max(perf_counter() - begun, 1e-9)
                raise KeyboardInterrupt(
                    f"{done:,} of {len(missing):,} texts answered ({rate:.0f}/s), {where}"
                ) from None
            done += len(some)
            advance(len(some))
    return [kept.known[key] for key in keys]


def read_names(answers: Sequence[Answer], experts: Sequence[str], teacher: str) -> tuple[Floats, int]:
    """The probabilities (n, C) of answers, rows of zeros where no expert fits; and how many named an unknown expert."""
    place = {name: index for index, name in enumerate(experts)}
    found, unknown, wrong = np.zeros((len(answers), len(experts))), 0, ""
    for row, answer in zip(found, answers, strict=True):
        if isinstance(answer, str) and answer in place:
            row[place[answer]] = 1.0
        elif isinstance(answer, str) and answer:
            unknown, wrong = unknown + 1, answer
        elif isinstance(answer, list):
            row[:] = np.array(answer) / sum(answer)
    if answers and unknown == len(answers):
        raise InputError(
            f"the teacher '{teacher}' named no expert of this router, for instance {wrong!r:.60}: there are "
            f"{name_some(experts, wrong)}"
        )
    return found, unknown
