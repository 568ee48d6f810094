"""What a report is about: the proof, the router it is of, and how both were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ir3de.evaluation.html_report.words import SpokenWord
from ir3de.evaluation.proof import Proof


@dataclass(frozen=True)
class Subject:
    """Everything that a page shows. Without `examples` it shows no text of any prompt, and no word of them."""

    proof: Proof
    name: str  # of the router
    digest: str | None  # of its content; None for one that was never saved
    made: datetime
    version: str  # of IR3DE
    scorer: str
    embedding: str
    source: str  # where the prompts came from
    command: str  # that makes this report again
    next_commands: Sequence[tuple[str, str]] = ()  # what to do next, and the command for it
    notices: Sequence[str] = ()  # what a reader must know before the figures
    default: str | None = None  # the expert for prompts that the router abstains on
    words: Mapping[str, Sequence[SpokenWord]] = field(default_factory=dict)
    examples: bool = True
