"""What a router fitted from outcomes adds to its folder: the sums, the truth, in one file; the rest in the header."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ir3de.embedding.defaults import find_version
from ir3de.errors import ArtifactError, InputError, MismatchError
from ir3de.outcomes.expectation import Expectation, HeldOutGain, Shrinkage, Validation
from ir3de.outcomes.sample import KeptPrompt, OutcomeSample
from ir3de.outcomes.sums import Outcomes, OutcomeSums
from ir3de.statistics.files import shrink_integers
from ir3de.statistics.prompt_sums import PromptSums
from ir3de.storage import files
from ir3de.storage.tensors import from_safetensors, to_safetensors

KIND, VERSION = "ir3de.outcomes", 2  # 2: with the column of lengths


def outcomes_bytes(outcomes: Outcomes) -> bytes:
    """The file's bytes: prompts that models share once, integers in the smallest types that hold them."""
    outcomes = outcomes.shared()
    cells = sorted(outcomes.cells.items(), key=lambda item: item[0])
    distinct = list({id(sums.prompts): sums.prompts for _, sums in cells}.values())
    place = {id(prompts): index for index, prompts in enumerate(distinct)}
    tensors = {f"products.{index}": shrink_integers(sums.products) for index, (_, sums) in enumerate(cells)}
    for index, prompts in enumerate(distinct):
        tensors |= {f"vector.{index}": shrink_integers(prompts.vector), f"gram.{index}": shrink_integers(prompts.gram)}
    sample = {} if outcomes.sample is None else {"sample": _describe_sample(outcomes.sample, tensors)}
    header = {
        "kind": KIND,
        "version": VERSION if outcomes.has_length else 1,
        "fingerprint": outcomes.fingerprint,
        **({} if outcomes.embedding_version is None else {"embedding_version": outcomes.embedding_version}),
        "prompts": [{"window": p.window, "unit": p.unit, "rows": p.windows} for p in distinct],
        "cells": [
            {
                "task": task, "model": model, "fold": fold,
                "prompts": place[id(sums.prompts)], "total": sums.total, "squares": sums.squares,
            }
            for (task, model, fold), sums in cells
        ],
        **sample,
    }  # fmt: skip
    return to_safetensors(tensors, header)


def _describe_sample(sample: OutcomeSample, tensors: dict[str, Any]) -> dict[str, Any]:
    """The header's field `sample`; what is long is added to `tensors`."""
    place = {key: index for index, key in enumerate(sample.prompts)}
    tasks = sorted({task for _, task in place})
    for index, own in enumerate(sample.scores.values()):
        rows = [(place[key], count, total) for key, (count, total) in own.items()]
        tensors[f"sample.scores.{index}"] = shrink_integers(np.array(rows, np.int64))
    prompts = [(digest, tasks.index(task), prompt.fold) for (digest, task), prompt in sample.prompts.items()]
    tensors["sample.prompts"] = np.array(prompts, np.int64).reshape(-1, 3)
    tensors["sample.vectors"] = shrink_integers(np.array([prompt.vector for prompt in sample.prompts.values()]))
    return {"tasks": tasks, "models": list(sample.scores)}


def _restore_sample(described: Mapping[str, Any], tensors: Mapping[str, Any]) -> OutcomeSample:
    keys = [(digest, described["tasks"][task]) for digest, task, _ in tensors["sample.prompts"].tolist()]
    folds = tensors["sample.prompts"][:, 2].tolist()
    vectors = tensors["sample.vectors"]
    prompts = {key: KeptPrompt(*one) for key, *one in zip(keys, folds, vectors, strict=True)}
    scores = {
        model: {keys[place]: (count, total) for place, count, total in tensors[f"sample.scores.{index}"].tolist()}
        for index, model in enumerate(described["models"])
    }
    return OutcomeSample(prompts, scores)


