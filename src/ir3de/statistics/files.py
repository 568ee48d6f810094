"""One domain's statistics in one small file, which knows its own hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.embedding.defaults import find_version
from ir3de.errors import ArtifactError
from ir3de.statistics.domain import MAX_COUNT, Statistics
from ir3de.statistics.integers import freeze
from ir3de.statistics.pairs import BUCKETS
from ir3de.statistics.prompt_sums import PromptSums
from ir3de.statistics.sample import Sample
from ir3de.storage import files

KIND, VERSION = "ir3de.statistics", 1
LARGEST_VOCABULARY = 1 << 24
HIGH, LOW = ".high", 0xFFFF_FFFF


def save_statistics(statistics: Statistics, path: str | Path) -> Path:
    """Write one domain's statistics to a file."""
    path = Path(path).expanduser()
    files.make_folder(path.parent)
    files.write(path, statistics_bytes(statistics))
    return path


def load_statistics(path: str | Path) -> Statistics:
    """Read statistics that `save_statistics` wrote; damage of any kind is found by their digest."""
    path = Path(path).expanduser()
    return statistics_from(files.read(path), path)


def statistics_bytes(statistics: Statistics, more: Mapping[str, Any] | None = None) -> bytes:
    """The file's bytes: sparse counts, each tensor in the smallest integers that hold it; `more` is for the header."""
    tokens = np.flatnonzero(statistics.histogram)
    tensors = {"tokens": smallest(tokens), "counts": smallest(statistics.histogram[tokens])}
    header: dict[str, Any] = {
        "kind": KIND,
        "version": VERSION,
        "fingerprint": statistics.fingerprint,
        "vocabulary": statistics.histogram.size,
        "prompts": statistics.prompts,
        "tokens": statistics.tokens,
        "digest": statistics.digest,
    }
    if (version := statistics.embedding_version) is not None:
        header["embedding_version"] = version
    if (sums := statistics.sums) is not None:
        tensors |= {"vector": smallest(sums.vector), "gram": smallest(sums.gram)}
        if sums.pairs is not None:
            tensors |= _pairs(sums.pairs)
        header |= {"window": sums.window, "unit": sums.unit, "windows": sums.windows}
    if (sample := statistics.sample) is not None:
        header |= {"sample": sample.digest, "kept": len(sample)}
        tensors |= {f"sample.{field.name}": smallest(getattr(sample, field.name)) for field in fields(sample)}
    return files.to_safetensors(_halved(tensors), files.sealed({**header, **(more or {})}))


