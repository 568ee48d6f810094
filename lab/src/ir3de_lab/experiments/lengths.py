"""How many drawn answers reached the most tokens that they may have, and how those scored that ended before it.

An answer that reaches the limit is cut off, and what it was about to say is lost. Answers are kept as text, so their
tokens are counted again, with the tokenizer of the base model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ir3de import Embedding
from ir3de.embedding.packaged_models import locate
from ir3de.errors import ArtifactError
from ir3de_lab.experiments import settings
from ir3de_lab.experiments.answers import ANSWERS, answers_file, columns
from ir3de_lab.experiments.gain import get_drawn, get_draws
from ir3de_lab.experiments.matrix import Floats, Matrix, Places, read_lines
from ir3de_lab.experiments.outcomes import TUNED
from ir3de_lab.experiments.results import Results

SLACK = 1 / 64  # of the limit: a text may have so many tokens fewer when it is read again than when it was written


@dataclass(frozen=True)
class Lengths:
    """A model's drawn answers in one domain, over all seeds: how many were cut, and the scores in percent."""

    model: str
    domain: str
    most_tokens: int
    answers: int
    cut_percent: float
    ended_score: float | None
    cut_score: float | None


def measure(seeds: Sequence[Results]) -> list[Lengths]:
    """What the limit did to each model in each domain whose answers are written."""
    setting = settings.load(seeds[0].setting)
    assert setting.base is not None
    tokenizer = Embedding.load(locate(setting.base.model)).tokenizer.reference
    limits = {domain: setting.evaluation.most_new_tokens.get(setting.tasks[domain]) for domain in setting.domains}
    found = []
    for model in columns(setting):
        names = [_find_column(get_drawn(one), model) for one in seeds]
        texts = [_read_draws(one, model) for one in seeds]
        for place, domain in enumerate(setting.domains):
            if (most := limits[domain]) is None:
                continue
            parts: list[tuple[Places, Floats, Floats]] = []
            for one, name, written in zip(seeds, names, texts, strict=True):
                drawn, points = get_drawn(one), get_draws(one)
                items = np.flatnonzero(drawn.domain == place)
                answers = [
                    text for item in items for text in _take(written, drawn.items[item], points.shape[2], one, model)
                ]
                tokens = np.array([len(read.ids) for read in tokenizer.encode_batch(answers, add_special_tokens=False)])
                possible = np.repeat(drawn.weight[items], points.shape[2])
                parts.append((tokens, points[items, drawn.columns.index(name)].ravel(), possible))
            together = (np.concatenate(given) for given in zip(*parts, strict=True))
            shown = next((name for name in names if name != model), model)
            found.append(summarise(shown, domain, most, *together))
    return found


def _find_column(drawn: Matrix, model: str) -> str:
    """The column of a model: the base model may have taken the place of a fine-tuned one."""
    return tuned if (tuned := f"{model}-{TUNED}") in drawn.columns else model


def summarise(model: str, domain: str, most_tokens: int, tokens: Places, points: Floats, possible: Floats) -> Lengths:
    """Part the answers into those that ended and those that were cut.

    >>> tokens, points = np.array([10, 256, 254, 12]), np.array([1.0, 0.0, 1.0, 1.0])
    >>> found = summarise("base", "math", 256, tokens, points, np.ones(4))
    >>> found.cut_percent, found.ended_score, found.cut_score
    (50.0, 100.0, 50.0)
    """
    cut = tokens >= most_tokens - int(SLACK * most_tokens)

    def score(chosen: Any) -> float | None:
        return round(100 * float(points[chosen].sum() / possible[chosen].sum()), 1) if chosen.any() else None

    return Lengths(model, domain, most_tokens, len(tokens), round(100 * float(cut.mean()), 1), score(~cut), score(cut))


def describe(seeds: Sequence[Results], rows: Sequence[Lengths]) -> dict[str, Any]:
    """What was measured, and on what, to be kept."""
    rows_by_name = [{"name": f"{row.model}, {row.domain}", **asdict(row)} for row in rows]
    return {"seeds": [one.setting for one in seeds], "rows": rows_by_name}


def _read_draws(results: Results, model: str) -> dict[str, list[str]]:
    path = answers_file(results.folder, model, ANSWERS)
    if not path.is_file():
        raise ArtifactError(f"no answers of '{model}' at {path}: make them with `ir3de bench outcomes`")
    _, *rows = read_lines(path)
    return {row["item"]: row["draws"] for row in rows if "draws" in row}  # of an option none is drawn


def _take(written: Mapping[str, list[str]], item: str, draws: int, results: Results, model: str) -> list[str]:
    texts = written.get(item, [])
    if len(texts) != draws:
        path = answers_file(results.folder, model, ANSWERS)
        raise ArtifactError(
            f"{path} has {len(texts)} drawn answers to '{item}', and {draws} were judged: copy the file again"
        )
    return texts
