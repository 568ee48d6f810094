"""How likely a model finds texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ir3de_lab.experiments.experts.batches import batches, padded
from ir3de_lab.experiments.experts.models import LanguageModel


@dataclass(frozen=True)
class Continuation:
    """Tokens of which those from `begin` on are to be predicted, each from all before it."""

    ids: list[int]
    begin: int = 1

    @property
    def predicted(self) -> int:
        return max(0, len(self.ids) - max(self.begin, 1))


def documents(model: LanguageModel, texts: Sequence[str], longest: int) -> list[Continuation]:
    """Texts as training saw them: each after the end of another, up to so many tokens."""
    return [Continuation([model.end, *ids][: longest + 1]) for ids in model.ids(texts)]


def replies(
    model: LanguageModel, prompts: Sequence[str], answers: Sequence[str], longest: int, *, end: bool = True
) -> list[Continuation]:
    """An answer to each prompt in a chat, with or without its end; a prompt too long for both loses its beginning."""
    made = []
    for prompt, ids in zip(model.chat_ids(prompts), model.ids(answers), strict=True):
        after = [*ids, *([model.end] if end else [])][:longest]
        before = prompt[-max(longest - len(after), 1) :]
        made.append(Continuation([*before, *after], len(before)))
    return made


def negative_log_likelihoods(
    model: LanguageModel, texts: Sequence[Continuation], batch_tokens: int
) -> npt.NDArray[np.float64]:
    """Σ −log p(token | those before it) over the predicted tokens, in nats, for each text."""
    torch = model.torch
    sums = np.zeros(len(texts))
    with torch.inference_mode():
        for places in batches([len(text.ids) for text in texts], batch_tokens):
            chosen = [texts[i] for i in places]
            ids, _ = padded(model, [text.ids for text in chosen], left=False)
            logits = model.model(
                input_ids=ids, use_cache=False
            ).logits  # no mask: no token looks at what comes after it
            found = []
            for row, text in enumerate(chosen):
                begin, end = max(text.begin, 1), max(text.begin, 1, len(text.ids))
                found.append(
                    torch.nn.functional.cross_entropy(
                        logits[row, begin - 1 : end - 1].float(), ids[row, begin:end], reduction="sum"
                    )
                )
            sums[places] = torch.stack(found).tolist()  # all at once: each would wait for the accelerator
    return sums