def _halved(tensors: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """What takes 64 bits as its lower 32 and, under `NAME.high`, the rest, which seldom takes more than 16."""
    found: dict[str, npt.NDArray[Any]] = {}
    for name, values in tensors.items():
        if values.dtype == np.int64:
            found |= {name: (values & LOW).astype(np.uint32), f"{name}{HIGH}": smallest(values >> 32)}
        else:
            found[name] = values
    return found


def _whole(tensors: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """The integers that were halved, put together."""
    found = {name: values for name, values in tensors.items() if not name.endswith(HIGH)}
    for name, values in tensors.items():
        if name.endswith(HIGH):
            low, high = found[name.removesuffix(HIGH)], values.astype(np.int64)
            if (low.astype(np.int64) >> 32).any() or (np.abs(high) >> 31).any():
                raise ValueError(f"the halves of '{name.removesuffix(HIGH)}' do not fit together")
            found[name.removesuffix(HIGH)] = (high << 32) + low
    return found


def _header(header: files.Header, path: Path) -> files.Header:
    files.check_kind(header, KIND, VERSION, path)
    files.check_seal(header, path)
    return header


def _pairs(pairs: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
    """The counts of pairs, as buckets and counts where most buckets are empty."""
    buckets = np.flatnonzero(pairs)
    if 2 * len(buckets) > len(pairs):
        return {"pairs": smallest(pairs)}
    return {"pairs.buckets": buckets.astype(np.uint16), "pairs.counts": smallest(pairs[buckets])}


def _pairs_from(tensors: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int64] | None:
    if "pairs" in tensors:
        return tensors["pairs"].astype(np.int64)
    if "pairs.buckets" not in tensors:
        return None
    pairs = np.zeros(BUCKETS, np.int64)
    pairs[tensors["pairs.buckets"].astype(np.int64)] = tensors["pairs.counts"]
    return pairs


def _sample_from(tensors: Mapping[str, npt.NDArray[Any]], vocabulary: int) -> Sample:
    names = {"hashes": np.uint32, "every": np.int64, "lengths": np.int64, "kept": np.int64, "ids": np.uint32}
    sample = Sample(**{name: tensors[f"sample.{name}"].astype(kind) for name, kind in names.items()})
    if sample.ids.max(initial=0) >= vocabulary:
        raise ValueError(f"its sample holds token {sample.ids.max()} of a vocabulary of {vocabulary}")
    return sample


def _check_numbers(header: files.Header) -> None:
    """Refuse what no collection writes."""
    if not isinstance(header["fingerprint"], str):
        raise ValueError(f"a fingerprint of {header['fingerprint']!r:.40}")
    for name in ("prompts", "tokens", "vocabulary", "window", "windows", "kept", "embedding_version"):
        value = header.get(name, 0)
        if type(value) is not int or not 0 <= value <= MAX_COUNT:
            raise ValueError(f"'{name}' is {value!r:.40}, and no count")
    if "unit" in header and not (isinstance(header["unit"], float) and 0 < header["unit"] < np.inf):
        raise ValueError(f"a unit of {header['unit']!r:.40}")


def read_sample(path: Path, digest: str) -> Sample:
    """The sample of prompts alone: nothing else of the file is read, so a thousand of them take no time."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            names = [name for name in file.keys() if name.startswith("sample.")]  # noqa: SIM118 - no dictionary
            sample = _sample_from(_whole({name: file.get_tensor(name) for name in names}), LARGEST_VOCABULARY)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise ArtifactError(f"{path} is missing or damaged: {error}. Copy it again from where it came from") from error
    _check(sample.digest, digest, path)
    return sample


def statistics_from(content: bytes, path: Path) -> Statistics:
    """The statistics in a file's bytes; `path` is for the messages."""
    return read_statistics(content, path)[0]


def read_statistics(content: bytes, path: Path, *, known: bool = False) -> tuple[Statistics, files.Header]:
    """The statistics in a file's bytes, and its header; what is `known` was checked before and is not hashed again."""
    tensors, header = files.from_safetensors(content, path)
    _header(header, path)
    try:
        if any(not np.issubdtype(tensor.dtype, np.integer) for tensor in tensors.values()):
            raise ValueError("it holds numbers that are not whole")
        if any(tensor.dtype == np.uint64 for tensor in tensors.values()):
            raise ValueError("it holds numbers beyond 2⁶³: they overflowed, or are none of ours")
        if any(tensor.ndim != 1 for tensor in tensors.values()):
            raise ValueError("it holds numbers that are in no row")
        if not 0 < header["vocabulary"] <= LARGEST_VOCABULARY:
            raise ValueError(f"a vocabulary of {header['vocabulary']:,} tokens")
        tensors = _whole(tensors)
        histogram = np.zeros(header["vocabulary"], np.int64)
        histogram[tensors["tokens"].astype(np.int64)] = tensors["counts"]
        freeze(histogram)
        sums = None
        if "gram" in tensors:
            vector, gram = (freeze(tensors[name].astype(np.int64)) for name in ("vector", "gram"))
            pairs = _pairs_from(tensors)
            sums = PromptSums(header["window"], header["unit"], header["windows"], vector, gram, pairs)
        if ("sample" in header) != ("sample.ids" in tensors):
            raise ValueError("its header and its sample of prompts do not belong together")
        sample = _sample_from(tensors, len(histogram)) if "sample" in header else None
        version = header.get("embedding_version", find_version(header["fingerprint"]))  # 0.1 wrote none
        statistics = Statistics(header["fingerprint"], header["prompts"], histogram, sums, sample, version)
        _check_numbers(header)
    except (KeyError, ValueError, IndexError, TypeError) as error:
        raise ArtifactError(f"{path} is damaged: {error}. Copy it again from where it came from") from error
    if not known:
        _check(statistics.digest, header.get("digest"), path)
        if statistics.sample is not None:
            _check(statistics.sample.digest, header["sample"], path)
        _check_told(statistics, header, path)
    return statistics, header


def _check(digest: str, recorded: object, path: Path) -> None:
    if digest != recorded:
        raise ArtifactError(
            f"{path} is damaged or was edited: its content hashes to {digest[:16]}…, its header says "
            f"{str(recorded)[:16]}…. Copy it again from where it came from"
        )


def _check_told(statistics: Statistics, header: files.Header, path: Path) -> None:
    """Refuse a header, or a sample, that is not of these numbers."""
    sample, counts, wrong = statistics.sample, statistics.histogram, ""
    kept = 0 if sample is None else len(sample)
    if (header.get("tokens", statistics.tokens), header.get("kept", kept)) != (statistics.tokens, kept):
        wrong = f"it holds {statistics.tokens:,} tokens and a sample of {kept:,}, and says otherwise"
    elif sample is not None and (
        (np.bincount(sample.ids, minlength=counts.size) > counts).any()
        or sample.lengths.astype(np.float64).sum() > statistics.tokens
    ):
        wrong = "its sample holds prompts that were not counted"
    if wrong:
        raise ArtifactError(f"{path} is damaged or was edited: {wrong}. Copy it again from where it came from")


def smallest(values: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.integer[Any]]:
    """The same integers in the smallest type that holds them all."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    types = (np.uint8, np.uint16, np.uint32) if low >= 0 else (np.int8, np.int16, np.int32)
    fitting = (kind for kind in types if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
    return values.astype(next(fitting, np.int64))
