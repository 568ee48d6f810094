"""What a model makes of texts: how likely it finds them, and what it answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

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
        for places in _batches([len(text.ids) for text in texts], batch_tokens):
            chosen = [texts[i] for i in places]
            ids, mask = _padded(model, [text.ids for text in chosen], left=False)
            logits = model.model(input_ids=ids, attention_mask=mask, use_cache=False).logits
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


def generated(
    model: LanguageModel,
    prompts: Sequence[str],
    *,
    most_new: int,
    longest: int,
    batch_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
) -> list[str]:
    """What the model answers in a chat, up to its end token or so many tokens; at temperature 0 the likeliest ones."""
    torch = model.torch
    asked = [ids[-longest:] for ids in model.chat_ids(prompts)]
    answers = [""] * len(prompts)
    options: dict[str, Any] = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
    if temperature > 0:
        options = {"do_sample": True, "temperature": temperature, "top_p": 1.0, "top_k": 0}
    torch.manual_seed(seed)
    with torch.inference_mode():
        for places in _batches([len(ids) + most_new for ids in asked], batch_tokens):
            ids, mask = _padded(model, [asked[i] for i in places], left=True)
            made = model.model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=most_new,
                eos_token_id=model.end,
                pad_token_id=model.end,
                **options,
            )[:, ids.shape[1] :]
            for place, text in zip(places, model.tokenizer.batch_decode(made, skip_special_tokens=True), strict=True):
                answers[place] = text.strip("\r\n").rstrip()  # spaces at the beginning may be Python
    return answers


def _batches(lengths: Sequence[int], tokens: int) -> Iterator[npt.NDArray[np.intp]]:
    """Places, long with long, as many as stay below so many tokens when padded, and one at least."""
    order = np.argsort([-length for length in lengths], kind="stable")
    begin = 0
    while begin < len(order):
        count = max(1, tokens // max(1, lengths[order[begin]]))
        yield order[begin : begin + count]
        begin += count


def _padded(model: LanguageModel, rows: Sequence[list[int]], *, left: bool) -> tuple[Any, Any]:
    torch, width = model.torch, max(len(row) for row in rows)
    ids = np.full((len(rows), width), model.end)
    mask = np.zeros((len(rows), width), np.int64)
    for place, row in enumerate(rows):
        where = slice(width - len(row), width) if left else slice(0, len(row))
        ids[place, where], mask[place, where] = row, 1
    return torch.from_numpy(ids).to(model.device), torch.from_numpy(mask).to(model.device)
