"""Every expert asked about every test item, and the outcome matrix made of that.

Asking needs torch and is done once a model; its raw results are kept in a file each, `answers/{column}.jsonl.xz` beside
the experts, and are not made again while they fit the setting's items. Judging what was answered and putting the matrix
together needs neither torch nor the models.
"""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ir3de import files
from ir3de.bench.measurement import circumstances
from ir3de.errors import ArtifactError, InputError
from ir3de.experiments.material import Item, Material
from ir3de.experiments.matrix import Matrix, read_lines
from ir3de.experiments.settings import Setting

AVERAGE, BASE = "average", "base"
KIND, VERSION = "ir3de.answers", 1

Answers = dict[str, dict[str, Any]]  # by item
Say = Callable[[str], None]


def columns(setting: Setting) -> tuple[str, ...]:
    """The experts, and the extras: the mean of their weights, and the model they began as."""
    return (*setting.domains, AVERAGE, *((BASE,) if setting.base else ()))


def ask_all(setting: Setting, material: Material, folder: Path, *, say: Say, device: str = "") -> None:
    """Ask every model whose answers are not there yet."""
    for column in columns(setting):
        path = answers_file(folder, column)
        if path.is_file():
            read_answers(path, column, material)
            continue
        say(f"asking {column} about {len(material.items):,} items")
        rows = _ask(setting, material, folder, column, device)
        head = {
            "kind": KIND,
            "version": VERSION,
            "setting": setting.name,
            "column": column,
            "about": made_by(setting),
        }
        files.make_folder(path.parent)
        lines = [head, *({"item": item.id, **row} for item, row in zip(material.items, rows, strict=True))]
        files.write(path, lzma.compress("\n".join(json.dumps(x, ensure_ascii=False) for x in lines).encode()))


def answers_file(folder: Path, column: str) -> Path:
    return folder / "answers" / f"{column}.jsonl.xz"


def made_by(setting: Setting) -> dict[str, Any]:
    """The command, commit, seeds and hardware of this process."""
    from ir3de.experiments.experts.training import recipe

    accelerator = None
    if torch := sys.modules.get("torch"):
        accelerator = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "command": " ".join(["ir3de", *sys.argv[1:]]),
        "commit": _commit(),
        "recipe": recipe(setting),
        "evaluation": {**vars(setting.evaluation), "most_new_tokens": dict(setting.evaluation.most_new_tokens)},
        "accelerator": accelerator,
        **circumstances(),
    }


def _commit() -> str | None:
    """The commit this code is of: that of its checkout, or what IR3DE_COMMIT says where there is none."""
    if given := os.environ.get("IR3DE_COMMIT"):
        return given
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _ask(setting: Setting, material: Material, folder: Path, column: str, device: str) -> list[dict[str, Any]]:
    model = _model(setting, folder, column, device).to_ask()
    if setting.metric == "perplexity":
        return _likelihoods(model, material.items, setting)
    rows: list[dict[str, Any]] = []
    for domain in setting.domains:
        items = [item for item in material.items if item.domain == domain]
        rows += _replies(model, items, setting, setting.tasks[domain])
    return rows


def _model(setting: Setting, folder: Path, column: str, device: str) -> Any:
    """A column's model, from the hub or as it was trained."""
    from ir3de.experiments.experts import models

    if column == AVERAGE:
        return models.averaged([_model(setting, folder, domain, device) for domain in setting.domains])
    if column == BASE:
        from ir3de.experiments.experts.training import base_of

        return models.load(base_of(setting, folder), device=device)
    if column in setting.experts:
        return models.load(setting.experts[column], device=device)
    return _trained(setting, folder, column, device)


def _trained(setting: Setting, folder: Path, domain: str, device: str) -> Any:
    from ir3de.experiments.experts import lora, models
    from ir3de.experiments.experts.training import base_of, finished

    if not finished(folder / domain, setting):
        raise InputError(
            f"no expert for '{domain}' in {folder}: train it with `ir3de bench train --setting {setting.name} …`"
        )
    if (folder / domain / lora.CONFIG).is_file():
        model = models.load(base_of(setting, folder), device=device)
        lora.merge(model.model, folder / domain)
        return model
    return models.load(folder / domain, device=device)


def _likelihoods(model: Any, items: Sequence[Item], setting: Setting) -> list[dict[str, Any]]:
    from ir3de.experiments.experts.asking import documents, negative_log_likelihoods

    texts = documents(model, [item.text for item in items], setting.evaluation.length)
    sums = negative_log_likelihoods(model, texts, setting.evaluation.batch_tokens)
    return [{"nll": round(float(s), 3), "tokens": t.predicted} for s, t in zip(sums, texts, strict=True)]


