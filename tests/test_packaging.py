"""What users install: the library without the gateway and the laboratory, and all that it needs."""

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import release
import release_builds as builds
from ir3de import kernel
from surface import ROOT

pytestmark = pytest.mark.slow

ALONE = """
import sys
sys.modules["ir3de_lab"] = sys.modules["ir3de_gateway"] = None  # an import of either is an ImportError now
from ir3de import cli
cli.entry_points = lambda **_: ()
sys.argv = ["ir3de", "demo", "-q"]
cli.main()
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, builds.Distribution]:
    into, time_s = tmp_path_factory.mktemp("dist"), builds.read_commit_time_s()
    return {name: builds.build(name, ROOT, into, time_s) for name in builds.FOLDERS}


@pytest.fixture(scope="module")
def wheel(built: dict[str, builds.Distribution]) -> Path:
    return built["ir3de"].wheel


needs_compiler = pytest.mark.skipif(kernel.native is None, reason="needs a C compiler and Python's headers")


@pytest.mark.nightly
@needs_compiler
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git says which files are sources")
def test_a_build_elsewhere_and_one_from_the_sdist_have_the_same_bytes(
    built: dict[str, builds.Distribution], tmp_path: Path
) -> None:
    found = dict(release.check_builds(built, tmp_path))
    files = {path.name for one in built.values() for path in (one.sdist, one.wheel)}
    (native,) = found.keys() - {*builds.FOLDERS, *files}
    assert files <= found.keys() and built["ir3de"].wheel.name.endswith("-py3-none-any.whl")
    assert "the same 3 times" in found[built["ir3de"].wheel.name]
    assert "-cp311-abi3-" in native and "the same 3 times" in found[native]
    assert {"tests/test_packaging.py", "CITATION.cff", ".github/workflows/ci.yml"} <= {
        *builds.list_members(built["ir3de"].sdist)
    }


def test_the_wheel_has_the_library_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"ir3de"}
    expected = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "ir3de").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == expected
    for name in (
        "py.typed",
        "corpora/background.jsonl",
        "embedding/awkward_texts.json",
        "embedding/bundled/v1/matrix.safetensors",
        "embedding/bundled/v2/matrix.safetensors",
        "embedding/packaged_models.toml",
        "embedding/bundled/v3/matrix.safetensors",
    ):
        assert f"ir3de/{name}" in names


def test_the_sources_of_the_kernel_are_in_the_sdist_and_no_compiled_file(built: dict[str, builds.Distribution]) -> None:
    members, folder = builds.list_members(built["ir3de"].sdist), ROOT / "src" / "ir3de" / "kernel"
    found = {name.rpartition("/")[2] for name in members if name.startswith("src/ir3de/kernel/")}
    assert found == {path.name for path in folder.iterdir() if path.suffix in (".py", ".c", ".h")}
    names = zipfile.ZipFile(built["ir3de"].wheel).namelist()
    assert not [name for name in names if name.endswith((".c", ".h", ".so", ".pyd"))]


@pytest.mark.nightly
@needs_compiler
def test_the_wheel_of_a_platform_has_the_kernel_and_nothing_more(
    built: dict[str, builds.Distribution], tmp_path: Path
) -> None:
    made = builds.build_native(ROOT, tmp_path / "native", builds.read_commit_time_s())
    pure, native = (set(zipfile.ZipFile(path).namelist()) for path in (built["ir3de"].wheel, made))
    (library,) = native - pure
    assert pure <= native and library.startswith("ir3de/kernel/_native.")
    zipfile.ZipFile(made).extractall(tmp_path / "unpacked")
    assert print_engine(tmp_path / "unpacked") == "native"


def print_engine(folder: Path) -> str:
    script = "from ir3de import kernel; print(kernel.engine.name)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.nightly
def test_without_a_compiler_the_build_goes_on_and_numpy_computes(tmp_path: Path) -> None:
    """Where neither the compiler nor any other program is found."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist"],
        cwd=ROOT, env={**os.environ, "PATH": str(tmp_path), "CC": "no-such-compiler"}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert "built without its native kernel, so numpy computes" in done.stdout + done.stderr
    (made,) = (tmp_path / "dist").iterdir()
    assert made.name.endswith("-py3-none-any.whl")
    zipfile.ZipFile(made).extractall(tmp_path / "unpacked")
    assert print_engine(tmp_path / "unpacked") == "numpy"
    script = "import sys; from ir3de import cli; sys.argv = ['ir3de', 'doctor']; cli.main()"
    doctor = subprocess.run(
        [sys.executable, "-P", "-c", script], env={**os.environ, "PYTHONPATH": str(tmp_path / "unpacked")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert doctor.returncode == 0 and "numpy: the native kernel was not built" in " ".join(doctor.stdout.split())


def test_the_wheel_of_the_gateway_has_its_page_and_its_commands(built: dict[str, builds.Distribution]) -> None:
    archive = zipfile.ZipFile(built["ir3de-gateway"].wheel)
    names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"ir3de_gateway"}
    for name in ("py.typed", "http/page/index.html", "http/openapi.json", "config/template.yaml"):
        assert f"ir3de_gateway/{name}" in names
    (entries,) = (name for name in names if name.endswith("entry_points.txt"))
    assert {"serve =", "config =", "keys ="} <= {
        line[: line.find("=") + 1] for line in archive.read(entries).decode().splitlines()
    }


@pytest.mark.parametrize(
    ("folder", "others"), [("src", ("ir3de_lab", "ir3de_gateway")), ("gateway/src", ("ir3de_lab",))]
)
def test_no_import_looks_up(folder: str, others: tuple[str, ...]) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom | ast.Import):
                named = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                assert not any(str(name).startswith(others) for name in named), path


def test_the_wheel_runs_alone(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-P", "-c", ALONE],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
