"""Files at addresses such as s3://bucket/folder/a.jsonl, through fsspec. No other module knows fsspec.

An address may hold a password, or a key among its options. Messages never show them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ir3de.errors import ArtifactError, InputError, MissingExtraError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")  # two letters at least: one letter is a drive of Windows
_USER = re.compile(r"(?<=://)[^/?#\s]*@")  # also in an address inside another, as in simplecache::ftp://u:p@host/path
_OPTIONS = re.compile(r"\?\S*")
_MAGIC = re.compile(r"[*\[]")
MAX_REASON_CHARACTERS = 200  # of another library's message

_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "hf")
_SERVERS = ("http", "https", "ftp", "sftp", "ssh", "smb")
SCHEMES = (*_STORES, *_SERVERS, "file", "memory")  # of addresses that routers may come from


def get_scheme(address: str) -> str:
    """The scheme of an address in lower case, such as s3; empty for a path of this machine."""
    found = _SCHEME.match(address)
    return found[1].lower() if found else ""


def hide_user(text: str, address: str = "") -> str:
    """An address, or a message about one, without a user's name and password.

    Some file systems keep the user of their address in the paths of their messages: the user of `address` is hidden
    wherever it occurs.
    """
    for user in _USER.findall(address):
        text = text.replace(user, "")
    return _USER.sub("", text)


def hide_secrets(text: str, address: str = "") -> str:
    """The same, also without the options of an address, which may hold a key."""
    return _OPTIONS.sub("", hide_user(text, address))


def check_scheme(address: str) -> None:
    """Reject addresses that do not name single files: archives, caches, addresses in others (`a://x::b://y`)."""
    if get_scheme(address) not in SCHEMES or "::" in address:
        shown = hide_secrets(address)[:200]
        raise InputError(f"cannot open {shown}: use a folder, or an address that begins with {', '.join(SCHEMES)}")


def open_fsspec(address: str, **options: Any) -> tuple[Any, str]:
    """The fsspec file system of an address, and the path of the address in it."""
    shown = hide_secrets(address)
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise MissingExtraError("fsspec", "serve", f"Reading from {shown}") from None
    try:
        system, path = url_to_fs(address, **options)
    except ImportError as error:  # s3 and others need a package each, which the message names
        raise InputError(f"cannot open {shown}: {hide_secrets(str(error), address)}") from error
    except ValueError as error:
        raise InputError(
            f"cannot open {shown}: {hide_secrets(str(error), address)}: use a folder, or an address such as s3://… or gs://…"
        ) from error
    except Exception as error:  # some file systems connect at once, and each has errors of its own
        raise ArtifactError(
            f"cannot open {shown}: {hide_secrets(f'{type(error).__name__}: {error}', address)}"
        ) from error
    return system, str(path)


@lru_cache(maxsize=64)
def _open(address: str) -> tuple[Any, str]:
    """The file system of an address: fsspec's own, or pyarrow's for a scheme whose fsspec package is not installed."""
    try:
        return open_fsspec(address)
    except InputError as error:
        missing = error
    try:
        from fsspec.implementations.arrow import ArrowFSWrapper
        from pyarrow import fs

        system, path = fs.FileSystem.from_uri(address)
    except (ImportError, ValueError):  # pyarrow does not know the scheme either
        raise missing from None
    return ArrowFSWrapper(system), path


@dataclass(frozen=True, slots=True)
class Remote:
    """A file of another machine: an address that names a file system, and the path in it."""

    root: str = field(repr=False)  # the address, which may hold secrets: never shown
    path: str

    def __str__(self) -> str:
        return hide_user(f"{get_scheme(self.root)}://{self.path.lstrip('/')}", self.root)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def as_posix(self) -> str:
        return self.path

    def stat(self) -> tuple[int, float | None]:
        """Size, and the time of the last change where the file system records it."""
        with _named_errors(str(self), self.root):
            system = _open(self.root)[0]
            system.invalidate_cache()  # the file may have changed
            info = system.info(self.path)
            if info["type"] != "file":
                raise FileNotFoundError("no such file")
            return int(info["size"] or 0), _read_time(info)

    def open(self) -> Any:
        """A file of bytes, to be read from anywhere."""
        with _named_errors(str(self), self.root):
            return _open(self.root)[0].open(self.path, "rb")


AnyPath = Path | Remote


def _read_time(info: dict[str, Any]) -> float | None:
    found = next((info[name] for name in ("mtime", "LastModified", "last_modified", "created") if info.get(name)), None)
    if found is None or isinstance(found, str):
        return None
    return float(found) if isinstance(found, (int, float)) else float(found.timestamp())


def is_address(named: str) -> bool:
    """Whether a name is an address rather than a path of this machine."""
    return get_scheme(named) != ""


def local_path(named: str) -> str | None:
    """The path that a file:// address stands for; None for other addresses."""
    if get_scheme(named) != "file":
        return None
    return unquote(named[len("file://") :].removeprefix("localhost"))


def files_at(named: str) -> tuple[list[Remote], str]:
    """The files of an address, which may be one file, a folder or a pattern, and which of these it is."""
    shown = hide_secrets(named)
    magic = _MAGIC.search(named.partition("?")[0])
    with _named_errors(shown, named):
        system, path = _open(named)
        system.invalidate_cache()
        if magic:
            root = path[: path.rindex("/", 0, _MAGIC.search(path).start()) + 1]  # type: ignore[union-attr]
            found = [name for name, info in system.glob(path, detail=True).items() if info["type"] == "file"]
        elif system.isfile(path):
            return [Remote(named, path)], "the file"
        elif not system.isdir(path):
            raise FileNotFoundError("no such file or folder")
        else:
            root, found = path.rstrip("/") + "/", system.find(path)
        kept = [Remote(named, name) for name in found if "/." not in name[len(root) - 1 :]]
        return kept, f"the {'pattern' if magic else 'folder'} {shown}"


@contextmanager
def _named_errors(name: str, address: str) -> Iterator[None]:
    """Turn the errors of other libraries into an `InputError` that names the file."""
    try:
        yield
    except MissingExtraError:
        raise
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's own errors are of these
        reason = (
            getattr(error, "strerror", None)
            or hide_secrets(str(error), address).partition("\n")[0][:MAX_REASON_CHARACTERS]
        )
        raise InputError(
            f"{name}: cannot be read ({reason}): check the address, and that what gives access to it is set"
        ) from error
