"""The texts of an expert as commands pass them on: by their paths, or in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class HeldTexts:
    """The texts of one label, which were read from a labelled file."""

    texts: list[str]

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def bytes(self) -> int:
        return sum(len(text.encode("utf-8", "replace")) for text in self.texts)


DomainTexts = Sequence[str] | HeldTexts  # paths, or the texts themselves
