"""The files of a domain's statistics, whose header holds a hash of the content, and of a router's outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de import files
from ir3de.embedding.readers import find_version
from ir3de.errors import ArtifactError, InputError, MismatchError
from ir3de.files.tensors import from_safetensors, map_tensors, to_safetensors
from ir3de.statistics.compact import WindowRows, freeze
from ir3de.statistics.domain import BUCKETS, MAX_COUNT, PromptSums, Statistics
from ir3de.statistics.outcomes import Outcomes, OutcomeSample, OutcomeSums, ScoredPrompt
from ir3de.statistics.sample import COLUMNS, Sample

KIND, VERSION = "ir3de.statistics", 2  # 2: few windows in the place of their Gram matrix
MAX_VOCABULARY_TOKENS = 1 << 24
MAX_MEAN, MAX_WINDOWS = 1 << 19, 1 << 23  # of windows that are written one by one: their products fit 64 bits
HIGH, LOW = ".high", 0xFFFF_FFFF


def save_statistics(statistics: Statistics, path: str | Path) -> Path:
    """Write one domain's statistics to a file."""
    path = Path(path).expanduser()
    files.make_folder(path.parent)
    files.write(path, encode_statistics(statistics))
    return path


def load_statistics(path: str | Path) -> Statistics:
    """Read statistics that `save_statistics` wrote. Their digest reveals any damage."""
    path = Path(path).expanduser()
    return read_statistics(files.read(path), path)[0]


def encode_statistics(
    statistics: Statistics, more: Mapping[str, Any] | None = None, *, with_windows: bool = False
) -> bytes:
    """The file as bytes: sparse counts, tensors in the smallest integers that hold them. `more` joins the header.

    `with_windows` writes few windows in the place of their Gram matrix, which is a hundred times as large. The file of
    equal statistics differs then if one of them has forgotten its windows, as after a subtraction. Windows reveal more
    than their sums, so they are written only beside the prompts themselves.
    """
    tokens = np.flatnonzero(statistics.histogram)
    tensors = {"tokens": shrink_integers(tokens), "counts": shrink_integers(statistics.histogram[tokens])}
    header: dict[str, Any] = {
        "kind": KIND,
        "version": 1,
        "fingerprint": statistics.fingerprint,
        "vocabulary": statistics.histogram.size,
        "prompts": statistics.prompts,
        "tokens": statistics.tokens,
        "digest": statistics.digest,
    }
    if (version := statistics.embedding_version) is not None:
        header["embedding_version"] = version
    if (sums := statistics.sums) is not None:
        rows = sums.find_compact("gram") if with_windows and statistics.sample is not None else None
        if rows is not None and 0 < sums.windows <= MAX_WINDOWS:
            header["version"] = VERSION
            tensors |= _encode_windows(rows)
        else:
            tensors |= {"vector": shrink_integers(sums.vector), "gram": shrink_integers(sums.gram)}
        if (pairs := sums.pairs) is not None and 2 * np.count_nonzero(pairs) > len(pairs):
            tensors["pairs"] = shrink_integers(pairs)
        elif pairs is not None:  # most buckets are empty
            buckets = np.flatnonzero(pairs)
            tensors |= {"pairs.buckets": buckets.astype(np.uint16), "pairs.counts": shrink_integers(pairs[buckets])}
        header |= {"window": sums.window, "unit": sums.unit, "windows": sums.windows}
    if (sample := statistics.sample) is not None:
        header |= {"sample": sample.digest_without_sources, "kept": len(sample)}
        has_sources = bool(sample.sources.any())
        if has_sources:  # under a name that earlier versions do not look for: they read the sample without its sources
            header["sample_with_sources"] = sample.digest
        columns = COLUMNS if has_sources else COLUMNS[:-1]
        tensors |= {f"sample.{name}": shrink_integers(getattr(sample, name)) for name in columns}
    return to_safetensors(_split_halves(tensors), files.seal({**header, **(more or {})}))


def _encode_windows(rows: WindowRows) -> dict[str, npt.NDArray[Any]]:
    """The windows in an order of their own, whatever the order of the prompts was."""
    order = np.lexsort((rows.times, *rows.means.T[::-1]))
    return {
        "windows.means": shrink_integers(rows.means[order].ravel()),
        "windows.times": shrink_integers(rows.times[order]),
    }


