"""Files that are complete or absent: atomic writes, checked reads, JSON headers, folder locks."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Any, Literal

from ir3de.errors import ArtifactError, IR3DEError, VersionError, name_upgrade

Header = dict[str, Any]

_LOCK_CHECK_S = 0.05  # between two attempts to lock a folder
_FULL = {errno.ENOSPC, errno.EDQUOT}
_COPY_BYTES = 1 << 20  # copied at a time
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_COPY_AGAIN = "Copy it again from where it came from"
_locked = threading.local()  # the folders that this thread has locked


class FolderBusyError(ArtifactError):
    """Another process is writing to a folder."""


def count_cores() -> int:
    """The cores that this process may use, which in a container can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find_kind(path: str | Path) -> Literal["file", "folder", "other", ""]:
    """What is at a path; "" for nothing, and where the system cannot look: too long a name, a forbidden folder."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):  # ValueError: a null byte
        return ""
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def write(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file so that no reader, crash or full disk leaves half of it; `private`: readable by this user only."""
    with open_atomic(path, private=private) as file:
        file.write(content)


@contextmanager
def open_atomic(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """Open a file for writing that appears under its name only once it is complete.

    A pipe or a device is written to directly: it must not be replaced by a file.
    """
    if path.exists() and not path.is_file():
        try:
            special = path.open("wb")
        except OSError as error:
            raise ArtifactError(f"cannot write {path}: {error.strerror or error}") from error
        with special:
            yield special
        return
    # The name is chosen here, not by `tempfile`: a Ctrl-C while the file is created must not leave it behind.
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.part")
    try:
        try:
            with os.fdopen(os.open(temporary, _NEW_FILE, 0o600), "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if not private:
                temporary.chmod(0o666 & ~UMASK)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        _sync_folder(path.parent)
    except IR3DEError:  # from the caller, not about this file
        raise
    except OSError as error:
        advice = ": free some space, or choose another place" if error.errno in _FULL else ""
        raise ArtifactError(
            f"cannot write {path}: {error.strerror or error}{advice}. What was there before is unchanged"
        ) from error


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


UMASK = _read_umask()  # read once, at import: reading it turns it off for a moment


def copy(source: Path, target: Path, *, sha256: str) -> None:
    """Copy a file piece by piece and check its hash; `target` appears once it is complete."""
    sha = hashlib.sha256()
    try:
        file = source.open("rb")
    except OSError as error:
        raise _read_error(source, error) from error
    with file, open_atomic(target) as copied:
        while piece := file.read(_COPY_BYTES):
            sha.update(piece)
            copied.write(piece)
        check_sha256(sha.hexdigest(), sha256, source)


@contextmanager
def lock_folder(folder: Path, *, wait_s: float | None = None) -> Iterator[None]:
    """Keep other writers out of a folder, in this process and others. A thread may lock a folder twice.

    With `wait_s`, `FolderBusyError` is raised if another writer still holds the lock after that time.
    Windows has no such locks: there, the caller must not write to one folder from two processes.
    """
    key = folder.resolve()
    locked: set[Path] = _locked.__dict__.setdefault("folders", set())
    if key in locked or sys.platform == "win32":
        yield
        return
    import fcntl

    make_folder(folder)
    try:
        descriptor = os.open(folder, os.O_RDONLY)  # the folder itself is locked: no lock file stays in it
    except OSError as error:
        raise ArtifactError(f"cannot open the folder {folder}: {error.strerror or error}") from error
    try:
        if wait_s is None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        else:
            _wait_for_lock(descriptor, folder, wait_s)
        locked.add(key)
        yield
    finally:
        locked.discard(key)
        os.close(descriptor)


def _wait_for_lock(descriptor: int, folder: Path, wait_s: float) -> None:
    import fcntl

    until = monotonic() + wait_s
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if monotonic() >= until:
            raise FolderBusyError(
                f"another process is writing to {folder}, and {wait_s:g} s were not enough: try again"
            )
        sleep(_LOCK_CHECK_S)


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Create a folder and its parents, unless it exists."""
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"cannot make the folder {folder}: {error.strerror or error}") from error


@contextmanager
def replace_folder(folder: Path) -> Iterator[Path]:
    """The path of a new folder that takes the place of another, if there is one, once it is complete."""
    from tempfile import TemporaryDirectory  # takes milliseconds to import, and routing does without it

    with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:  # the same disk: it is renamed
        yield Path(temporary, "new")
        if folder.exists():
            folder.rename(Path(temporary, "old"))
        Path(temporary, "new").rename(folder)


def user_cache(name: str) -> Path:
    """This user's cache folder for a kind of files, which may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "ir3de", name)


def read(path: Path, *, sha256: str | None = None) -> bytes:
    """The file's bytes, checked against their hash where one is known."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _read_error(path, error) from error
    if sha256 is not None:
        check_sha256(hashlib.sha256(content).hexdigest(), sha256, path)
    return content


def _read_error(path: Path, error: OSError) -> ArtifactError:
    return ArtifactError(f"cannot read {path}: {error.strerror or error}")


def check_file(path: Path, *, sha256: str) -> None:
    """Reject a file that is missing or has another hash; it is read in pieces."""
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _read_error(path, error) from error
    check_sha256(found, sha256, path)


def check_sha256(found: str, expected: str, path: Path) -> None:
    """Reject a file whose content has another hash than the recorded one."""
    if found != expected:
        raise ArtifactError(
            f"{path} is damaged: its SHA-256 is {found[:16]}…, {expected[:16]}… was recorded. {_COPY_AGAIN}"
        )


def read_json(path: Path, *, kind: str, version: int) -> Header:
    """A JSON header of the given kind, no newer than `version`."""
    return parse_json(read(path), path, kind=kind, version=version)


def parse_json(content: bytes, path: Path, *, kind: str, version: int) -> Header:
    """A JSON header from the bytes that were read at `path`."""
    try:
        header = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} is damaged: it is not JSON ({error}). {_COPY_AGAIN}") from error
    check_kind(header, kind, version, path)
    assert isinstance(header, dict)
    return header


def check_kind(header: object, kind: str, version: int, path: Path) -> None:
    """Reject a header of another kind or of a newer version."""
    found = header.get("kind") if isinstance(header, dict) else None
    if not isinstance(header, dict) or found != kind:
        raise ArtifactError(f"{path} is not an {kind} file: its kind is {found!r}")
    if not isinstance(header.get("version"), int) or header["version"] > version:
        raise VersionError(
            f"{path} is in version {header.get('version')!r} of the {kind} format; this ir3de reads up to {version}: "
            f"{name_upgrade()}"
        )


def seal(header: Mapping[str, Any]) -> Header:
    """The header with the SHA-256 of its own content, by which `check_seal` finds any change to it."""
    return {**header, "sha256": _hash_content(header)}


def check_seal(header: Mapping[str, Any], path: Path) -> None:
    """Reject a header that differs from what was sealed."""
    content = {key: value for key, value in header.items() if key != "sha256"}
    if header.get("sha256") != _hash_content(content):
        raise ArtifactError(
            f"{path} is damaged or was edited: its content does not match its own SHA-256. {_COPY_AGAIN}"
        )


def _hash_content(header: Mapping[str, Any]) -> str:
    canonical = json.dumps(header, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def to_json(header: Mapping[str, Any]) -> bytes:
    """A header as it is written."""
    return json.dumps(header, ensure_ascii=False, indent=1).encode() + b"\n"
