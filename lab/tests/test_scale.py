"""What `ir3de bench scale` measures is what it says, in small."""

import json
from collections import Counter
from pathlib import Path

import pytest

import tiny
from ir3de.corpora import examples as demo
from ir3de.corpora import read_texts
from ir3de.errors import IR3DEError
from ir3de.statistics import collect
from ir3de_lab.benchmarks.engine_memory import peaks
from ir3de_lab.benchmarks.owners import Trial, owners
from ir3de_lab.benchmarks.scale import USUAL, Size, counting, write_corpus

pytestmark = pytest.mark.slow

TEXTS = [text for prompts in demo.prompts().values() for text in prompts]
SIZE = Size(gigabytes=0.0005, rounds=1, files=4, ray=False)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_corpus(TEXTS, tmp_path_factory.mktemp("corpus"), SIZE)


def test_a_corpus_has_its_size_and_its_repetitions_differ(corpus: list[Path]) -> None:
    sizes = [path.stat().st_size for path in corpus]
    assert len(sizes) == SIZE.files and all(125_000 <= size < 130_000 for size in sizes)
    texts = [json.loads(line)["text"] for path in corpus for line in path.read_text("utf-8").splitlines()]
    first, second = texts[: len(TEXTS)], texts[len(TEXTS) : 2 * len(TEXTS)]
    assert sorted(first) == sorted(TEXTS)
    words = [Counter(word for text in part for word in text.split()) for part in (first, second)]
    assert words[0] == words[1] and len(set(first) & set(second)) < len(TEXTS) / 4


@pytest.mark.nightly
def test_counting_is_timed_on_what_it_says_and_finds_what_collect_finds(corpus: list[Path]) -> None:
    scaling, file, longer = counting(corpus, SIZE, tiny.embedding(), {"usual": USUAL})
    one, two = scaling.raw["one"], scaling.raw["two"]
    assert one["megabytes"] == pytest.approx(two["megabytes"] / 2, rel=0.1)
    assert two["megabytes"] == sum(path.stat().st_size for path in corpus) / 1e6
    assert scaling.value == pytest.approx(two["mb_per_s"][0] / (2 * one["mb_per_s"][0]))
    assert one["start_up_s"][0] > 0 < two["start_up_s"][0]
    assert file.raw["digest"] == collect(read_texts(corpus), subsample=16, embedding=tiny.embedding()).digest
    assert file.value <= longer.value


@pytest.mark.nightly
def test_memory_is_told_of_a_process_that_counts_all_of_it(corpus: list[Path]) -> None:
    found = peaks(corpus, workers=2, subsample=16, shard_bytes=SIZE.shard_bytes)
    assert found["digest"] == collect(read_texts(corpus), subsample=16).digest
    assert found["driver_mb"] > 10


@pytest.mark.nightly
def test_contributions_are_merged_and_removed_to_the_last_bit() -> None:
    figures = owners(TEXTS, 4, embedding=tiny.embedding())
    assert [figure.bar for figure in figures] == [10.0, None, None, 2.0, None, None, 10.0, None, 2.0, None, None]
    assert [figure.raw["calibrated"] for figure in figures] == [False] * 6 + [True] * 5
    assert all(len(figure.raw["removed"]) == 2 and figure.value > 0 for figure in figures)


@pytest.mark.nightly
def test_a_removal_that_left_something_would_be_seen(tmp_path: Path) -> None:
    trial = Trial(tmp_path, tiny.embedding(), keep_sample=True)
    paths = trial.write(TEXTS, 3)
    trial.merged(paths).save(trial.router)
    trial.remove(paths[0].stem)
    trial.check(paths[1:])
    with pytest.raises(IR3DEError, match="bits differ"):
        trial.check(paths[2:])
