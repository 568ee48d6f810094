"""One domain's statistics in a file that is missing, cut, altered or foreign: one clear error."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tiny
from ir3de import collect
from ir3de.errors import ArtifactError, MismatchError, VersionError
from ir3de.files.tensors import from_safetensors, to_safetensors
from ir3de.statistics.files import load_statistics, save_statistics
from saved import first_router, part, refusal


@pytest.fixture
def statistics_file(tmp_path: Path) -> Path:
    counted = collect(tiny.mixed(5), embedding=tiny.embedding(), keep_sample=True)
    return save_statistics(counted, tmp_path / "law.safetensors")


def test_missing_statistics(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.safetensors", tmp_path):
        assert f"cannot read {path}" in refusal(load_statistics, path)


@pytest.mark.slow
def test_a_flipped_byte_of_statistics_is_found(statistics_file: Path) -> None:
    whole = statistics_file.read_bytes()
    expected = load_statistics(statistics_file)
    draw, refused = random.Random(0), 0
    places = [*range(700), *draw.sample(range(700, len(whole)), 150)]  # the header, and some of the numbers
    for place in places:
        statistics_file.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << draw.randrange(8)]) + whole[place + 1 :])
        try:
            loaded = load_statistics(statistics_file)  # e.g. a space, or the informative number of tokens
            assert (loaded, loaded.sample) == (expected, expected.sample)
        except ArtifactError as error:
            assert str(statistics_file) in str(error)
            refused += 1
    assert refused > 0.95 * len(places)


def test_cut_statistics(statistics_file: Path) -> None:
    whole = statistics_file.read_bytes()
    for cut in range(0, len(whole), 37):
        statistics_file.write_bytes(whole[:cut])
        message = refusal(load_statistics, statistics_file)
        assert "truncated or damaged" in message
        assert "copy it again" in message


def rewritten(path: Path, change: Callable[[dict, dict], object]) -> None:
    """Take a statistics file apart, change it, and put it together again."""
    tensors, header = from_safetensors(path.read_bytes(), path)
    tensors = {name: tensor.copy() for name, tensor in tensors.items()}
    change(tensors, header)
    path.write_bytes(to_safetensors(tensors, header))


def test_edited_statistics(statistics_file: Path) -> None:
    whole = statistics_file.read_bytes()

    def more_counts(tensors: dict, header: dict) -> None:
        tensors["counts"][0] += 1

    def another_gram(tensors: dict, header: dict) -> None:
        tensors["gram"][3] += 1

    def of_another_embedding(tensors: dict, header: dict) -> None:
        header["fingerprint"] = tiny.other_embedding().fingerprint

    def more_prompts(tensors: dict, header: dict) -> None:
        header["prompts"] += 1

    def another_pair(tensors: dict, header: dict) -> None:
        tensors["pairs.counts"][0] += 1

    def another_prompt(tensors: dict, header: dict) -> None:
        tensors["sample.ids"][0] += 1

    def another_hash(tensors: dict, header: dict) -> None:
        tensors["sample.hashes"][0] += 1

    changes = (
        more_counts,
        another_gram,
        of_another_embedding,
        more_prompts,
        another_pair,
        another_prompt,
        another_hash,
    )
    for change in changes:
        rewritten(statistics_file, change)
        assert "damaged or was edited" in refusal(load_statistics, statistics_file)
        statistics_file.write_bytes(whole)
    for key in ("fingerprint", "vocabulary", "prompts", "digest", "window", "unit", "windows", "sample"):
        rewritten(statistics_file, lambda tensors, header, key=key: header.pop(key))
        assert "is damaged" in refusal(load_statistics, statistics_file)
        statistics_file.write_bytes(whole)
    sample = ("sample.hashes", "sample.every", "sample.lengths", "sample.kept", "sample.ids")
    for key in ("tokens", "counts", "vector", "pairs.counts", *sample):
        rewritten(statistics_file, lambda tensors, header, key=key: tensors.pop(key))
        assert "is damaged" in refusal(load_statistics, statistics_file)
        statistics_file.write_bytes(whole)


def test_a_sample_that_was_forged_with_its_digest(statistics_file: Path) -> None:
    """Whoever edits the digest too: what cannot be is still refused, before anything is looked up with it."""
    whole, sample = statistics_file.read_bytes(), load_statistics(statistics_file).sample
    for key, change, message in [
        ("ids", lambda ids: ids.astype(np.uint32) + 400, "of a vocabulary of 330"),
        ("ids", lambda ids: ids[:-1], "does not fit"),
        ("kept", lambda kept: kept * 0, "does not fit"),
        ("every", lambda every: every * 0, "no more than the prompt has"),
    ]:

        def forge(tensors: dict, header: dict, key: str = key, change: Callable = change) -> None:
            tensors[f"sample.{key}"] = change(tensors[f"sample.{key}"])
            header["sample"] = sample.digest

        rewritten(statistics_file, forge)
        assert message in refusal(load_statistics, statistics_file)
        statistics_file.write_bytes(whole)


def test_statistics_of_a_newer_version_or_another_kind(statistics_file: Path, folder: Path) -> None:
    rewritten(statistics_file, lambda tensors, header: header.update(version=3))
    assert "install a newer ir3de" in refusal(load_statistics, statistics_file, kind=VersionError)
    assert "is not an ir3de.statistics file" in refusal(load_statistics, part(folder, "table"))
    assert "not a file that ir3de wrote" in refusal(load_statistics, folder / "router.json")


def test_loaded_statistics_of_another_embedding(tmp_path: Path) -> None:
    theirs = collect(["prove"], embedding=tiny.other_embedding())
    loaded = load_statistics(save_statistics(theirs, tmp_path / "theirs.safetensors"))
    message = refusal(first_router().add, "new", loaded, kind=MismatchError)
    assert theirs.fingerprint[:12] in message
