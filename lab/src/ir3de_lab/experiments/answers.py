"""Every model of a setting asked about every test item; its raw answers are kept, a file each.

They lie in `answers/{column}.jsonl.xz` beside the experts and are not asked for again, and answers to held-out prompts
in `held_out/`. Asking needs torch and the models; reading what was answered needs neither.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ir3de.errors import ArtifactError, InputError
from ir3de_lab import files
from ir3de_lab.experiments import held_out
from ir3de_lab.experiments.material import Item, Material
from ir3de_lab.experiments.matrix import read_lines
from ir3de_lab.experiments.provenance import this_process
from ir3de_lab.experiments.settings import CHOSEN, Evaluation, Setting

AVERAGE, BASE = held_out.AVERAGE, held_out.BASE
ANSWERS, HELD_OUT = "answers", "held_out"
KIND, VERSION = "ir3de.answers", 1

Answers = dict[str, dict[str, Any]]  # by item
Say = Callable[[str], None]


def columns(setting: Setting) -> tuple[str, ...]:
    """The experts, and the extras: the mean of their weights, and the model they began as if it is none of them."""
    average = (AVERAGE,) if setting.evaluation.average else ()
    base = (BASE,) if setting.base and setting.base.model not in setting.experts.values() else ()
    return (*setting.domains, *average, *base)


def others(setting: Setting, folder: Path) -> tuple[str, ...]:
    """Models beside those of the setting whose answers lie there as well: they are extras too."""
    found = (path.name.removesuffix(".jsonl.xz") for path in sorted((folder / "answers").glob("*.jsonl.xz")))
    return tuple(name for name in found if name not in columns(setting))


def ask_all(
    setting: Setting, material: Material, folder: Path, *, say: Say, device: str = "", only: Sequence[str] = ()
) -> None:
    """Ask every model whose answers are not there yet, or `only` these."""
    if unknown := next((column for column in only if column not in columns(setting)), None):
        raise InputError(f"no model '{unknown}' in the setting '{setting.name}': {', '.join(columns(setting))}")
    held = Material({}, held_out.items(setting, material))
    for column in only or columns(setting):
        missing = []
        for place, given in ((ANSWERS, material), (HELD_OUT, held)):
            if place == HELD_OUT and column not in held_out.candidates(setting):
                continue
            if answers_file(folder, column, place).is_file():
                read_answers(setting, given, folder, column, place)
            else:
                missing.append((place, given))
        model = _model(setting, folder, column, device).to_ask() if missing else None
        for place, given in missing:
            say(f"asking {column} about {len(given.items):,} {'held-out prompts' if place == HELD_OUT else 'items'}")
            _write(_asked_at(setting, place), column, given, model, answers_file(folder, column, place))


def _write(setting: Setting, column: str, given: Material, model: Any, path: Path) -> None:
    """Ask a model, and keep what it answered."""
    rows = _ask(setting, given, model)
    head = {
        "kind": KIND,
        "version": VERSION,
        "setting": setting.name,
        "column": column,
        "about": {**made_by(setting), "model": setting.experts.get(column)},
    }
    lines = [head, *({"item": item.id, **row} for item, row in zip(given.items, rows, strict=True))]
    files.write(path, lzma.compress("\n".join(json.dumps(x, ensure_ascii=False) for x in lines).encode()))


def _asked_at(setting: Setting, place: str) -> Setting:
    """The setting as it is asked there: held-out prompts are answered once."""
    return replace(setting, evaluation=replace(setting.evaluation, draws=0)) if place == HELD_OUT else setting


def answers_file(folder: Path, column: str, place: str = ANSWERS) -> Path:
    return folder / place / f"{column}.jsonl.xz"


def publish(setting: Setting, folder: Path, results: Path) -> None:
    """Copy the answers of every model to where the results are, unless that is where they came from."""
    kept = [(column, ANSWERS) for column in (*columns(setting), *others(setting, folder))]
    for column, place in (*kept, *((column, HELD_OUT) for column in held_out.candidates(setting))):
        source, target = answers_file(folder, column, place), answers_file(results, column, place)
        if source.resolve() != target.resolve():
            files.write(target, files.read(source))


def made_by(setting: Setting) -> dict[str, Any]:
    """The command, commit, seeds and hardware of this process."""
    from ir3de_lab.experiments.experts.training import recipe

    accelerator = None
    if torch := sys.modules.get("torch"):
        accelerator = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        **this_process(),
        "recipe": recipe(setting),
        "evaluation": {**vars(setting.evaluation), "most_new_tokens": dict(setting.evaluation.most_new_tokens)},
        "accelerator": accelerator,
    }


def _ask(setting: Setting, material: Material, model: Any) -> list[dict[str, Any]]:
    """What the model makes of each item, in the order of the items."""
    if setting.metric == "perplexity":
        return _likelihoods(model, material.items, setting)
    rows: dict[str, dict[str, Any]] = {item.id: {} for item in material.items}
    written = [item for item in material.items if setting.tasks[item.domain] not in CHOSEN]
    chosen = [item for item in material.items if setting.tasks[item.domain] in CHOSEN]
    for found in (_of_options(model, chosen, setting.evaluation), _written(model, written, setting)):
        for name, answer in found.items():
            rows[name] |= answer
    for name, likelihood in _of_references(model, material.items, setting).items():
        rows[name] |= likelihood
    return [rows[item.id] for item in material.items]


def _model(setting: Setting, folder: Path, column: str, device: str) -> Any:
    """A column's model, from the hub or as it was trained."""
    from ir3de_lab.experiments.experts import models

    if column == AVERAGE:
        return models.averaged([_model(setting, folder, domain, device) for domain in setting.domains])
    if column == BASE:
        from ir3de_lab.experiments.experts.training import base_of

        return models.load(base_of(setting, folder), device=device)
    if column in setting.experts:
        return models.load(setting.experts[column], device=device)
    return _trained(setting, folder, column, device)


