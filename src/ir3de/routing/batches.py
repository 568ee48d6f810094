"""Many prompts at once, on every core: the same decisions as one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.policies import Costs
from ir3de.routing.compiled import CompiledRouter, decide_batch
from ir3de.routing.decision import Decision, require_content
from ir3de.statistics.tables import refuse_table

# texts, and how many tokens of each are read; ids end to end, and lengths
EncodeBatch = Callable[[Sequence[str], int], tuple[npt.NDArray[Any], npt.NDArray[Any]]]
BATCH_CHARACTERS = 500_000  # what is worth a thread of its own


def decide_texts(
    compiled: CompiledRouter,
    encode: EncodeBatch,
    unknown: int | None,
    texts: Iterable[str],
    weights: Costs | None,
    *,
    threads: int,
) -> list[Decision]:
    """Route many texts, in stretches that are shared out among threads."""
    refuse_table(texts, "texts")
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise InputError(f"texts must be an iterable of str, found one {type(texts).__name__}: use route for one")

    def decide_stretch(stretch: Sequence[str]) -> list[Decision]:
        flat, lengths = encode(stretch, compiled.cap)
        found = decide_batch(compiled, flat, lengths.astype(np.int64), unknown, weights)
        return [require_content(decision, text) for decision, text in zip(found, stretch, strict=True)]

    stretches = list(_split(list(texts)))
    if len(stretches) < 2:
        return [decision for stretch in stretches for decision in decide_stretch(stretch)]
    with ThreadPoolExecutor(threads, thread_name_prefix="ir3de-route") as pool:
        return list(chain.from_iterable(pool.map(decide_stretch, stretches)))


def decide_ids(
    compiled: CompiledRouter, prompts: Iterable[npt.ArrayLike], unknown: int | None, weights: Costs | None = None
) -> list[Decision]:
    """Route prompts given as token ids, which are checked first."""
    ids = [np.asarray(prompt, np.int64) for prompt in prompts]
    flat, size = np.concatenate([np.empty(0, np.int64), *ids]), len(compiled.table.vote)
    if len(flat) and not 0 <= flat.min() <= flat.max() < size:
        raise InputError(
            f"token ids are 0 to {size - 1}, found {flat.min()} to {flat.max()}: use the router's tokenizer"
        )
    lengths = np.array([len(prompt) for prompt in ids], np.int64)
    return decide_batch(compiled, flat.astype(np.uint32), lengths, unknown, weights)


def _split(texts: Sequence[str]) -> Iterable[Sequence[str]]:
    begin = characters = 0
    for index, text in enumerate(texts):
        characters += len(text) if isinstance(text, str) else 0
        if characters >= BATCH_CHARACTERS:
            yield texts[begin : index + 1]
            begin, characters = index + 1, 0
    if begin < len(texts):
        yield texts[begin:]


def list_probabilities(decisions: Sequence[Decision], experts: Sequence[str]) -> npt.NDArray[np.float64]:
    """P(expert | in domain) of each decision: (decisions, experts). Rows add up to one.

    Of equal probabilities the first by the ranking is larger by one bit, so that it is the largest of its row.
    """
    rows = np.array([decision._find_values() for decision in decisions], np.float64).reshape(-1, len(experts))
    for row, decision in zip(rows, decisions, strict=True):
        if row.argmax() != (first := decision._order[0]):
            row[first] = np.nextafter(row.max(), 1.0)
    return rows
