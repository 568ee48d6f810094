"""A contribution of few prompts is a small file: windows stand in it in the place of their Gram matrix."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tiny
from ir3de import Contribution, Router, Statistics, collect, files
from ir3de.errors import ArtifactError
from ir3de.files.tensors import from_safetensors, to_safetensors
from ir3de.statistics.files import encode_statistics
from laws import counted

FEW = tiny.embedding().width // 4  # windows
TEXTS = tiny.sentences("law", 6 * FEW)


def whole_file(statistics: Statistics, **header: object) -> bytes:
    """The file as earlier versions wrote it."""
    return encode_statistics(statistics, {"owner": "", "recipe": {}, "parts": [], **header})


def test_what_comes_back_has_the_same_bits_of_sums() -> None:
    for own in (counted(TEXTS[:FEW], keep_sample=True), counted(TEXTS[:FEW], keep_sample=True, subsample=2)):
        contribution = Contribution.of(own)
        found = contribution.statistics(thorough=True)
        assert found == own and found.digest == own.digest == contribution.digest
        assert found.sums is not None and own.sums is not None
        assert found.sums.find_compact("gram") is not None
        assert np.array_equal(found.sums.gram, own.sums.gram) and np.array_equal(found.sums.vector, own.sums.vector)
        assert found + own == own + own and found + own - own == own


def test_five_labels_take_a_few_tens_of_kilobytes() -> None:
    five = collect([f"Is this contract void in the year {year}?" for year in range(2020, 2025)], keep_sample=True)
    assert len(Contribution.of(five).content()) < 30_000 < 1_500_000 < len(whole_file(five))


def test_the_order_of_prompts_leaves_no_trace_in_the_file() -> None:
    one, other = (Contribution.of(counted(texts, keep_sample=True)) for texts in (TEXTS[:FEW], TEXTS[FEW - 1 :: -1]))
    parts = Contribution.of(counted(TEXTS[:2], keep_sample=True) + counted(TEXTS[2:FEW], keep_sample=True))
    assert one.sha256 == other.sha256 == parts.sha256


def test_windows_are_written_only_beside_the_prompts_themselves() -> None:
    for own in (counted(TEXTS[:FEW], keep_sample=False), counted(TEXTS, keep_sample=True)):
        content = Contribution.of(own).content()
        tensors, header = from_safetensors(content, Path("file"))
        assert "gram" in tensors and "windows.means" not in tensors and header["version"] == 1
    small = Contribution.of(counted(TEXTS[:FEW], keep_sample=True))
    assert "gram" in from_safetensors(small.without_sample().content(), Path("file"))[0]


def test_files_of_earlier_versions_give_the_same_router(tmp_path: Path) -> None:
    """Whether windows or their Gram matrix came from the file: table, receipt and what is left are the same."""
    own = counted(TEXTS[:FEW], keep_sample=True)
    old_file, new_file = tmp_path / "old.stats", tmp_path / "new.stats"
    old_file.write_bytes(whole_file(own, id="berlin"))
    Contribution.of(own, id="berlin").save(new_file)
    assert new_file.stat().st_size < old_file.stat().st_size
    routers = []
    for path in (old_file, new_file):
        router = Router.fit(tiny.domain_texts(), embedding=tiny.embedding())
        router.merge("law", Contribution.load(path))
        routers.append(Router.load(router.save(tmp_path / path.stem)))
    old, new = routers
    assert tiny.same_table(old, new) and tiny.same_samples(old, new)
    assert [one.given for one in old.contributions["law"]] == [one.given for one in new.contributions["law"]]
    for router in routers:
        router.remove("law", contribution="berlin")
    assert tiny.contents(old.save(tmp_path / "a")) == tiny.contents(new.save(tmp_path / "b"))


def change_means(tensors: dict, header: dict) -> None:
    tensors["windows.means"][0] += 1


def lose_a_mean(tensors: dict, header: dict) -> None:
    tensors["windows.means"] = tensors["windows.means"][1:]


def count_windows_often(tensors: dict, header: dict) -> None:
    tensors["windows.times"] = np.full(len(tensors["windows.times"]), 1 << 40)


def count_windows_never(tensors: dict, header: dict) -> None:
    tensors["windows.times"] = tensors["windows.times"] * 0


def enlarge_means(tensors: dict, header: dict) -> None:
    tensors["windows.means"] = np.full(len(tensors["windows.means"]), 1 << 30, np.int32)


def have_no_windows(tensors: dict, header: dict) -> None:
    tensors |= {"windows.means": np.zeros(0, np.int8), "windows.times": np.zeros(0, np.int8)}


def have_many_windows(tensors: dict, header: dict) -> None:
    tensors |= {"windows.times": np.ones(len(tensors["windows.means"]), np.int8)}


def have_no_times(tensors: dict, header: dict) -> None:
    del tensors["windows.times"]


@pytest.mark.parametrize(
    "change",
    [
        change_means, lose_a_mean, count_windows_often, count_windows_never, enlarge_means, have_no_windows,
        have_many_windows, have_no_times,
    ],
)  # fmt: skip
def test_damaged_windows_are_found(tmp_path: Path, change: Callable[[dict, dict], None]) -> None:
    path = Contribution.of(counted(TEXTS[:FEW], keep_sample=True)).save(tmp_path / "law.stats")
    tensors, header = from_safetensors(path.read_bytes(), path)
    tensors = {name: tensor.copy() for name, tensor in tensors.items()}
    change(tensors, header)
    header.pop("seal", None)
    path.write_bytes(to_safetensors(tensors, files.seal(header)))
    with pytest.raises(ArtifactError, match="is damaged"):
        Contribution.load(path)
