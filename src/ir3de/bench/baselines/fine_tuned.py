"""A fine-tuned encoder: all its weights and a linear head on its mean vector, trained on the domains' names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ir3de.bench.baselines.balancing import balanced, capped
from ir3de.bench.baselines.encoder import Encoder
from ir3de.bench.baselines.interface import Fitted, Indices, Labelled, at_least, labelled


@dataclass(frozen=True)
class FineTuned:
    """AdamW for `epochs`, or `fewest_steps` where texts are few; the rate rises over a tenth of them, then falls."""

    encoder: Encoder
    epochs: int = 3
    fewest_steps: int = 300
    rate: float = 5e-5
    batch: int = 32
    most_texts: int = 8_000  # of a domain
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "fewest_steps", "batch", "most_texts"):
            at_least(name, getattr(self, name), 1)

    def fit(self, domains: Mapping[str, Sequence[str]]) -> Fitted:
        data, encoder, torch = labelled(domains), self.encoder, self.encoder.torch
        devices = [torch.cuda.current_device()] if encoder.device == "cuda" else []
        with torch.random.fork_rng(devices):  # the caller's random numbers stay as they were
            torch.manual_seed(self.seed)
            model = encoder.copy_to_train()
            head = torch.nn.Linear(encoder.width, len(data.names)).to(encoder.device)
            self._train(model, head, data)
        model.eval()

        def choose(texts: list[str]) -> Indices:
            tokens = encoder.tokens(texts)
            chosen = np.empty(len(texts), np.intp)
            with torch.inference_mode():
                for places in encoder.by_length(tokens):
                    scores = head(encoder.vectors(model, [tokens[i] for i in places], "mean")[0])
                    chosen[places] = scores.argmax(dim=1).cpu().numpy()
            return chosen

        return Fitted(data.names, choose)

    def _train(self, model: Any, head: Any, data: Labelled) -> None:
        torch, encoder = self.encoder.torch, self.encoder
        rng = np.random.default_rng(self.seed)
        kept = capped(data.labels, self.most_texts, rng)
        tokens, labels = encoder.tokens([data.texts[i] for i in kept]), data.labels[kept]
        order = balanced(labels, max(self.epochs * len(kept), self.fewest_steps * self.batch), rng)
        steps = -(-len(order) // self.batch)
        optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=self.rate, weight_decay=0.01)
        warm = -(-steps // 10)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min((step + 1) / warm, (steps - step) / (steps - warm + 1))
        )
        model.train()
        for places in np.array_split(order, steps):
            scores = head(encoder.vectors(model, [tokens[i] for i in places], "mean")[0])
            targets = torch.from_numpy(labels[places]).to(encoder.device)
            torch.nn.functional.cross_entropy(scores, targets).backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
