"""An encoder with a linear head on its vectors: all its weights can be trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ir3de_lab.rivals.encoder import Encoder, Pooling
from ir3de_lab.rivals.interface import Indices, kept


@dataclass(frozen=True)
class Classifier:
    """A copy of the encoder's model, and a head that gives each domain a score."""

    encoder: Encoder
    pooling: Pooling
    model: Any
    head: Any

    @classmethod
    def untrained(cls, encoder: Encoder, pooling: Pooling, domains: int) -> Classifier:
        head = encoder.torch.nn.Linear(encoder.width, domains).to(encoder.device)
        return cls(encoder, pooling, encoder.copy_to_train(), head)

    @property
    def module(self) -> Any:
        """Both as one."""
        return self.encoder.torch.nn.ModuleList([self.model, self.head])

    @property
    def kept(self) -> tuple[int, int]:
        return kept(self.module.parameters(), besides=self.encoder.tokenizer_bytes)

    def scores(self, tokens: Sequence[Sequence[int]]) -> Any:
        """A score for each text and domain."""
        return self.head(self.encoder.vectors(self.model, tokens, self.pooling)[0])

    def choose(self, texts: list[str]) -> Indices:
        return self.choose_tokens(self.encoder.tokens(texts))

    def choose_tokens(self, tokens: Sequence[Sequence[int]]) -> Indices:
        """The place of each text's domain."""
        chosen = np.empty(len(tokens), np.intp)
        with self.encoder.torch.inference_mode():
            for places in self.encoder.by_length(tokens):
                chosen[places] = self.scores([tokens[i] for i in places]).argmax(dim=1).cpu().numpy()
        return chosen
