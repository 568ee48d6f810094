"""The outcome matrix made of what the models answered, or of rows that carry every model's score.

Answers are judged here; that needs neither torch nor the models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ir3de.errors import InputError
from ir3de_lab.experiments import held_out
from ir3de_lab.experiments.answers import HELD_OUT, Answers, Say, columns, others, read_answers
from ir3de_lab.experiments.material import Item, Material
from ir3de_lab.experiments.matrix import Floats, Matrix
from ir3de_lab.experiments.provenance import this_process
from ir3de_lab.experiments.settings import CHOSEN, Setting

TUNED = "tuned"  # ends the name of a fine-tuned model whose place the base model takes

KEPT = ("command", "commit", "date", "accelerator", "note")  # of how each column was asked


@dataclass(frozen=True, eq=False)
class Assembled:
    """The outcome matrix of what was answered; where the metric is a score, those of references and of draws too."""

    matrices: dict[str, Matrix]
    draws: Floats | None = None  # (n, columns, draws)  the points of every draw


def assemble(setting: Setting, material: Material, folder: Path, *, say: Say = lambda _: None) -> Assembled:
    """Judge what was answered."""
    read = {
        name: read_answers(setting, material, folder, name) for name in (*columns(setting), *others(setting, folder))
    }
    answers, chosen = _chosen(setting, material, folder, {name: found for name, (found, _) in read.items()})
    about = {
        **next(iter(read.values()))[1],
        **({"chosen": {domain: choice.to_dict() for domain, choice in chosen.items()}} if chosen else {}),
        "put together by": this_process(),
        "columns": {name: {k: made[k] for k in KEPT if k in made} for name, (_, made) in read.items()},
    }
    extras = tuple(answers)[len(setting.domains) :]
    if setting.metric == "score" and "evaluation" in about:
        about["evaluation"] = {**about["evaluation"], "option": setting.evaluation.option}  # by which it is judged here
    if setting.metric == "perplexity":
        first = next(iter(answers.values()))
        weights = [first[item.id]["tokens"] for item in material.items]
        values = [[found[item.id]["nll"] for found in answers.values()] for item in material.items]
        return Assembled({"outcomes": matrix_of(setting, material.items, weights, values, extras, about)})
    draws, made = None, {"outcomes": _judged(setting, material, answers, about, say)}
    if setting.evaluation.draws:
        draws, possible = judge_draws(setting, material, answers, say)
        made["drawn"] = matrix_of(
            setting, material.items, possible.tolist(), draws.mean(axis=2).tolist(), extras, about
        )
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
    return Assembled(made, draws)


def _chosen(
    setting: Setting, material: Material, folder: Path, answers: dict[str, Answers]
) -> tuple[dict[str, Answers], dict[str, held_out.Choice]]:
    """The answers with those of the base model in a domain's place, where it did better on held-out prompts.

    The fine-tuned model is then an extra at the end.
    """
    held = held_out.items(setting, material)
    given = Material({}, held)
    found = {name: read_answers(setting, given, folder, name, HELD_OUT)[0] for name in held_out.candidates(setting)}
    choices = {domain: held_out.choose(domain, held, found) for domain in setting.choose}
    replaced = {domain: choice.taken for domain, choice in choices.items() if choice.taken != domain}
    made = {name: answers[replaced.get(name, name)] for name in answers}
    return {**made, **{f"{domain}-{TUNED}": answers[domain] for domain in replaced}}, choices


def read_draws(
    setting: Setting, material: Material, folder: Path, *, say: Say = lambda _: None
) -> tuple[Floats, tuple[str, ...]]:
    """The points of every draw that was answered, and the columns: (n, columns, draws)."""
    read = {
        name: read_answers(setting, material, folder, name)[0] for name in (*columns(setting), *others(setting, folder))
    }
    answers, _ = _chosen(setting, material, folder, read)
    return judge_draws(setting, material, answers, say)[0], tuple(answers)


def judge_draws(
    setting: Setting, material: Material, answers: Mapping[str, Answers], say: Say
) -> tuple[Floats, Floats]:
    """The points of every draw (n, columns, draws), and what could be reached (n,); options are chosen, not drawn."""
    drawn = [_points(setting, material, answers, say, draw=draw) for draw in range(setting.evaluation.draws)]
    return np.stack([points for points, _ in drawn], axis=2), drawn[0][1]


def _judged(
    setting: Setting, material: Material, answers: Mapping[str, Answers], about: Mapping[str, Any], say: Say
) -> Matrix:
    points, weights = _points(setting, material, answers, say)
    extras = tuple(answers)[len(setting.domains) :]
    return matrix_of(setting, material.items, weights.tolist(), points.tolist(), extras, about)


def _points(
    setting: Setting, material: Material, answers: Mapping[str, Answers], say: Say, *, draw: int | None = None
) -> tuple[Floats, Floats]:
    """The points of every answer, or of one draw: (n, columns), and those that could be reached: (n,)."""
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
                    _likeliest(answer["options"], row["options"], setting.evaluation.option) == row["answer"]
                    for answer, row in zip(given, rows, strict=True)
                ]
                continue
            say(f"judging what {name} {'answered to' if draw is None else f'drew for, {draw + 1},'} {task}")
            texts = [answer["text"] if draw is None else answer["draws"][draw] for answer in given]
            verdicts = judge_all(task, rows, texts)
            points[places, column] = [verdict.points for verdict in verdicts]
            weights[places] = [verdict.of for verdict in verdicts]
    return points, weights


def _likeliest(found: Mapping[str, float], options: Mapping[str, str], measure: str) -> str:
    """The letter of the likeliest option, as a whole or by its mean over its bytes.

    >>> _likeliest({"A": 5.0, "B": 6.0}, {"A": "ice", "B": "a glacier"}, "whole")
    'A'
    >>> _likeliest({"A": 5.0, "B": 6.0}, {"A": "ice", "B": "a glacier"}, "per_byte")
    'B'
    """
    size = {letter: max(1, len(text.encode(errors="surrogatepass"))) for letter, text in options.items()}
    return min(sorted(found), key=lambda letter: found[letter] / (size[letter] if measure == "per_byte" else 1))


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


def place_items(setting: Setting, items: Sequence[Item]) -> Matrix:
    """The items and experts of a setting before any expert was asked: enough to choose by, and all values are zero."""
    nothing = np.zeros((len(items), len(setting.domains)))
    return matrix_of(setting, items, [1.0] * len(items), nothing.tolist(), (), {})


def of_scored(setting: Setting, material: Material) -> Matrix:
    """The matrix of rows that carry every model's score; a domain's own expert is its best one, in hindsight."""
    items = material.items
    rows = {item.id: item.row for item in items}
    experts, values = read_by_model(rows, setting.data.scores)
    costs = None
    if setting.data.costs:
        priced, costs = read_by_model(rows, setting.data.costs)
        _check_priced(experts, priced, "costs")
    elif setting.data.sizes:
        _check_priced(experts, tuple(sorted(setting.data.sizes)), "sizes")
        costs = np.tile([setting.data.sizes[expert] for expert in experts], (len(items), 1))
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
        costs,
    )


def _check_priced(experts: tuple[str, ...], priced: tuple[str, ...], what: str) -> None:
    if priced != experts:
        raise InputError(f"scores are of {', '.join(experts)}, and {what} of {', '.join(priced)}: give both for each")


def read_by_model(rows: Mapping[str, Mapping[str, Any]], field: str) -> tuple[tuple[str, ...], Floats]:
    """The models that a field of the rows names, and each one's number in each row; `rows` are by their ids."""
    tables = {}
    for name, row in rows.items():
        if not isinstance(table := row.get(field), Mapping) or not table:
            raise InputError(f"the item '{name}' has no scores of models in its field '{field}', found {table!r}")
        tables[name] = table
    models = tuple(sorted({model for table in tables.values() for model in table}))
    for name, table in tables.items():
        for model in models:
            if not isinstance(table.get(model), int | float):
                raise InputError(
                    f"the item '{name}' needs a number as the score of the model '{model}', found "
                    f"{table.get(model)!r} in its field '{field}'"
                )
    return models, np.array([[table[model] for model in models] for table in tables.values()], np.float64)
