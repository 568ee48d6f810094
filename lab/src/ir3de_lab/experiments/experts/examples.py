"""What an expert is trained on: blocks of running text, or answers to prompts. Seed and step give the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ir3de.corpora import text_of
from ir3de.errors import InputError
from ir3de_lab.experiments.experts.models import LanguageModel
from ir3de_lab.experiments.material import Rows
from ir3de_lab.experiments.settings import Setting, Training

IGNORED = -100  # the label of a token whose prediction does not count
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Token ids, padded on the right, and their labels: the token itself where its prediction counts.

    A mask is not needed: no token looks at what comes after it, and what is predicted after the padding does not count.
    """

    ids: Ids
    labels: Ids


class Examples(Protocol):
    """Batches by step: the same seed and step give the same batch, so that training can go on where it stopped."""

    @property
    def count(self) -> int: ...

    def batch(self, step: int) -> Batch: ...


@dataclass(frozen=True, eq=False)
class Blocks:
    """Documents end to end, each closed by the end token, cut into blocks of equal length."""

    blocks: Ids  # (n, length)
    training: Training

    @property
    def count(self) -> int:
        return len(self.blocks)

    def batch(self, step: int) -> Batch:
        ids = self.blocks[_places(len(self.blocks), step, self.training)]
        return Batch(ids, ids)


@dataclass(frozen=True, eq=False)
class Answers:
    """Prompts with their answers; only the answer's tokens and the end token after it are learnt."""

    prompts: Sequence[list[int]]
    answers: Sequence[list[int]]
    pad: int
    training: Training

    @property
    def count(self) -> int:
        return len(self.prompts)

    def batch(self, step: int) -> Batch:
        places, length = _places(len(self.prompts), step, self.training), self.training.length
        rows = [(self.prompts[i], self.answers[i]) for i in places]
        whole = [[*prompt, *answer][:length] for prompt, answer in rows]
        shape = len(whole), max(len(ids) for ids in whole)
        ids, labels = np.full(shape, self.pad), np.full(shape, IGNORED)
        for row, (tokens, (prompt, _)) in enumerate(zip(whole, rows, strict=True)):
            ids[row, : len(tokens)] = tokens
            labels[row, len(prompt) : len(tokens)] = tokens[len(prompt) :]
        return Batch(ids, labels)


def examples(setting: Setting, domain: str, rows: Rows, model: LanguageModel) -> Examples:
    """The domain's training rows as the setting's metric asks: running text, or answers."""
    if setting.metric == "perplexity":
        return blocks([text_of(row) for row in rows], model, setting.training, domain)
    answers = [(text_of(row), answer) for row in rows if (answer := reference(setting.tasks[domain], row))]
    if not answers:
        raise InputError(f"no training row of the domain '{domain}' has an answer to learn from")
    prompts = model.chat_ids([prompt for prompt, _ in answers])
    replies = [[*ids, model.end] for ids in model.ids([answer for _, answer in answers])]
    return Answers(prompts, replies, model.end, setting.training)


def blocks(texts: Sequence[str], model: LanguageModel, training: Training, domain: str) -> Blocks:
    """Running text in blocks."""
    flat = np.array([token for ids in model.ids(texts) for token in (*ids, model.end)], np.int64)
    count = len(flat) // training.length
    if count == 0:
        raise InputError(
            f"the domain '{domain}' has {len(flat)} tokens, fewer than one block of {training.length}: "
            "give more text, or lower training.length"
        )
    return Blocks(flat[: count * training.length].reshape(count, training.length), training)


def reference(task: str, row: Mapping[str, Any]) -> str:
    """The answer that a row gives to its own prompt, or nothing."""
    if task == "m_arc":
        return str(row.get("options", {}).get(row.get("answer"), ""))
    answer = row.get("solution") if task == "gsm8k" else row.get("answer")
    if row.get("entry_point"):  # a program whose beginning is the prompt
        answer = f"{row['text']}{answer}"
    return str(answer or "").replace("\r\n", "\n")


def _places(count: int, step: int, training: Training) -> npt.NDArray[np.intp]:
    """The examples of a step: all of them, shuffled anew for each round, are taken before one is taken again."""
    begin = step * training.batch
    wanted = np.arange(begin, begin + training.batch)
    rounds = {r: np.random.default_rng([training.seed, r]).permutation(count) for r in set((wanted // count).tolist())}
    return np.array([rounds[int(place // count)][place % count] for place in wanted], np.intp)
