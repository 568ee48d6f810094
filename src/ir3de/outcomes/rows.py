"""Rows of (prompt, task, score per model) to outcomes: tokenise, and sum each prompt's mean embedding exactly."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de.outcomes.sample import EMPTY, KeptPrompt, OutcomeSample, PromptKey, ScoreSum, digest_text
from ir3de.outcomes.sums import LENGTH_PARTS, ONE_TASK, Key, Outcomes, OutcomeSums, checked_scores, fold
from ir3de.statistics.counting import GRAM_WINDOWS, MEAN_PARTS, window_means
from ir3de.statistics.integers import read_only
from ir3de.statistics.prompt_sums import PromptSums, triangle_indices, triangle_size

CHUNK_ROWS = 4_096
WHOLE = 8_192  # a prompt is one window, of the tokens that routing looks at
CAP = 1_024


@dataclass(frozen=True)
class Row:
    """One prompt and what each model scored on it, checked."""

    text: str
    task: str
    scores: Mapping[str, int]
    named: frozenset[str]  # also models whose score is missing

    @classmethod
    def read(cls, number: int, row: object, field: str, models: Collection[str] | None = None) -> Row:
        """Check a row; `field` is where its scores are, and with `models` only theirs are taken."""
        where = getattr(row, "place", None) or f"row {number}"  # a row of a file knows where it was read
        if not isinstance(row, Mapping):
            raise InputError(f"{where}: must be a mapping with 'text' and {field!r}, found {type(row).__name__}")
        text, task = row.get("text", row.get("prompt")), row.get("task")
        if not isinstance(text, str):
            raise InputError(f"{where}: 'text' (or 'prompt') must be a str, found {type(text).__name__}")
        if task is not None and not isinstance(task, str):
            raise InputError(f"{where}: 'task' must be a str or missing, found {type(task).__name__}")
        if field not in row:
            raise InputError(
                f"{where}: no {field!r}: found {', '.join(map(repr, row))}. Name the field that maps models to scores"
            )
        given = row[field]
        if models is not None and isinstance(given, Mapping):
            given = {model: score for model, score in given.items() if model in models}
        scores = checked_scores(given, where)
        return cls(text, task or ONE_TASK, scores, frozenset(given))


def collect_outcomes(
    rows: Iterable[Mapping[str, Any]],
    *,
    embedding: Embedding | None = None,
    field: str = "scores",
    models: Collection[str] | None = None,
) -> Outcomes:
    """Sum up rows of `text`, `task` (may be missing) and a mapping of model to score (any may be missing or None).

    With `models`, scores of any others are passed over.

    >>> import ir3de
    >>> from ir3de.outcomes import collect_outcomes
    >>> collect_outcomes([{"text": "2 + 2 = ?", "scores": {"small": 1, "large": 1.0}}])
    Outcomes(2 models, 1 tasks, 2 scores)
    """
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise InputError(f"rows must be an iterable of mappings, found one {type(rows).__name__}: put rows in a list")
    used = embedding or Embedding.default()
    checked = (Row.read(number, row, field, models) for number, row in enumerate(rows, 1))
    named: set[str] = set()
    total = Outcomes(used.fingerprint, {}, used.default_version, has_length=True, sample=EMPTY)
    while chunk := list(islice(checked, CHUNK_ROWS)):
        named.update(*(row.named for row in chunk))
        total += _count(chunk, used)
    if not total.cells:
        whose = "" if models is None else f" of {', '.join(map(repr, models))}"
        raise InputError(f"no row has a prompt and a score{whose}: outcomes need at least one")
    if silent := sorted(named.difference(total.models)):
        raise InputError(f"no row has a score of {silent[0]!r}: give it one at least, or leave the model out")
    return total


def _count(rows: Sequence[Row], embedding: Embedding) -> Outcomes:
    """The outcomes of rows that are all in memory."""
    flat, counted = embedding.tokenizer.encode_batch([row.text for row in rows])
    lengths = counted.astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    groups: dict[tuple[str, int, tuple[str, ...]], list[int]] = {}  # rows of a group have the same models
    for index, row in enumerate(rows):
        if lengths[index] and row.scores:
            groups.setdefault((row.task, fold(row.text), tuple(sorted(row.scores))), []).append(index)
    outcomes = Outcomes(embedding.fingerprint, {}, embedding.default_version, has_length=True)
    positions = flat.astype(np.intp)
    sample: list[tuple[int, npt.NDArray[np.float64]]] = []
    for (task, part, models), members in groups.items():
        looked_at = np.minimum(lengths[members], CAP)
        means = window_means(positions, starts[members], looked_at, embedding.stored.fixed_point)
        means = np.column_stack([means, np.rint(np.log2(looked_at) * LENGTH_PARTS)])
        scores = np.array([[rows[i].scores[model] for i in members] for model in models], np.int64)
        unit = embedding.stored.unit / MEAN_PARTS
        outcomes += replace(outcomes, cells=_cells(task, part, models, means, scores, unit))
        sample.extend(zip(members, means, strict=True))
    return replace(outcomes, sample=_keep(rows, sample))


def _keep(rows: Sequence[Row], means: Iterable[tuple[int, npt.NDArray[np.float64]]]) -> OutcomeSample:
    """The sample of these rows; `means` pairs the place of a row with its mean embedding."""
    prompts: dict[PromptKey, KeptPrompt] = {}
    scores: dict[str, dict[PromptKey, ScoreSum]] = {}
    for index, mean in means:
        row = rows[index]
        key = digest_text(row.text), row.task
        prompts[key] = KeptPrompt(fold(row.text), read_only(mean.astype(np.int64)))
        for model, score in row.scores.items():
            own = scores.setdefault(model, {})
            count, total = own.get(key, (0, 0))
            own[key] = count + 1, total + score
    return EMPTY + OutcomeSample(prompts, scores)


def _cells(
    task: str,
    part: int,
    models: Sequence[str],
    means: npt.NDArray[np.float64],
    scores: npt.NDArray[np.int64],
    unit: float,
) -> dict[Key, OutcomeSums]:
    """Sums over rows on which the same models were scored: `means` (rows, h) and `scores` (models, rows)."""
    width = means.shape[1]
    gram = np.zeros(triangle_size(width), np.int64)
    upper = triangle_indices(width)
    for begin in range(0, len(means), GRAM_WINDOWS):
        block = means[begin : begin + GRAM_WINDOWS]
        gram += (block.T @ block)[upper].astype(np.int64)  # exact, as in counting
    whole = means.astype(np.int64)
    prompts = PromptSums(WHOLE, unit, len(means), whole.sum(axis=0), gram)
    products = scores @ whole  # in integers: scores are too fine for float64 to add them without error
    return {
        (task, model, part): OutcomeSums(
            prompts, sum(column), sum(score * score for score in column), np.ascontiguousarray(row)
        )
        for model, column, row in zip(models, scores.tolist(), products, strict=True)
    }
