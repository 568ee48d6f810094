"""After fastText: hashed words and pairs of words, the mean of their learned vectors, softmax, SGD."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from ir3de_lab.rivals.balancing import balanced
from ir3de_lab.rivals.interface import Fitted, Indices, at_least, kept, labelled, needed

_WORD = re.compile(r"\w+|[^\w\s]")
_MULTIPLIER = np.uint64(116_049_371)  # odd and large, so that a pair is not the pair turned round
_TEXTS = 1_024  # routed at once


@dataclass(frozen=True)
class HashedNgrams:
    """`epochs` over the training texts, or `fewest` texts in all where there are few; the rate falls to nothing."""

    buckets: int = 1 << 18
    width: int = 100
    epochs: int = 15
    fewest: int = 60_000
    rate: float = 0.25
    batch: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("buckets", "width", "epochs", "batch"):
            at_least(name, getattr(self, name), 1)

    def fit(self, domains: Mapping[str, Sequence[str]]) -> Fitted:
        data = labelled(domains)
        torch = needed("torch", extra="encoders", purpose="Learning vectors of hashed n-grams")
        features = [self.features(text) for text in data.texts]
        bag, head = self._layers(torch, len(data.names))
        rng = np.random.default_rng(self.seed)
        order = balanced(data.labels, max(self.epochs * len(features), self.fewest), rng)
        optimizer = torch.optim.SGD([*bag.parameters(), *head.parameters()], lr=self.rate)
        steps = -(-len(order) // self.batch)
        for step, places in enumerate(np.array_split(order, steps)):
            optimizer.param_groups[0]["lr"] = self.rate * (1 - step / steps)
            scores = head(bag(*_packed(torch, [features[i] for i in places])))
            targets = torch.from_numpy(data.labels[places])
            # the sum, not the mean: each text moves the vectors as it would alone, as in fastText
            torch.nn.functional.cross_entropy(scores, targets, reduction="sum").backward()
            optimizer.step()
            optimizer.zero_grad()

        def choose(texts: list[str]) -> Indices:
            with torch.no_grad():
                return np.concatenate(
                    [
                        head(bag(*_packed(torch, [self.features(text) for text in texts[begin : begin + _TEXTS]])))
                        .argmax(dim=1)
                        .numpy()
                        for begin in range(0, len(texts), _TEXTS)
                    ]
                )

        return Fitted(data.names, choose, *kept([*bag.parameters(), *head.parameters()]))

    def features(self, text: str) -> npt.NDArray[np.int32]:
        """The buckets of the text's words and of its pairs of neighbouring words."""
        words = [crc32(word.encode(errors="replace")) for word in _WORD.findall(text.lower())]
        hashed = np.array(words, np.uint64)
        pairs = hashed[:-1] * _MULTIPLIER + hashed[1:]  # modulo 2⁶⁴
        mixed = np.concatenate([hashed, pairs ^ (pairs >> np.uint64(32))])
        return (mixed % np.uint64(self.buckets)).astype(np.int32)

    def _layers(self, torch: Any, domains: int) -> tuple[Any, Any]:
        with torch.random.fork_rng([]):  # layers draw when they are made: not from the caller's numbers
            bag = torch.nn.EmbeddingBag(self.buckets, self.width, mode="mean", sparse=True)
            head = torch.nn.Linear(self.width, domains)
        generator = torch.Generator().manual_seed(self.seed)
        with torch.no_grad():
            bag.weight.uniform_(-1 / self.width, 1 / self.width, generator=generator)
            head.weight.zero_()
            head.bias.zero_()
        return bag, head


def _packed(torch: Any, features: list[npt.NDArray[np.int32]]) -> tuple[Any, Any]:
    """Several texts' buckets as EmbeddingBag takes them: end to end, and where each begins."""
    lengths = [len(text) for text in features]
    begins = np.cumsum([0, *lengths[:-1]]).astype(np.int32)
    return torch.from_numpy(np.concatenate(features)), torch.from_numpy(begins)
