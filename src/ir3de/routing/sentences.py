"""The sentences of a prompt, each with its own decision: a mixed prompt has sentences for several experts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ir3de.policies import Costs
from ir3de.routing.compiled import CompiledRouter, decide
from ir3de.routing.decision import Decision, require_content

MAX_SENTENCES = 64  # of a prompt that are looked at
CLEAR = 0.5  # the confidence from which on a sentence speaks for its expert
_ENDS = re.compile(r"[.?!…。？！](?=\s|$)|[;\n。？！]")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of a prompt, and the decision if it were the whole prompt."""

    text: str
    decision: Decision

    @property
    def expert(self) -> str | None:
        """The expert that the sentence clearly speaks for; None if there is no such."""
        confidence = self.decision.confidence
        is_clear = not self.decision.abstained and confidence is not None and confidence >= CLEAR
        return self.decision.expert if is_clear else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        confidence = self.decision.confidence
        return {"text": self.text, "expert": self.expert, "confidence": confidence and round(confidence, 6)}


def decide_sentences(
    compiled: CompiledRouter, pieces: Sequence[tuple[int, str]], unknown: int | None, weights: Costs | None
) -> tuple[Sentence, ...]:
    """The sentences of a prompt with their decisions. A prompt of one sentence has none apart from itself."""
    found: list[Sentence] = []
    for part in _split(pieces)[:MAX_SENTENCES]:
        text = "".join(piece for _, piece in part)
        ids = np.array([token for token, _ in part], np.uint32)
        found.append(Sentence(text.strip(), require_content(decide(compiled, ids, unknown, weights), text)))
    return tuple(found) if len(found) > 1 else ()


def _split(pieces: Sequence[tuple[int, str]]) -> list[list[tuple[int, str]]]:
    """The tokens of each sentence. A token is never cut; it belongs to the sentence that it ends."""
    parts: list[list[tuple[int, str]]] = [[]]
    text = "".join(piece for _, piece in pieces)
    ends, at = [match.end() for match in _ENDS.finditer(text)], 0
    for token, piece in pieces:
        parts[-1].append((token, piece))
        at += len(piece)
        if ends and at >= ends[0]:
            ends = [end for end in ends if end > at]
            parts.append([])
    return [part for part in parts if "".join(piece for _, piece in part).strip()]