def outcomes_from(content: bytes, path: Path) -> Outcomes:
    """The outcomes in a file's bytes; `path` is for the messages."""
    tensors, header = from_safetensors(content, path)
    files.check_kind(header, KIND, VERSION, path)
    try:
        whole = {name: tensor.astype(np.int64, casting="safe") for name, tensor in tensors.items()}
        prompts = [
            PromptSums(one["window"], one["unit"], one["rows"], whole[f"vector.{index}"], whole[f"gram.{index}"])
            for index, one in enumerate(header["prompts"])
        ]
        cells = {
            (cell["task"], cell["model"], cell["fold"]): OutcomeSums(
                prompts[cell["prompts"]], cell["total"], cell["squares"], whole[f"products.{index}"]
            )
            for index, cell in enumerate(header["cells"])
        }
        version = header.get("embedding_version", find_version(header["fingerprint"]))  # 0.1 wrote none
        sample = _restore_sample(header["sample"], whole) if "sample" in header else None  # earlier versions kept none
        return Outcomes(header["fingerprint"], cells, version, header["version"] > 1, sample)
    except (KeyError, ValueError, IndexError, TypeError, InputError) as error:
        raise ArtifactError(f"{path} is damaged: {error}. Copy it again from where it came from") from error


def describe_shrinkage(shrinkage: Shrinkage) -> dict[str, Any]:
    """In the place of a scorer."""
    length = {"length": shrinkage.length} if shrinkage.length else {}
    return {"name": "Shrinkage", "pull": _finite(shrinkage.pull), "strength": _finite(shrinkage.strength), **length}


def describe_expectation(expectation: Expectation, validation: Validation) -> dict[str, Any]:
    """The header's field `outcomes`, without what changes need."""
    slopes = expectation.slopes
    length = {"slopes": slopes.tolist(), "typical": expectation.typical_length} if slopes is not None else None
    return {
        "tasks": list(expectation.tasks),
        "means": expectation.means.tolist(),
        "unit": expectation.unit,
        **({"length": length} if length else {}),
        "tried": {
            "pull": [list(pair) for pair in validation.pulls],
            "strength": [[_finite(strength), error] for strength, error in validation.strengths],
            "length": [list(pair) for pair in validation.lengths],
        },
        **({"gain": vars(validation.gain)} if validation.gain else {}),
    }


def restore_expectation(
    described: Mapping[str, Any], scorer: Mapping[str, Any], models: int
) -> tuple[Expectation, Validation]:
    """What a router's header says of its outcomes and of its shrinkage, which stands in the place of a scorer."""
    if scorer["name"] != "Shrinkage":
        raise ValueError(f"a router from outcomes is fitted with Shrinkage, found {scorer['name']!r}")
    shrinkage = Shrinkage(_infinite(scorer["pull"]), _infinite(scorer["strength"]), scorer.get("length", 0.0))
    means = np.array(described["means"], np.float64)
    if means.shape != (len(described["tasks"]), models):
        raise ValueError(f"{len(described['tasks'])} tasks and {models} models, but means of {means.shape}")
    validation = Validation(
        tuple((pull, error) for pull, error in described["tried"]["pull"]),
        tuple((_infinite(strength), error) for strength, error in described["tried"]["strength"]),
        tuple((length, error) for length, error in described["tried"].get("length", ())),
        HeldOutGain(**described["gain"]) if "gain" in described else None,
    )
    length = described.get("length")
    slopes, typical = (np.array(length["slopes"], np.float64), float(length["typical"])) if length else (None, 0.0)
    unit = float(described["unit"])
    return Expectation(tuple(described["tasks"]), means, shrinkage, unit, slopes, typical), validation


def check_outcomes(outcomes: Outcomes, fingerprint: str, models: list[str], folder: Path) -> Outcomes:
    """Refuse sums that are not those of the router's models."""
    if outcomes.fingerprint != fingerprint:
        raise MismatchError(
            f"the outcomes in {folder} belong to embedding {outcomes.fingerprint[:12]}, not the router's"
        )
    if list(outcomes.models) != models:
        raise ArtifactError(f"{folder} is damaged: its outcomes are of {', '.join(outcomes.models)}. Copy it again")
    return outcomes


def _finite(rows: float) -> float | None:
    """JSON has no infinity."""
    return None if math.isinf(rows) else rows


def _infinite(described: float | None) -> float:
    return math.inf if described is None else described