def _trained(setting: Setting, folder: Path, domain: str, device: str) -> Any:
    from ir3de_lab.experiments.experts import lora, models
    from ir3de_lab.experiments.experts.training import base_of, finished

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
    from ir3de_lab.experiments.experts.asking import documents, negative_log_likelihoods

    texts = documents(model, [item.text for item in items], setting.evaluation.length)
    sums = negative_log_likelihoods(model, texts, setting.evaluation.batch_tokens)
    return [{"nll": round(float(s), 3), "tokens": t.predicted} for s, t in zip(sums, texts, strict=True)]


def _of_references(model: Any, items: Sequence[Item], setting: Setting) -> Answers:
    """How likely the answer is that an item gives to its own prompt, where it gives one."""
    from ir3de_lab.experiments.experts.asking import negative_log_likelihoods, replies
    from ir3de_lab.experiments.experts.examples import reference

    asked = setting.evaluation
    solved = [(item, answer) for item in items if (answer := reference(setting.tasks[item.domain], item.row))]
    solutions = replies(model, [item.text for item, _ in solved], [answer for _, answer in solved], asked.length)
    sums = negative_log_likelihoods(model, solutions, asked.batch_tokens).tolist()
    return {
        item.id: {"reference": round(total, 3), "tokens": solution.predicted}
        for (item, _), solution, total in zip(solved, solutions, sums, strict=True)
    }


def _of_options(model: Any, items: Sequence[Item], asked: Evaluation) -> Answers:
    """How likely each option is."""
    from ir3de_lab.experiments.experts.asking import negative_log_likelihoods, replies

    letters = [sorted(item.row["options"]) for item in items]
    pairs = [(i.text, i.row["options"][letter]) for i, found in zip(items, letters, strict=True) for letter in found]
    prompts, answers = [prompt for prompt, _ in pairs], [option for _, option in pairs]
    options = replies(model, prompts, answers, asked.length, end=asked.option_end)
    sums = iter(negative_log_likelihoods(model, options, asked.batch_tokens).tolist())
    return {
        item.id: {"options": {letter: round(next(sums), 3) for letter in found}}
        for item, found in zip(items, letters, strict=True)
    }


