"""An encoder that remembers vectors, for benchmarks whose fits share their texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.encoders import Encoder

Vectors = npt.NDArray[np.float32]


class RememberingEncoder(Encoder):
    """Computes the vector of a text once. A vector depends on its text alone, so the figures are the same."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._vectors: dict[str, Vectors] = {}

    def remember(self, texts: Iterable[str]) -> None:
        """Compute the vectors of these texts, unless they are known."""
        new = [text for text in dict.fromkeys(texts) if text.strip() and text not in self._vectors]
        self._vectors.update(zip(new, super().encode(new), strict=True))

    def encode(self, texts: Sequence[str], *, batch: int = 32) -> Vectors:
        """The vectors of texts: those that are known, and new ones for the others."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        self._vectors.update(zip(new, super().encode(new, batch=batch), strict=True))
        return np.stack([self._vectors[text] for text in texts]) if texts else np.empty((0, self.width), np.float32)
