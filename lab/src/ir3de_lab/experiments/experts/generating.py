"""What a model answers in a chat: many prompts side by side, and those that are finished make room.

`generate` of transformers goes on with every row until the last one ends, and copies keys and values for each query
head that shares them. With thousands of answers to write, both cost more than the model itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ir3de_lab.experiments.experts.batches import batches, padded
from ir3de_lab.experiments.experts.models import LanguageModel

ATTENTION = "ir3de_grouped"
STEPS_BETWEEN_LOOKS = 16  # at which rows are finished; each look waits for the accelerator


@dataclass(frozen=True)
class Request:
    """A prompt, how many tokens its answer may have, and at which temperature it is drawn: at 0 the likeliest one."""

    prompt: str
    most_new: int
    temperature: float = 0.0


def generate(
    model: LanguageModel,
    requests: Sequence[Request],
    *,
    longest: int,
    batch_tokens: int,
    prompt_tokens: int = 65_536,
    seed: int = 0,
) -> list[str]:
    """Each answer, up to its end or its most tokens; `prompt_tokens` are read in one pass, padding included."""
    torch = model.torch
    prompts = [ids[-longest:] for ids in model.chat_ids([request.prompt for request in requests])]
    answers = [""] * len(requests)
    before = model.model.config._attn_implementation
    _use_grouped_attention(model)
    torch.manual_seed(seed)
    with torch.inference_mode():
        lengths = [len(ids) + request.most_new for ids, request in zip(prompts, requests, strict=True)]
        for places in batches(lengths, batch_tokens):
            written = _decode(model, [prompts[i] for i in places], [requests[i] for i in places], prompt_tokens)
            for place, text in zip(
                places, model.tokenizer.batch_decode(written, skip_special_tokens=True), strict=True
            ):
                answers[place] = text.strip("\r\n").rstrip()  # spaces at the beginning may be Python
    model.model.set_attn_implementation(before)
    return answers


def _decode(
    model: LanguageModel, prompts: Sequence[list[int]], requests: Sequence[Request], prompt_tokens: int
) -> list[list[int]]:
    """The tokens of each answer, without its end."""
    torch, device = model.torch, model.device
    most = torch.tensor([request.most_new for request in requests], device=device)
    temperature = torch.tensor([request.temperature for request in requests], device=device)
    drawn = (temperature > 0).nonzero().flatten()
    written = torch.full((len(requests), int(most.max())), model.end, device=device)
    mask, positions, cache, logits = _read_prompts(model, prompts, prompt_tokens)
    rows, ends = torch.arange(len(requests), device=device), torch.tensor(model.ends, device=device)
    done = most < 1
    for step in range(written.shape[1]):
        token = torch.where(done, model.end, _choose(torch, logits, temperature, drawn))
        written[rows, step] = token
        done |= torch.isin(token, ends) | (most <= step + 1)
        if (step + 1) % STEPS_BETWEEN_LOOKS == 0 or step + 1 == written.shape[1]:
            kept = (~done).nonzero().flatten()
            if not len(kept):
                break
            if len(kept) < len(rows):
                cache.batch_select_indices(kept)
                rows, most, temperature, done = rows[kept], most[kept], temperature[kept], done[kept]
                mask, positions, token = mask[kept], positions[kept], token[kept]
                drawn = (temperature > 0).nonzero().flatten()
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
        positions = positions + 1
        logits = model.model(
            input_ids=token[:, None],
            attention_mask=mask,
            position_ids=positions[:, None],
            past_key_values=cache,
            use_cache=True,
        ).logits[:, -1]
    return [[token for token in row if token not in model.ends] for row in written.tolist()]


def _choose(torch: Any, logits: Any, temperature: Any, drawn: Any) -> Any:
    """The next token of each row: the likeliest or, in the rows that are drawn, p(token) ∝ exp(logit / temperature)."""
    chosen = logits.argmax(dim=-1)
    if len(drawn):
        chances = (logits[drawn].float() / temperature[drawn, None]).softmax(dim=-1)
        chosen[drawn] = torch.multinomial(chances, 1).flatten()
    return chosen


def _read_prompts(model: LanguageModel, prompts: Sequence[list[int]], tokens: int) -> tuple[Any, Any, Any, Any]:
    """Mask, last position, keys and values, and the logits after each prompt; a part of the rows at a time."""
    torch = model.torch
    ids, mask = padded(model, prompts, left=True)
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    at_once = max(1, tokens // ids.shape[1])
    caches, logits = [], []
    for begin in range(0, len(ids), at_once):
        part = slice(begin, begin + at_once)
        made = model.model(
            input_ids=ids[part],
            attention_mask=mask[part],
            position_ids=positions[part],
            use_cache=True,
            logits_to_keep=1,
        )
        caches.append(made.past_key_values)
        logits.append(made.logits[:, -1])
    first = caches[0]
    for place, layer in enumerate(first.layers):
        for name in ("keys", "values"):
            pieces = [getattr(cache.layers[place], name) for cache in caches]
            for cache in caches:
                setattr(cache.layers[place], name, None)  # so that no layer is held twice
            setattr(layer, name, torch.cat(pieces))
    return mask, positions[:, -1], first, torch.cat(logits)


def _use_grouped_attention(model: LanguageModel) -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(ATTENTION, _attend)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    model.model.set_attn_implementation(ATTENTION)


def _attend(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, **more: Any
) -> Any:
    """softmax(q kᵀ · scaling) v for one new token, where query heads share keys and values without copies of them."""
    rows, heads, new, width = query.shape
    if new > 1:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **more)
    groups = key.shape[1]
    scores = query.reshape(rows, groups, heads // groups, width) @ key.transpose(-1, -2)
    scores = scores.float() * (width**-0.5 if scaling is None else scaling)
    if attention_mask is not None:
        scores = scores.masked_fill(~attention_mask, float("-inf"))
    weights = scores.softmax(dim=-1).to(value.dtype)
    return (weights @ value).reshape(rows, 1, heads, width), None
