"""How hints name what is to be installed: from where this ir3de came, and never from an index by its name."""

import json
import os
import pickle
import re
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest

from ir3de import errors
from ir3de.errors import MissingExtraError
from surface import ROOT

# the name behind `pip install`, and not a requirement that says by `@` where it is to come from
FROM_AN_INDEX = re.compile(
    r"""pip3? install (?:-\S+ )*["'`]?ir3de(?:-lab|-gateway)?(?:\[[^]\s]*\])?["'`]?(?![\w/[-]|\.\w)(?! @)"""
)
KINDS = (".py", ".md", ".yaml", ".yml", ".html", ".ts", ".toml", ".cff", ".ipynb", "Dockerfile")


class Installed(Distribution):
    """A distribution with what pip wrote down about its origin."""

    def __init__(self, said: str | None) -> None:
        self.said = said

    def read_text(self, filename: str) -> str | None:
        return self.said if filename == "direct_url.json" else None

    def locate_file(self, path: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def origin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Make ir3de one that was installed, from there."""
    monkeypatch.setattr(errors, "find_checkout", lambda: None)

    def install(said: object) -> None:
        text = said if isinstance(said, str | None) else json.dumps(said)
        monkeypatch.setattr("importlib.metadata.distribution", lambda name: Installed(text))

    return install


def test_in_a_checkout_the_folder_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    assert errors.name_extra("gguf") == "pip install -e '.[gguf]'"
    assert errors.name_extra("hub", "ir3de-lab") == "pip install -e './lab[hub]'"
    assert errors.name_extra("", "ir3de-lab") == "pip install -e './lab'"
    assert errors.name_extra("local", "ir3de-gateway") == "pip install -e './gateway[local]'"
    monkeypatch.chdir(tmp_path)
    assert errors.name_extra("gguf") == f"pip install -e '{ROOT}[gguf]'"


def test_a_folder_that_is_gone_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert errors.name_extra("gguf") == f"pip install -e '{ROOT}[gguf]'"


def test_a_copy_from_a_folder_names_the_folder(origin: Any, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    origin({"url": folder.as_uri(), "dir_info": {}})
    assert errors.name_extra("gguf") == f"pip install '{folder}[gguf]'"


def test_another_distribution_is_named_by_its_folder_in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "find_checkout", lambda: None)
    origin = {"ir3de": {"url": ROOT.as_uri(), "dir_info": {}}}
    monkeypatch.setattr(errors, "_read_origin", lambda distribution: origin.get(distribution, {}))
    monkeypatch.chdir(ROOT)
    assert errors.name_extra("", "ir3de-gateway") == "pip install './gateway'"


def test_a_wheel_is_named_by_its_file(origin: Any, tmp_path: Path) -> None:
    wheel = tmp_path / "ir3de-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"")
    origin({"url": wheel.as_uri(), "archive_info": {}})
    assert errors.name_extra("gguf") == f"pip install 'ir3de[gguf] @ {wheel.as_uri()}'"


def test_addresses_and_repositories_are_named(origin: Any) -> None:
    origin({"url": "https://files.example/ir3de.whl", "archive_info": {}})
    assert errors.name_extra("zstd") == "pip install 'ir3de[zstd] @ https://files.example/ir3de.whl'"
    origin({"url": "https://git.example/ir3de", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}})
    assert errors.name_extra("zstd") == "pip install 'ir3de[zstd] @ git+https://git.example/ir3de@c0ffee'"


@pytest.mark.parametrize(
    "said",
    [
        None,
        "",
        "not JSON",
        "[]",
        '{"url": 3}',
        '{"url": "file:///no/such/folder/ir3de.whl", "archive_info": {}}',
        '{"url": "https://me:secret@files.example/ir3de.whl", "archive_info": {}}',
    ],
)
def test_else_it_is_said_in_words(origin: Any, said: str | None) -> None:
    origin(said)
    assert errors.name_extra("gguf") == ("install ir3de again with its extra 'gguf', from where you got this one")
    assert errors.name_extra("", "ir3de-lab") == "install ir3de-lab, from where you got ir3de"


def test_an_error_says_it_and_comes_back_from_other_processes() -> None:
    error = MissingExtraError("datasets", "hub", "Reading texts", "ir3de-lab")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(error).startswith("Reading texts needs the package 'datasets', which is not installed: pip install -e ")
    assert os.fspath(ROOT) not in str(error) or Path.cwd() != ROOT


def list_files() -> Iterator[Path]:
    for top in ("src", "gateway/src", "lab/src", "docs", "examples", "scripts", ".github"):
        yield from (path for path in (ROOT / top).rglob("*") if path.name.endswith(KINDS))
    yield from ROOT.glob("*.md")
    yield from (path for folder in ("gateway", "lab") for path in (ROOT / folder).glob("*.md"))


def test_nothing_sends_people_to_an_index_for_a_name_that_is_unclaimed() -> None:
    files = list(list_files())
    assert len(files) > 400 and {"README.md", "errors.py", "gateway.md"} <= {path.name for path in files}
    found = [f"{path}: {hit[0]}" for path in files for hit in FROM_AN_INDEX.finditer(path.read_text("utf-8"))]
    assert not found


@pytest.mark.parametrize(
    "said",
    [
        "pip install ir3de",
        "pip install 'ir3de[gguf]'",
        "pip install --upgrade ir3de",
        "`pip install ir3de-lab`",
        "do pip install ir3de.",
    ],
)
def test_the_sentence_would_be_found(said: str) -> None:
    assert FROM_AN_INDEX.search(said)


@pytest.mark.parametrize(
    "said",
    ["pip install .", "pip install 'ir3de[gguf] @ file:///ir3de.whl'", "pip install dist/ir3de-0.1.0.whl",
     "pip install ir3de-0.1.0-py3-none-any.whl", "pip install './lab[hub]'"],
)  # fmt: skip
def test_files_and_folders_may_be_named(said: str) -> None:
    assert not FROM_AN_INDEX.search(said)
