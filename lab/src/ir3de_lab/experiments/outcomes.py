"""The outcome matrix made of what the models answered, or of rows that carry every model's score.

Answers are judged here; that needs neither torch nor the models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ir3de.errors import InputError
from ir3de_lab.experiments.answers import Answers, Say, columns, others, read_answers
from ir3de_lab.experiments.material import Item, Material
from ir3de_lab.experiments.matrix import Floats, Matrix
from ir3de_lab.experiments.provenance import this_process
from ir3de_lab.experiments.settings import CHOSEN, Setting

KEPT = ("command", "commit", "date", "accelerator", "note")  # of how each column was asked


def assemble(setting: Setting, material: Material, folder: Path, *, say: Say = lambda _: None) -> dict[str, Matrix]:
    """The outcome matrix of what was answered and, where the metric is a score, that of the reference answers."""
    read = {
        name: read_answers(setting, material, folder, name) for name in (*columns(setting), *others(setting, folder))
    }
    answers = {name: found for name, (found, _) in read.items()}
    about = {
        **next(iter(read.values()))[1],
        "put together by": this_process(),
        "columns": {name: {k: made[k] for k in KEPT if k in made} for name, (_, made) in read.items()},
    }
    extras = tuple(answers)[len(setting.domains) :]
    if setting.metric == "perplexity":
        first = next(iter(answers.values()))
        weights = [first[item.id]["tokens"] for item in material.items]
        values = [[found[item.id]["nll"] for found in answers.values()] for item in material.items]
        return {"outcomes": matrix_of(setting, material.items, weights, values, extras, about)}
    made = {"outcomes": _judged(setting, material, answers, about, say)}
    known = [item for item in material.items if all("reference" in found[item.id] for found in answers.values())]
    if known:
        first = next(iter(answers.values()))
        made["reference"] = matrix_of(
            setting,
            known,
            [first[item.id]["tokens"] for item in known],
            [[found[item.id]["reference"] for found in answers.values()] for item in known],
            extras,
            about,
            metric="perplexity",
        )
    return made


def _judged(
    setting: Setting, material: Material, answers: Mapping[str, Answers], about: Mapping[str, Any], say: Say
) -> Matrix:
    from ir3de_lab.experiments.judging import judge_all

    points = np.zeros((len(material.items), len(answers)))
    weights = np.ones(len(material.items))
    for domain in setting.domains:
        places = [place for place, item in enumerate(material.items) if item.domain == domain]
        rows, task = [material.items[i].row for i in places], setting.tasks[domain]
        for column, (name, found) in enumerate(answers.items()):
            given = [found[material.items[i].id] for i in places]
            if task in CHOSEN:
                points[places, column] = [
                    _likeliest(answer["options"]) == row["answer"] for answer, row in zip(given, rows, strict=True)
                ]
                continue
            say(f"judging what {name} answered to {task}")
            verdicts = judge_all(task, rows, [answer["text"] for answer in given])
            points[places, column] = [verdict.points for verdict in verdicts]
            weights[places] = [verdict.of for verdict in verdicts]
    extras = tuple(answers)[len(setting.domains) :]
    return matrix_of(setting, material.items, weights.tolist(), points.tolist(), extras, about)


def _likeliest(options: Mapping[str, float]) -> str:
    return min(sorted(options), key=lambda letter: options[letter])


def matrix_of(
    setting: Setting,
    items: Sequence[Item],
    weights: Sequence[float],
    values: Sequence[Sequence[float]],
    extras: tuple[str, ...],
    about: Mapping[str, Any],
    *,
    metric: str = "",
) -> Matrix:
    """A matrix of these items; a domain's groups are its languages, where the rows say one."""
    domains = tuple(domain for domain in setting.domains if any(item.domain == domain for item in items))
    return Matrix(
        setting.name,
        metric or setting.metric,
        domains,
        setting.domains,
        {domain: domain for domain in domains},
        tuple(item.id for item in items),
        np.array([domains.index(item.domain) for item in items], np.intp),
        tuple(str(item.row.get("lang") or "") for item in items),
        np.array(weights, np.float64),
        np.array(values, np.float64),
        extras,
        about,
    )


def of_scored(setting: Setting, material: Material) -> Matrix:
    """The matrix of rows that carry every model's score; a domain's own expert is its best one, in hindsight."""
    items = material.items
    experts, values = _scores(items, setting.data.scores)
    domain = np.array([setting.domains.index(item.domain) for item in items], np.intp)
    best = {
        name: experts[int(values[domain == place].mean(axis=0).argmax())] for place, name in enumerate(setting.domains)
    }
    return Matrix(
        setting.name,
        setting.metric,
        setting.domains,
        experts,
        best,
        tuple(item.id for item in items),
        domain,
        tuple("" for _ in items),
        np.ones(len(items)),
        values,
        (),
        this_process(),
    )


def _scores(items: Sequence[Item], field: str) -> tuple[tuple[str, ...], Floats]:
    """The models that the rows name, and each one's score for each item."""
    tables = []
    for item in items:
        if not isinstance(table := item.row.get(field), Mapping) or not table:
            raise InputError(f"the item '{item.id}' has no scores of models in its field '{field}', found {table!r}")
        tables.append(table)
    experts = tuple(sorted({name for table in tables for name in table}))
    for item, table in zip(items, tables, strict=True):
        for name in experts:
            if not isinstance(table.get(name), int | float):
                raise InputError(
                    f"the item '{item.id}' needs a number as the score of the model '{name}', found "
                    f"{table.get(name)!r} in its field '{field}'"
                )
    return experts, np.array([[table[name] for name in experts] for table in tables], np.float64)