def _decode_sums(tensors: Mapping[str, npt.NDArray[Any]], header: files.Header) -> PromptSums | None:
    if "gram" not in tensors and "windows.means" not in tensors:
        return None
    described = header["window"], header["unit"], header["windows"]
    if "gram" in tensors:
        vector, gram = (freeze(tensors[name].astype(np.int64)) for name in ("vector", "gram"))
        return PromptSums(*described, vector, gram, _decode_pairs(tensors))
    times = tensors["windows.times"].astype(np.int64)
    means = tensors["windows.means"].astype(np.int64).reshape(len(times), -1)
    if np.abs(means).max(initial=0) > MAX_MEAN or not WindowRows.fits(*means.shape):
        raise ValueError("its windows are beyond what is counted")
    if min(times, default=0) < 1 or max(times) > MAX_WINDOWS or times.sum() != header["windows"]:
        raise ValueError(f"its header has {header['windows']!r:.40} windows, and it holds others")
    rows: Any = WindowRows(means.astype(np.int32), times)
    return PromptSums(*described, freeze(times @ means), rows, _decode_pairs(tensors))


def _split_halves(tensors: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Split 64-bit integers into their lower 32 bits and, under `NAME.high`, the rest, which seldom needs over 16."""
    found: dict[str, npt.NDArray[Any]] = {}
    for name, values in tensors.items():
        if values.dtype == np.int64:
            found |= {name: (values & LOW).astype(np.uint32), f"{name}{HIGH}": shrink_integers(values >> 32)}
        else:
            found[name] = values
    return found


def _join_halves(tensors: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Put together the integers that `_split_halves` split."""
    found = {name: values for name, values in tensors.items() if not name.endswith(HIGH)}
    for name, values in tensors.items():
        if name.endswith(HIGH):
            low, high = found[name.removesuffix(HIGH)], values.astype(np.int64)
            if (low.astype(np.int64) >> 32).any() or (np.abs(high) >> 31).any():
                raise ValueError(f"the halves of '{name.removesuffix(HIGH)}' do not fit together")
            found[name.removesuffix(HIGH)] = (high << 32) + low
    return found


def _decode_pairs(tensors: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64] | None:
    if "pairs" in tensors:
        return tensors["pairs"].astype(np.int64)
    if "pairs.buckets" not in tensors:
        return None
    pairs = np.zeros(BUCKETS, np.int64)
    pairs[tensors["pairs.buckets"].astype(np.int64)] = tensors["pairs.counts"]
    return pairs


def _decode_sample(tensors: Mapping[str, npt.NDArray[Any]], vocabulary: int) -> Sample:
    names = {"hashes": np.uint32, "every": np.int64, "lengths": np.int64, "kept": np.int64, "ids": np.uint32}
    columns = {name: tensors[f"sample.{name}"].astype(kind) for name, kind in names.items()}
    sources = tensors.get("sample.sources", np.zeros(len(columns["hashes"]))).astype(np.uint32)
    sample = Sample(**columns, sources=sources)
    if sample.ids.max(initial=0) >= vocabulary:
        raise ValueError(f"its sample holds token {sample.ids.max()} of a vocabulary of {vocabulary}")
    return sample


def _check_numbers(header: files.Header) -> None:
    """Raise an error for numbers that no collection writes."""
    if not isinstance(header["fingerprint"], str):
        raise ValueError(f"its fingerprint is {header['fingerprint']!r:.40}")
    for name in ("prompts", "tokens", "vocabulary", "window", "windows", "kept", "embedding_version"):
        value = header.get(name, 0)
        if type(value) is not int or not 0 <= value <= MAX_COUNT:
            raise ValueError(f"'{name}' is {value!r:.40}, which is not a count")
    if "unit" in header and not (isinstance(header["unit"], float) and 0 < header["unit"] < np.inf):
        raise ValueError(f"its unit is {header['unit']!r:.40}")


def read_sample(path: Path, digest: str) -> Sample:
    """Read only the sample of a file, so that a thousand files take no time."""
    tensors, header = map_tensors(path)
    try:  # copies: a view would keep the file open
        found = {name: tensor.copy() for name, tensor in tensors.items() if name.startswith("sample.")}
        sample = _decode_sample(_join_halves(found), MAX_VOCABULARY_TOKENS)
    except (KeyError, ValueError) as error:
        raise ArtifactError(f"{path} is damaged: {error}. Copy it again from where it came from") from error
    _check_sample(sample, {**header, "sample": digest}, path)
    return sample


def read_statistics(content: bytes, path: Path, *, known: bool = False) -> tuple[Statistics, files.Header]:
    """Read the statistics and the header in a file's bytes. `known` content was checked before, and is not hashed."""
    tensors, header = from_safetensors(content, path)
    files.check_kind(header, KIND, VERSION, path)
    files.check_seal(header, path)
    try:
        if any(not np.issubdtype(tensor.dtype, np.integer) for tensor in tensors.values()):
            raise ValueError("it holds numbers that are not whole")
        if any(tensor.dtype == np.uint64 for tensor in tensors.values()):
            raise ValueError("it holds numbers beyond 2⁶³")
        if any(tensor.ndim != 1 for tensor in tensors.values()):
            raise ValueError("it holds tensors of several dimensions")
        if not 0 < header["vocabulary"] <= MAX_VOCABULARY_TOKENS:
            raise ValueError(f"its vocabulary has {header['vocabulary']:,} tokens")
        tensors = _join_halves(tensors)
        histogram = np.zeros(header["vocabulary"], np.int64)
        histogram[tensors["tokens"].astype(np.int64)] = tensors["counts"]
        freeze(histogram)
        sums = _decode_sums(tensors, header)
        if ("sample" in header) != ("sample.ids" in tensors):
            raise ValueError("its header and its sample of prompts do not belong together")
        sample = _decode_sample(tensors, len(histogram)) if "sample" in header else None
        version = header.get("embedding_version", find_version(header["fingerprint"]))  # 0.1 wrote none
        statistics = Statistics(header["fingerprint"], header["prompts"], histogram, sums, sample, version)
        _check_numbers(header)
        header["fingerprint"].encode()  # a text that JSON can hold, but UTF-8 cannot, has no digest
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise ArtifactError(f"{path} is damaged: {error}. Copy it again from where it came from") from error
    if not known:
        _check_digest(statistics.digest, header.get("digest"), path)
        if statistics.sample is not None:
            _check_sample(statistics.sample, header, path)
        _check_header(statistics, header, path)
    return statistics, header


def _check_digest(digest: str, recorded: object, path: Path) -> None:
    if digest != recorded:
        hashes = f"its content hashes to {digest[:16]}…, its header has {str(recorded)[:16]}…"
        raise ArtifactError(f"{path} is damaged or was edited: {hashes}. Copy it again from where it came from")


def _check_sample(sample: Sample, header: Mapping[str, Any], path: Path) -> None:
    _check_digest(sample.digest_without_sources, header["sample"], path)
    _check_digest(sample.digest, header.get("sample_with_sources", header["sample"]), path)


def _check_header(statistics: Statistics, header: files.Header, path: Path) -> None:
    """Raise an error for a header or a sample that does not fit the numbers."""
    sample, counts, wrong = statistics.sample, statistics.histogram, ""
    kept = 0 if sample is None else len(sample)
    if (header.get("tokens", statistics.tokens), header.get("kept", kept)) != (statistics.tokens, kept):
        wrong = f"it holds {statistics.tokens:,} tokens and a sample of {kept:,}, and its header differs"
    elif sample is not None and (
        (np.bincount(sample.ids, minlength=counts.size) > counts).any()
        or sample.lengths.astype(np.float64).sum() > statistics.tokens
    ):
        wrong = "its sample holds prompts that were not counted"
    if wrong:
        raise ArtifactError(f"{path} is damaged or was edited: {wrong}. Copy it again from where it came from")


def shrink_integers(values: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.integer[Any]]:
    """The same integers in the smallest type that holds them all."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    types = (np.uint8, np.uint16, np.uint32) if low >= 0 else (np.int8, np.int16, np.int32)
    fitting = (kind for kind in types if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
    return values.astype(next(fitting, np.int64))


OUTCOMES_KIND, OUTCOMES_VERSION = "ir3de.outcomes", 2  # 2: with the column of lengths


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
        "kind": OUTCOMES_KIND,
        "version": OUTCOMES_VERSION if outcomes.has_length else 1,
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
    prompts = {key: ScoredPrompt(*one) for key, *one in zip(keys, folds, vectors, strict=True)}
    scores = {
        model: {keys[place]: (count, total) for place, count, total in tensors[f"sample.scores.{index}"].tolist()}
        for index, model in enumerate(described["models"])
    }
    return OutcomeSample(prompts, scores)


def outcomes_from(content: bytes, path: Path) -> Outcomes:
    """The outcomes in a file's bytes."""
    tensors, header = from_safetensors(content, path)
    files.check_kind(header, OUTCOMES_KIND, OUTCOMES_VERSION, path)
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


def check_outcomes(outcomes: Outcomes, fingerprint: str, models: list[str], folder: Path) -> Outcomes:
    """Raise an error for sums that are not those of the router's models."""
    if outcomes.fingerprint != fingerprint:
        raise MismatchError(
            f"the outcomes in {folder} belong to embedding {outcomes.fingerprint[:12]}, not the router's"
        )
    if list(outcomes.models) != models:
        raise ArtifactError(f"{folder} is damaged: its outcomes are of {', '.join(outcomes.models)}. Copy it again")
    return outcomes
