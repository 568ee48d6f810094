"""What the journal holds: one record per routed request, and the feedback on its answer."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError

ADMIN = "admin"  # the author, where the admin token was sent
ANYONE = "anyone"  # the author, where the gateway needs no key
LABEL_PREFIX = "label:"  # of authors who were asked for labels, and did not choose what to label
MAX_COMMENT_CHARS = 2_000
MAX_NAME_CHARS = 200  # of an expert that feedback names
_THUMBS = {"up": 1.0, "down": 0.0}
_FIELDS = "expert (a name), score (a number from 0 to 1), thumb (up or down), comment (a text)"

Keep = Literal["text", "tokens", "statistics"]
"""What is kept of a prompt: its turns; their token ids; or the ids in ascending order, which is what counts add up."""

Ids = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class JournalPrompt:
    """What the journal keeps of one prompt. One of the two fields is empty."""

    keep: Keep
    turns: tuple[str, ...] = ()  # of the user, oldest first
    ids: tuple[Ids, ...] = ()  # one array a turn; with `statistics` a single one, in ascending order

    @classmethod
    def from_text(cls, turns: Sequence[str]) -> JournalPrompt:
        return cls("text", tuple(turns))

    @classmethod
    def from_ids(cls, keep: Keep, turns: Sequence[Ids]) -> JournalPrompt:
        """The ids of each turn; with `statistics`, without their order and without the turns' limits."""
        arrays = [np.asarray(one, dtype=np.uint32) for one in turns]
        if keep == "statistics":
            arrays = [np.sort(arrays[0] if len(arrays) == 1 else np.concatenate(arrays))] if arrays else []
        return cls(keep, (), tuple(arrays))

    def encode(self) -> bytes:
        """One JSON list for text. For ids: the length of each turn and the ids, as 32-bit numbers, low byte first."""
        if self.keep == "text":
            return json.dumps(self.turns, ensure_ascii=True).encode()
        lengths = struct.pack(f"<{1 + len(self.ids)}I", len(self.ids), *map(len, self.ids))
        return b"".join([lengths, *(one.astype("<u4", copy=False).tobytes() for one in self.ids)])

    @classmethod
    def decode(cls, keep: str, content: bytes) -> JournalPrompt:
        """What `encode` made; a `ValueError` if it is damaged."""
        if keep == "text":
            turns = json.loads(content)
            if not isinstance(turns, list) or not all(isinstance(one, str) for one in turns):
                raise ValueError("its turns are not texts")
            return cls("text", tuple(turns))
        if keep not in ("tokens", "statistics") or len(content) % 4 or not content:
            raise ValueError(f"unknown content {keep!r}")
        numbers = np.frombuffer(content, dtype="<u4").astype(np.uint32)
        lengths = numbers[1 : 1 + int(numbers[0])].astype(np.int64)
        ids = numbers[1 + int(numbers[0]) :]
        if lengths.sum() != len(ids):
            raise ValueError("its turns do not add up")
        parts = np.split(ids, np.cumsum(lengths)[:-1]) if len(lengths) else []
        return cls("tokens" if keep == "tokens" else "statistics", (), tuple(parts))


def name_author(key: str) -> str:
    """The author of feedback that a client's key gives: never that of the admin token, of a teacher or of a labeller.

    >>> name_author("alice"), name_author("admin"), name_author("teacher:x")
    ('alice', 'key:admin', 'key:teacher:x')
    """
    if not key:
        return ANYONE
    return f"key:{key}" if key in (ADMIN, ANYONE) or ":" in key else key


def list_authors(key: str) -> tuple[str, str]:
    """The authors of all feedback of a client's key: on answers, and in labels that it was asked for.

    >>> list_authors("alice")
    ('alice', 'label:alice')
    """
    return name_author(key), LABEL_PREFIX + name_author(key)


@dataclass(frozen=True, slots=True)
class Feedback:
    """What one author reports about the answer to one request.

    >>> Feedback.parse({"expert": "law", "thumb": "down"}, author="alice", time=0.0)
    Feedback(author='alice', time=0.0, expert='law', score=0.0, comment='')
    """

    author: str  # see `name_author`; `ADMIN`, or the source of an import
    time: float  # seconds since 1970
    expert: str | None = None  # the one that should have answered
    score: float | None = None  # how good the answer was, from 0 to 1
    comment: str = ""

    @classmethod
    def parse(cls, given: object, *, author: str, time: float) -> Feedback:
        """Feedback as a client sends it. An `InputError` names the field that is wrong."""
        if not isinstance(given, Mapping):
            raise InputError(f"feedback is an object with {_FIELDS}; found {type(given).__name__}")
        score = _parse_score(given)
        expert, comment = given.get("expert"), given.get("comment") or ""
        if expert is not None and (not isinstance(expert, str) or not 0 < len(expert) <= MAX_NAME_CHARS):
            raise InputError(f"'expert' is the name of an expert, found {expert!r:.80}")
        if not isinstance(comment, str) or len(comment) > MAX_COMMENT_CHARS:
            raise InputError(f"'comment' is a text of at most {MAX_COMMENT_CHARS:,} characters")
        if expert is None and score is None:
            raise InputError(f"feedback needs 'expert', 'score' or 'thumb': it may have {_FIELDS}")
        return cls(author, time, expert, score, comment)


def _parse_score(given: Mapping[str, Any]) -> float | None:
    score, thumb = given.get("score"), given.get("thumb")
    if thumb is not None:
        if thumb not in _THUMBS:
            raise InputError(f"'thumb' is up or down, found {thumb!r:.80}")
        if score is not None and score != _THUMBS[thumb]:
            raise InputError("'score' and 'thumb' contradict one another: send one of them")
        return _THUMBS[thumb]
    if score is None:
        return None
    if isinstance(score, bool) or not isinstance(score, (int, float)) or not 0 <= score <= 1 or math.isnan(score):
        raise InputError(f"'score' is a number from 0 to 1, found {score!r:.80}")
    return float(score)


@dataclass(frozen=True, slots=True)
class TrafficRecord:
    """One routed request."""

    id: str  # of the request
    time: float  # seconds since 1970
    key: str = ""  # the name of the client's key
    router: str = ""  # hash of the artifact that decided
    decided: str | None = None  # the expert that the router chose; None if it abstained without a default expert
    served: str = ""  # the expert that answered
    response: str = ""  # id of the answer, which clients may name instead of the request
    conversation: str = ""  # equal for the requests of one conversation
    propensity: float = 1.0  # the probability with which `served` was chosen for this prompt
    arm: Literal["", "live", "candidate", "explore"] = ""  # who chose, where chance decided
    confidence: float | None = None
    expected_score: float | None = None  # instead of the confidence, if an outcome router decided
    in_domain: float | None = None
    abstained: bool = False
    why: str = ""  # empty if the router decided
    ranking: tuple[tuple[str, float], ...] = ()  # the first experts, each with its probability or expected score
    candidate: str = ""  # hash of the candidate router that decided beside the live one
    candidate_expert: str | None = None
    status: int = 200
    seconds: float | None = None
    prompt_tokens: int | None = None  # as the expert counts them
    cached_tokens: int | None = None  # of them, read from the expert's prompt cache
    completion_tokens: int | None = None
    cost: float | None = None
    prompt: JournalPrompt | None = None  # None if it was not kept, or no longer
    feedback: tuple[Feedback, ...] = field(default=(), compare=False)  # by author
