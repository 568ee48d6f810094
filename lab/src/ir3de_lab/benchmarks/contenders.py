"""The routers that the benchmark of few prompts compares: IR3DE in its ways to fit, and those of others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ir3de import Embedding, Router
from ir3de.encoders import Encoder
from ir3de.errors import InputError, IR3DEError
from ir3de_lab.benchmarks import alternatives
from ir3de_lab.benchmarks.alternatives import ALTERNATIVES, Alternative, Environment, Regime
from ir3de_lab.benchmarks.defaults import Texts
from ir3de_lab.benchmarks.measurement import usable_cores
from ir3de_lab.benchmarks.protocol import prompt_hash
from ir3de_lab.benchmarks.remembering import RememberingEncoder
from ir3de_lab.benchmarks.unknowns import SURE

OTHERS = ("MiniLM + logistic regression", "semantic-router, MiniLM")  # of the alternatives
NOT_GIVEN = "needs --environments and --encoder"
TEACHER = "minilm-l6"

Flags = npt.NDArray[np.bool_]
Labelled = Sequence[tuple[str, str]]  # an expert, and a prompt of it


@dataclass(frozen=True)
class Answers:
    """By test prompt: whether the expert is right. Only IR3DE says where it was sure and wrong, or abstained."""

    right: Flags
    sure_and_wrong: Flags | None = None
    abstained: Flags | None = None


class Contender(Protocol):
    """A router that is fitted on few prompts and routes the test prompts."""

    @property
    def name(self) -> str: ...

    @property
    def missing(self) -> str | None:
        """What it lacks to be measured here; None where it can be."""

    def answer(self, train: Texts, test: Labelled) -> Answers: ...


@dataclass(frozen=True)
class Ir3de:
    """IR3DE with default settings but for these options of `Router.fit`."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    missing: str | None = None

    def answer(self, train: Texts, test: Labelled) -> Answers:
        found = Router.fit(train, **self.options).route_batch([text for _, text in test])
        right = np.array([one.best == name for one, (name, _) in zip(found, test, strict=True)])
        sure = np.array([(one.confidence or 0.0) > SURE for one in found])
        return Answers(right, sure & ~right, np.array([one.abstained for one in found]))


@dataclass(frozen=True)
class Taught(Ir3de):
    """The same with a teacher that labels the training prompts which were not drawn."""

    teacher: Encoder | str = TEACHER

    def with_unlabelled(self, train: Texts, few: Texts) -> Taught:
        drawn = {text for texts in few.values() for text in texts}
        rest = [text for texts in train.values() for text in texts if text not in drawn]
        return replace(self, options={**self.options, "unlabelled": rest, "teacher": self.teacher})


@dataclass(frozen=True)
class Elsewhere:
    """A router of others, in an environment of its own; its answers are kept in a folder and used again."""

    alternative: Alternative
    environment: Environment | None
    encoder: Path | None
    answers: Path

    @property
    def name(self) -> str:
        return self.alternative.name

    @property
    def missing(self) -> str | None:
        return NOT_GIVEN if self.environment is None else None

    def answer(self, train: Texts, test: Labelled) -> Answers:
        if self.environment is None:
            raise InputError(f"{self.name} {NOT_GIVEN}")
        pairs = [(text, name) for name, texts in train.items() for text in texts]
        routed, truth = [text for _, text in test], [name for name, _ in test]
        some = routed[:1]  # the files that use a router expect at least one prompt of another set
        regime = Regime("", None, 0, [text for text, _ in pairs], [name for _, name in pairs], routed, truth, some)
        request = regime.to_request()
        mark = f"{self.alternative.key}-{prompt_hash(json.dumps([str(self.encoder), request])):08x}"
        asked = self.answers / f"{mark}-request.json"
        alternatives.write_requests(asked, [request], str(self.encoder or ""))
        found = alternatives.ask(self.alternative, self.environment, asked, self.answers / f"{mark}.json")
        said = found["answers"][0]["said"]
        return Answers(np.array([one == name for one, name in zip(said, truth, strict=True)]))


def list_contenders(sources: Sequence[str], encoder: Encoder | str) -> list[Ir3de]:
    """IR3DE on each embedding: alone, with a teacher, and with an encoder that is asked where the table is unsure.

    `encoder` is the one that teaches and is asked, or why there is none. A new way to fit is one more entry here.
    """
    embeddings = {source: {"embedding": Embedding.load(source)} for source in dict.fromkeys(sources)}
    missing = encoder if isinstance(encoder, str) else None
    taught = [
        Taught(f"ir3de, {source}, taught by {TEACHER}", own, missing, encoder) for source, own in embeddings.items()
    ]
    consulting = [
        Ir3de(f"ir3de, {source}, encoder {TEACHER}", {**own, "encoder": encoder}, missing)
        for source, own in embeddings.items()
    ]
    return [*(Ir3de(f"ir3de, {source}", options) for source, options in embeddings.items()), *taught, *consulting]


def open_encoder() -> RememberingEncoder | str:
    """The encoder that teaches and is asked; where it cannot be used here, the reason."""
    try:
        return RememberingEncoder.load(TEACHER, threads=usable_cores())
    except IR3DEError as error:
        return str(error)


def find_others() -> list[Alternative]:
    """The alternatives that stand beside IR3DE."""
    return [one for one in ALTERNATIVES if one.name in OTHERS]