def _replies(model: Any, items: Sequence[Item], setting: Setting, task: str) -> list[dict[str, Any]]:
    from ir3de.experiments.experts.asking import generated, negative_log_likelihoods, replies
    from ir3de.experiments.experts.examples import reference

    asked = setting.evaluation
    rows: list[dict[str, Any]] = [{} for _ in items]
    if task == "m_arc":
        letters = [sorted(item.row["options"]) for item in items]
        pairs = [
            (i.text, i.row["options"][letter]) for i, found in zip(items, letters, strict=True) for letter in found
        ]
        options = replies(model, [prompt for prompt, _ in pairs], [option for _, option in pairs], asked.length)
        sums = iter(negative_log_likelihoods(model, options, asked.batch_tokens).tolist())
        rows = [{"options": {letter: round(next(sums), 3) for letter in found}} for found in letters]
    else:
        texts = generated(
            model,
            [item.text for item in items],
            most_new=asked.most_new_tokens[task],
            longest=asked.length,
            batch_tokens=asked.generation_tokens,
            temperature=asked.temperature,
            seed=asked.seed,
        )
        rows = [{"text": text} for text in texts]
    known = [place for place, item in enumerate(items) if reference(task, item.row)]
    solved = [reference(task, items[i].row) for i in known]
    solutions = replies(model, [items[i].text for i in known], solved, asked.length)
    sums = iter(negative_log_likelihoods(model, solutions, asked.batch_tokens).tolist())
    for place, solution in zip(known, solutions, strict=True):
        rows[place] |= {"reference": round(next(sums), 3), "tokens": solution.predicted}
    return rows


def read_answers(path: Path, column: str, material: Material) -> tuple[Answers, dict[str, Any]]:
    """A model's raw results by item, and how they were made; refused where they are not those of these items."""
    if not path.is_file():
        raise InputError(f"no answers of '{column}' at {path}: run `ir3de bench outcomes` where its model is")
    head, *rows = read_lines(path)
    files.check_kind(head, KIND, VERSION, path)
    found = {row["item"]: row for row in rows}
    wanted = {item.id for item in material.items}
    if strange := next((item for item in found if item not in wanted), None):
        raise ArtifactError(
            f"{path} answers the item '{strange}', which is unknown: it was made of other data. Delete it and ask again"
        )
    if missing := next((item for item in (i.id for i in material.items) if item not in found), None):
        raise ArtifactError(f"{path} has no answer to the item '{missing}': delete it and ask again")
    return found, head["about"]


def assemble(setting: Setting, material: Material, folder: Path, *, say: Say = lambda _: None) -> dict[str, Matrix]:
    """The outcome matrix of what was answered and, where the metric is a score, that of the reference answers."""
    read = {name: read_answers(answers_file(folder, name), name, material) for name in columns(setting)}
    answers = {name: found for name, (found, _) in read.items()}
    about = next(iter(read.values()))[1]
    if setting.metric == "perplexity":
        first = next(iter(answers.values()))
        weights = [first[item.id]["tokens"] for item in material.items]
        values = [[found[item.id]["nll"] for found in answers.values()] for item in material.items]
        return {"outcomes": matrix_of(setting, material.items, weights, values, about)}
    made = {"outcomes": _judged(setting, material, answers, about, say)}
    known = [item for item in material.items if all("reference" in found[item.id] for found in answers.values())]
    if known:
        first = next(iter(answers.values()))
        made["reference"] = matrix_of(
            setting,
            known,
            [first[item.id]["tokens"] for item in known],
            [[found[item.id]["reference"] for found in answers.values()] for item in known],
            about,
            metric="perplexity",
        )
    return made


def _judged(
    setting: Setting, material: Material, answers: Mapping[str, Answers], about: Mapping[str, Any], say: Say
) -> Matrix:
    from ir3de.experiments.judging import judge_all

    points = np.zeros((len(material.items), len(answers)))
    weights = np.ones(len(material.items))
    for domain in setting.domains:
        places = [place for place, item in enumerate(material.items) if item.domain == domain]
        rows, task = [material.items[i].row for i in places], setting.tasks[domain]
        for column, (name, found) in enumerate(answers.items()):
            given = [found[material.items[i].id] for i in places]
            if task == "m_arc":
                points[places, column] = [
                    _likeliest(answer["options"]) == row["answer"] for answer, row in zip(given, rows, strict=True)
                ]
                continue
            say(f"judging what {name} answered to {task}")
            verdicts = judge_all(task, rows, [answer["text"] for answer in given])
            points[places, column] = [verdict.points for verdict in verdicts]
            weights[places] = [verdict.of for verdict in verdicts]
    return matrix_of(setting, material.items, weights.tolist(), points.tolist(), about)


def _likeliest(options: Mapping[str, float]) -> str:
    return min(sorted(options), key=lambda letter: options[letter])


def matrix_of(
    setting: Setting,
    items: Sequence[Item],
    weights: Sequence[float],
    values: Sequence[Sequence[float]],
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
        columns(setting)[len(setting.domains) :],
        about,
    )


def of_scored(setting: Setting, material: Material) -> Matrix:
    """The matrix of rows that carry every model's score; a domain's own expert is its best one, in hindsight."""
    field, items = setting.data.scores, material.items
    experts = tuple(sorted({name for item in items for name in item.row.get(field, {})}))
    rows = [[item.row.get(field, {}).get(name) for name in experts] for item in items]
    values = np.array(rows, np.float64)
    domain = np.array([setting.domains.index(item.domain) for item in items], np.intp)
    best = {
        name: experts[int(np.nanmean(values[domain == place], axis=0).argmax())]
        for place, name in enumerate(setting.domains)
    }
    about = {"command": " ".join(["ir3de", *sys.argv[1:]]), "commit": _commit(), **circumstances()}
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
        about,
    )