def _written(model: Any, items: Sequence[Item], setting: Setting) -> Answers:
    """The answer to each prompt and, where the setting says so, others that are drawn; all of them side by side."""
    from ir3de_lab.experiments.experts.generating import Request, generate

    asked = setting.evaluation
    temperatures = (asked.temperature, *[asked.draw_temperature] * asked.draws)
    answers = iter(
        generate(
            model,
            [
                Request(item.text, asked.most_new_tokens[setting.tasks[item.domain]], temperature)
                for item in items
                for temperature in temperatures
            ],
            longest=asked.length,
            batch_tokens=asked.generation_tokens,
            prompt_tokens=asked.batch_tokens,
            seed=asked.seed,
        )
    )
    found: Answers = {}
    for item in items:
        found[item.id] = {"text": next(answers)}
        if asked.draws:
            found[item.id]["draws"] = [next(answers) for _ in range(asked.draws)]
    return found


def read_answers(
    setting: Setting, material: Material, folder: Path, column: str, place: str = ANSWERS
) -> tuple[Answers, Mapping[str, Any]]:
    """A model's raw answers by item, and how they were made; refused where they are not those of these items."""
    path, setting = answers_file(folder, column, place), _asked_at(setting, place)
    if not path.is_file():
        raise InputError(f"no answers of '{column}' at {path}: run `ir3de bench outcomes` where its model is")
    head, *rows = read_lines(path)
    files.check_kind(head, KIND, VERSION, path)
    for name, expected in (("setting", setting.name), ("column", column)):
        if head.get(name) != expected:
            raise ArtifactError(f"{path} is of the {name} {head.get(name)!r}, not '{expected}': name another folder")
    _check_made(head.get("about", {}), setting, column, path)
    found = {str(row.get("item")): row for row in rows}
    wanted = {item.id: item for item in material.items}
    if strange := next((item for item in found if item not in wanted), None):
        raise ArtifactError(
            f"{path} answers the item '{strange}', which is unknown: it was made of other data. Delete it and ask again"
        )
    for name, item in wanted.items():
        lacking = "item" if name not in found else next((f for f in _fields(setting, item) if f not in found[name]), "")
        if lacking:
            what = "answer" if lacking == "item" else f"'{lacking}' in its answer"
            raise ArtifactError(f"{path} has no {what} to the item '{name}': delete it and ask again")
    return found, head.get("about", {})


def _check_made(about: Mapping[str, Any], setting: Setting, column: str, path: Path) -> None:
    """Refuse answers that were had otherwise than the setting says; of those beside it nothing is known."""
    from ir3de_lab.experiments.experts.training import recipe

    if column not in columns(setting):
        return
    drawn = ("temperature", "seed", "most_new_tokens", "option_end", "draws", "draw_temperature")
    asked = ("length", *(drawn if setting.metric == "score" else ()))
    wanted = {f"evaluation.{name}": getattr(setting.evaluation, name) for name in asked}
    found = {f"evaluation.{name}": value for name, value in about.get("evaluation", {}).items()}
    if column in setting.experts:
        wanted["model"], found["model"] = setting.experts[column], about.get("model")
    else:
        made = recipe(setting) if column != BASE else {"base": recipe(setting)["base"]}
        wanted |= {f"training.{name}": value for name, value in made.items()}
        found |= {f"training.{name}": value for name, value in about.get("recipe", {}).items()}
    for name, value in wanted.items():
        if found.get(name) not in (None, value):  # older files do not say everything
            raise ArtifactError(
                f"{path} was made with {name} = {found[name]!r}, the setting says {value!r}: delete it and ask again"
            )


def _fields(setting: Setting, item: Item) -> tuple[str, ...]:
    """What an answer to an item must hold."""
    if setting.metric == "perplexity":
        return ("nll", "tokens")
    if setting.tasks[item.domain] in CHOSEN:
        return ("options",)
    return ("text", "draws") if setting.evaluation.draws else ("text",)
