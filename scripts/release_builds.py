"""The three distributions, built so that everybody gets the same bytes; and what may be in them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"ir3de": Path(), "ir3de-gateway": Path("gateway"), "ir3de-lab": Path("lab")}
MAX_BYTES = {  # what the bundled embeddings and the raw results take, and a little more: growth is to be noticed
    "ir3de.whl": 29_000_000,
    "ir3de.tar.gz": 60_000_000,  # with the raw results, which its tests read
    "ir3de-gateway.whl": 700_000,
    "ir3de-gateway.tar.gz": 1_500_000,  # with its tests
    "ir3de-lab.whl": 600_000,
    "ir3de-lab.tar.gz": 600_000,
}
DATA_OF_OTHERS = (".parquet", ".csv", ".tsv", ".arrow", ".gguf", ".onnx", ".pt", ".zst")
NO_CLOCK_S = 1_580_601_600  # hatchling's own time for files, where no commit says one


class ReleaseError(Exception):
    """What keeps this from being released."""


@dataclass(frozen=True)
class Distribution:
    """The two files of a distribution."""

    name: str
    sdist: Path
    wheel: Path


def read_commit_time_s(root: Path = ROOT) -> int:
    """The time that the files of a build get: that of the last commit."""
    done = subprocess.run(["git", "-C", root, "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip() else NO_CLOCK_S


def build(name: str, root: Path, into: Path, time_s: int) -> Distribution:
    """Build a distribution from the sources below `root`; its wheel is the one for every platform."""
    for target in ("sdist", "wheel"):
        build_target(target, root / FOLDERS[name], into, time_s)
    stem = name.replace("-", "_")
    return Distribution(name, _only(into.glob(f"{stem}-*.tar.gz")), _only(into.glob(f"{stem}-*.whl")))


def build_native(root: Path, into: Path, time_s: int) -> Path:
    """The wheel of the library for this platform, with the native kernel; an error if it cannot be compiled here.

    .github/workflows/release.yml builds those that are released, with cibuildwheel: their names tell on which systems
    they run, which that of a wheel from any one machine does not.
    """
    build_target("wheel", root, into, time_s, pure=False)
    wheel = _only(into.glob("ir3de-*.whl"))
    if "-cp311-abi3-" not in wheel.name:
        raise ReleaseError(f"{wheel.name} has no native kernel: a C compiler and Python's headers are needed")
    return wheel


def build_target(target: str, folder: Path, into: Path, time_s: int, *, pure: bool = True) -> None:
    """Build an sdist or a wheel with hatchling, in this environment; `pure` wheels have no native kernel."""
    into.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", into.resolve()],
        cwd=folder,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(time_s), "IR3DE_PURE": "1" if pure else "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ReleaseError(f"{target} of {folder} cannot be built:\n{done.stdout}{done.stderr}")


def copy_sources(into: Path, root: Path = ROOT) -> Path:
    """Another folder with the same sources, as another machine would have them: new times, other permissions."""
    for name in list_sources(root):
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, path)
        path.chmod(0o700 if os.access(root / name, os.X_OK) else 0o600)  # git keeps whether a file can be run
    return into


def list_sources(root: Path = ROOT) -> list[str]:
    """The files that git knows or would take."""
    done = subprocess.run(
        ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in done.stdout.split("\0") if name and (root / name).is_file()]


def compare(first: Path, second: Path) -> str:
    """The SHA-256 that both files have; an error if they differ."""
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (first, second)]
    if digests[0] != digests[1]:
        raise ReleaseError(f"{first.name} has other bytes when it is built again: see {first} and {second}")
    return digests[0]


def unpack(sdist: Path, into: Path) -> Path:
    """The folder with the content of an sdist."""
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(into)  # the archive was built here
    return _only(path for path in into.iterdir() if path.is_dir())


def check_contents(built: Distribution, sources: list[str]) -> None:
    """Refuse files that are too large, that nobody committed, that are data of others, or of another package."""
    for path, kind in ((built.wheel, "whl"), (built.sdist, "tar.gz")):
        size, limit = path.stat().st_size, MAX_BYTES[f"{built.name}.{kind}"]
        if size > limit:
            raise ReleaseError(f"{path.name} has {size:,} bytes, more than {limit:,}: what has been added?")
    package = built.name.replace("-", "_")
    with zipfile.ZipFile(built.wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    if others := sorted(top for top in tops if top != package and not top.endswith(".dist-info")):
        raise ReleaseError(f"{built.wheel.name} has {', '.join(others)} besides {package}")
    for name in list_members(built.sdist):
        whole = (FOLDERS[built.name] / name).as_posix()
        if name != "PKG-INFO" and whole not in sources and name not in sources:
            raise ReleaseError(f"{built.sdist.name} has {name}, which is no source of this repository")
        if PurePosixPath(name).suffix in DATA_OF_OTHERS:
            raise ReleaseError(f"{built.sdist.name} has {name}: data and models of others are not released here")


def list_members(sdist: Path) -> list[str]:
    """The files of an sdist, without the folder that all of them are in."""
    with tarfile.open(sdist) as archive:
        return [member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()]


def read_metadata(wheel: Path) -> dict[str, list[str]]:
    """The fields of a wheel's METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        message = Parser().parsestr(archive.read(name).decode())
    fields: dict[str, list[str]] = {}
    for key, value in message.items():
        fields.setdefault(key, []).append(value)
    return fields


def check_metadata(built: Distribution, version: str) -> str:
    """Refuse a distribution of another version, or one that an index would refuse; says who checked it."""
    fields = read_metadata(built.wheel)
    if fields["Version"] != [version]:
        raise ReleaseError(f"{built.wheel.name} has the version {fields['Version'][0]}, not {version}")
    for needed in ("Name", "Summary", "License-Expression", "Requires-Python", "Description-Content-Type"):
        if needed not in fields:
            raise ReleaseError(f"{built.wheel.name} has no {needed} in its metadata")
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", built.sdist, built.wheel],
        capture_output=True,
        text=True,
        check=False,
    )
    if "No module named twine" in done.stderr:
        return "its own fields"
    if done.returncode:
        raise ReleaseError(f"twine refuses {built.name}:\n{done.stdout}{done.stderr}")
    return "twine check --strict"


def _only(paths: Iterator[Path]) -> Path:
    found = list(paths)
    if len(found) != 1:
        raise ReleaseError(f"expected one file, found {[path.name for path in found]}: empty the folder first")
    return found[0]
