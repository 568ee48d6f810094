"""Which prompts to label: those of which the router is unsure, which are frequent, and which differ from one another.

Each prompt is worth (1 − margin) times its density: how near its neighbours are, and how often it occurred. The best
one is chosen; then the others lose worth by their nearness to it, and so on, so that no two are near copies.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.router import Router
from ir3de.traffic.journal import Journal
from ir3de.traffic.labels import read_text
from ir3de.traffic.records import Ids, JournalPrompt, TrafficRecord

if TYPE_CHECKING:
    from ir3de.fitting.lessons import Lesson
    from ir3de.fitting.proposals import Proposal
    from ir3de.fitting.teachers import TeacherChoice

MAX_PROMPTS = 20_000  # the last ones of a journal: time grows with them
NEIGHBOURS = 10
NEAR_COPY = 0.97  # cosine of two prompts that are not both shown
SHOWN_EXPERTS = 9

Vectors = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class KnownPrompt:
    """A prompt of the journal that has no label yet, with all requests that had it."""

    request: str  # the last request with this prompt
    ids: Ids
    text: str  # decoded from the ids where the text was not kept; then without order if they have none
    requests: int
    decided: str | None
    abstained: bool
    ranking: tuple[tuple[str, float], ...]  # by the router that is asked now


@dataclass(frozen=True)
class PromptToLabel:
    """A prompt that is worth a label."""

    request: str
    text: str
    requests: int  # that had this very prompt
    worth: float
    margin: float
    ranking: tuple[tuple[str, float], ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_prompts(router: Router, records: Iterable[TrafficRecord], *, most: int = MAX_PROMPTS) -> list[KnownPrompt]:
    """The last different prompts of a journal without a label, routed by this router."""
    found: dict[str, tuple[TrafficRecord, Ids, int]] = {}
    for record in records:
        if record.prompt is None or any(one.expert for one in record.feedback):
            continue
        ids = _read_ids(router, record.prompt)
        if not len(ids):
            continue
        content = hashlib.sha256(np.sort(ids).astype("<u4").tobytes()).hexdigest()
        many = found.pop(content)[2] + 1 if content in found else 1
        found[content] = (record, ids, many)
    chosen = list(found.values())[-most:]
    decisions = router.route_ids([ids for _, ids, _ in chosen])
    texts = router.tokenizer.decode_batch([ids for _, ids, _ in chosen])
    prompts = []
    for (record, ids, many), decision, text in zip(chosen, decisions, texts, strict=True):
        assert record.prompt is not None
        own = "\n".join(record.prompt.turns) if record.prompt.keep == "text" else text
        ranking = tuple((name, float(value)) for name, value in decision.ranking[:SHOWN_EXPERTS])
        prompts.append(KnownPrompt(record.id, ids, own, many, decision.expert, decision.abstained, ranking))
    return prompts


def _read_ids(router: Router, prompt: JournalPrompt) -> Ids:
    if prompt.keep == "text":
        return np.asarray(router.tokenizer.encode(prompt.turns[-1] if prompt.turns else ""), np.uint32)
    return np.concatenate(prompt.ids) if prompt.ids else np.zeros(0, np.uint32)


def embed_prompts(router: Router, prompts: Iterable[KnownPrompt]) -> Vectors:
    """A unit vector for each prompt: the mean of its tokens' vectors, less the mean of all prompts."""
    matrix = router.embedding.matrix
    rows = np.array([matrix[one.ids].mean(axis=0) for one in prompts], np.float64)
    if not len(rows):
        return rows.reshape(0, matrix.shape[1])
    rows -= rows.mean(axis=0)
    lengths = np.sqrt(np.einsum("nk,nk->n", rows, rows))
    return np.asarray(rows / np.maximum(lengths, 1e-12)[:, None], np.float64)


def choose_prompts(router: Router, records: Iterable[TrafficRecord], count: int) -> list[PromptToLabel]:
    """At most `count` prompts whose labels would help most, the best first."""
    prompts = read_prompts(router, records)
    if not prompts:
        raise InputError(
            "no prompt to label: the journal has none without a label whose prompt was kept. `feedback.keep` in the "
            "gateway's configuration names what is kept"
        )
    margins = np.array([_find_margin(one) for one in prompts])
    vectors = embed_prompts(router, prompts)
    worth = (1 - margins) * measure_density(vectors, np.array([one.requests for one in prompts]))
    return [
        PromptToLabel(
            prompts[place].request, prompts[place].text, prompts[place].requests, float(worth[place]),
            float(margins[place]), prompts[place].ranking,
        )
        for place in spread(vectors, worth, count)
    ]  # fmt: skip


def propose_labels(
    router: Router, journal: Journal, chosen: Sequence[PromptToLabel], teacher: TeacherChoice | Lesson
) -> list[Proposal | None]:
    """A teacher's proposal for each prompt, for a person to confirm; None where it has none. Nothing is written."""
    from ir3de.fitting.lessons import Lesson

    records = [journal.find(one.request) for one in chosen]
    texts = [None if record is None else read_text(record, router) for record in records]
    readable = [text for text in texts if text is not None]
    if not readable:
        raise InputError(
            "the teacher can read none of these prompts: the order of their tokens was not kept. `feedback.keep` in "
            "the gateway's configuration names what is kept; label without a teacher"
        )
    given = replace(teacher, texts=readable) if isinstance(teacher, Lesson) else teacher
    found = router.ask_proposals(readable, given)
    if not any(found):
        raise InputError(
            f"the teacher names an expert for none of these {len(readable):,} prompts: label without a teacher, or "
            "name another one"
        )
    proposals = iter(found)
    return [None if text is None else next(proposals) for text in texts]


def _find_margin(prompt: KnownPrompt) -> float:
    values = [value for _, value in prompt.ranking[:2]]
    return min(max(values[0] - values[1], 0.0), 1.0) if len(values) == 2 else 1.0


def measure_density(vectors: Vectors, requests: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """How near the neighbours of each prompt are, from 0 to 1, times the logarithm of how often it was asked."""
    near = np.empty(len(vectors))
    for start in range(0, len(vectors), 1_000):  # so that memory stays bounded
        cosines = vectors[start : start + 1_000] @ vectors.T
        nearest = min(NEIGHBOURS + 1, len(vectors))
        top = np.partition(cosines, len(vectors) - nearest, axis=1)[:, -nearest:]
        near[start : start + 1_000] = (top.sum(axis=1) - 1) / max(nearest - 1, 1)
    return np.clip(0.5 + near / 2, 0, 1) * (1 + np.log(requests) / math.log(10))


def spread(vectors: Vectors, worth: npt.NDArray[np.float64], count: int) -> list[int]:
    """The places of the best prompts, each of which makes those near to it worth less."""
    left, chosen = worth.copy(), []
    for _ in range(min(count, len(worth))):
        best = int(left.argmax())
        if left[best] < 0:
            break
        chosen.append(best)
        cosine = vectors @ vectors[best]
        left = np.where(cosine >= NEAR_COPY, -1.0, left * (1 - np.clip(cosine, 0, 1) ** 2))
        left[best] = -1.0
    return chosen
