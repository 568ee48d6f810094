"""A release: one version everywhere, and each check of `make release` finds what it is there for."""

import io
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

import ir3de
import release
import release_builds as builds
import release_environments as environments
import release_smoke as smoke
from commands import run
from ir3de.files.package import VERSION
from refused import refusal
from surface import ROOT


def read_metadata(folder: Path) -> Any:
    return ProjectMetadata(str(folder), PluginManager())


# one version ----------------------------------------------------------------------------------------------------------


def test_the_version_is_the_same_everywhere() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", VERSION)
    assert ir3de.__version__ == VERSION and run("--version").stdout == f"ir3de {VERSION}\n"
    assert {read_metadata(ROOT / folder).version for folder in builds.FOLDERS.values()} == {VERSION}
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["version"] == VERSION
    production = ROOT / "examples" / "deploy" / "kubernetes" / "production" / "kustomization.yaml"
    assert [image["newTag"] for image in yaml.safe_load(production.read_text("utf-8"))["images"]] == [VERSION]


def test_the_gateway_says_the_version() -> None:
    from ir3de_gateway.config.document import Server
    from ir3de_gateway.http.service import build_document

    assert build_document(Server())["info"]["version"] == VERSION


def test_the_changelog_has_the_version_and_its_date() -> None:
    said = (ROOT / "CHANGELOG.md").read_text("utf-8")
    released = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["date-released"]
    assert re.findall(r"^## (.+)$", said, re.MULTILINE)[:2] == ["Unreleased", f"{VERSION} - {released}"]


def test_no_other_file_has_a_version_of_its_own() -> None:
    for path in (ROOT / folder / "pyproject.toml" for folder in builds.FOLDERS.values()):
        assert not re.search(r"^version\s*=", path.read_text("utf-8"), re.MULTILINE)


# the checks -----------------------------------------------------------------------------------------------------------


def write_sdist(path: Path, *names: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"ir3de-{VERSION}/{name}"), io.BytesIO())
    return path


def write_wheel(path: Path, *names: str, metadata: str = "") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
        archive.writestr(f"ir3de-{VERSION}.dist-info/METADATA", metadata)
    return path


@pytest.fixture
def built(tmp_path: Path) -> builds.Distribution:
    """A small distribution in which nothing is wrong."""
    sdist = write_sdist(tmp_path / f"ir3de-{VERSION}.tar.gz", "PKG-INFO", "src/ir3de/__init__.py")
    return builds.Distribution("ir3de", sdist, write_wheel(tmp_path / "ir3de.whl", "ir3de/__init__.py"))


SOURCES = ["src/ir3de/__init__.py", "tests/rows.parquet"]


def test_a_good_distribution_passes(built: builds.Distribution) -> None:
    builds.check_contents(built, SOURCES)


def test_what_nobody_committed_is_not_released(built: builds.Distribution) -> None:
    write_sdist(built.sdist, "src/ir3de/__init__.py", "shared/notes.txt")
    assert "shared/notes.txt, which is no source" in refusal(builds.ReleaseError, builds.check_contents, built, SOURCES)


def test_data_of_others_is_not_released(built: builds.Distribution) -> None:
    write_sdist(built.sdist, "tests/rows.parquet")
    assert "data and models of others" in refusal(builds.ReleaseError, builds.check_contents, built, SOURCES)


def test_a_wheel_has_its_package_only(built: builds.Distribution) -> None:
    write_wheel(built.wheel, "ir3de/__init__.py", "tests/test_a.py")
    assert "has tests besides ir3de" in refusal(builds.ReleaseError, builds.check_contents, built, SOURCES)


def test_growth_is_noticed(built: builds.Distribution, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(builds.MAX_BYTES, "ir3de.whl", 10)
    assert "more than 10" in refusal(builds.ReleaseError, builds.check_contents, built, SOURCES)
    environments.check_base(environments.Size(24, 190.0))
    for size in (environments.Size(25, 10.0), environments.Size(3, 190.5)):
        assert "more than 24 and 190" in refusal(builds.ReleaseError, environments.check_base, size)


def test_other_bytes_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").write_bytes(b"two")
    assert builds.compare(tmp_path / "a", tmp_path / "a") == builds.compare(tmp_path / "a", tmp_path / "a")
    assert "has other bytes" in refusal(builds.ReleaseError, builds.compare, tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ("Name: ir3de\nVersion: 9.9\n", "has the version 9.9"),
        (f"Name: ir3de\nVersion: {VERSION}\n", "has no Summary"),
    ],
)
def test_metadata_that_an_index_would_refuse_is_noticed(built: builds.Distribution, metadata: str, said: str) -> None:
    write_wheel(built.wheel, metadata=metadata)
    assert said in refusal(builds.ReleaseError, builds.check_metadata, built, VERSION)


def test_a_command_that_fails_is_said_with_what_it_printed(tmp_path: Path) -> None:
    class Here(environments.Environment):
        def find(self, program: str) -> str:
            return sys.executable

    here = Here(tmp_path, tmp_path)
    assert here.run("python", "-c", "print('seen')") == "seen\n"
    said = refusal(builds.ReleaseError, here.run, "python", "-c", "import sys; sys.exit('it broke')")
    assert "exits with 1, not 0" in said and "it broke" in said
    assert "it broke" in here.run("python", "-c", "import sys; sys.exit('it broke')", code=1)


def test_the_environments_see_nothing_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    assert "PYTHONPATH" not in environments.Environment(tmp_path, tmp_path).variables()


def test_every_extra_of_users_is_tried() -> None:
    extras = set(read_metadata(ROOT).core.optional_dependencies)
    assert extras - {*smoke.DEVELOPMENT} <= set(smoke.FEATURES), "say in release_smoke.py what the extra is for"
    assert {*smoke.HEAVY, *smoke.DEVELOPMENT} <= extras
    assert {"", *read_metadata(ROOT / "gateway").core.optional_dependencies} == set(smoke.GATEWAY_FEATURES)


def test_what_is_asked_for_is_built_and_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps in their order, with builds and environments that cost nothing."""
    sdist = write_sdist(tmp_path / f"ir3de-{VERSION}.tar.gz", "PKG-INFO")
    wheel = write_wheel(
        tmp_path / f"ir3de-{VERSION}-py3-none-any.whl", metadata="Provides-Extra: gguf\nProvides-Extra: torch\n"
    )
    monkeypatch.setattr(builds, "build", lambda name, *_: builds.Distribution(name, sdist, wheel))
    monkeypatch.setattr(release, "check_builds", lambda *_: iter([("built", "twice")]))
    monkeypatch.setattr(release, "try_environment", lambda name, *_: f"tried {name}")
    monkeypatch.setattr(release, "try_sdist", lambda *_: "tried it")

    def names(*only: str, everything: bool = False) -> list[str]:
        into, work = tmp_path / "dist", tmp_path / "work"
        return [row[0] for row in release.release(into, work, only=list(only), everything=everything)]

    gateway = ["gateway", *(f"gateway[{extra}]" for extra in ("local", "envoy", "redis", "litellm", "otel"))]
    assert names() == ["built", "base", "gguf", *gateway, "lab", "sdist"]
    assert names(everything=True) == ["built", "base", "gguf", "torch", *gateway, "lab", "sdist"]
    assert names("gguf") == ["built", "gguf"]


def test_the_script_says_what_it_does() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "release.py", "--help"], capture_output=True, text=True, check=True
    )
    assert "Nothing is uploaded" in done.stdout
