"""File systems at addresses such as s3://bucket/folder: the only module that knows fsspec.

An address may hold a password, or a key among its options. Messages never show them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from ir3de.errors import ArtifactError, InputError, MissingExtraError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")  # two letters at least: one is a drive of Windows
_USER = re.compile(r"(?<=://)[^/?#\s]*@")  # also in an address inside another, as in simplecache::ftp://u:p@host/path
_OPTIONS = re.compile(r"\?\S*")

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
    wherever it stands.
    """
    for user in _USER.findall(address):
        text = text.replace(user, "")
    return _USER.sub("", text)


def hide_secrets(text: str, address: str = "") -> str:
    """The same without the options of an address, which may hold a key."""
    return _OPTIONS.sub("", hide_user(text, address))


def check_scheme(address: str) -> None:
    """Refuse kinds of addresses that are not for single files: archives, caches, addresses in others (`a://x::b://y`)."""
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
    except Exception as error:  # some kinds connect at once, and each has errors of its own
        raise ArtifactError(
            f"cannot open {shown}: {hide_secrets(f'{type(error).__name__}: {error}', address)}"
        ) from error
    return system, str(path)


@lru_cache(maxsize=64)
def open_arrow(address: str) -> tuple[Any, str]:
    """The file system of an address for pyarrow, which uses fsspec for what it does not know itself; and the path."""
    try:
        import pyarrow
        from pyarrow import fs
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet", f"Reading from {get_scheme(address)}://") from None
    try:
        return fs.FileSystem.from_uri(address)  # type: ignore[no-any-return]
    except pyarrow.ArrowInvalid as error:
        unknown = error
    try:
        system, path = open_fsspec(address)
    except (ImportError, InputError) as error:
        raise InputError(f"neither pyarrow ({hide_secrets(str(unknown), address)}) nor fsspec ({error}) can") from error
    return fs.PyFileSystem(fs.FSSpecHandler(system)), path


def drop_cached_listings(system: Any) -> None:
    """Forget what fsspec has cached of a file system: files may have changed since."""
    handler = getattr(system, "handler", None)
    if handler is not None:
        handler.fs.invalidate_cache()
