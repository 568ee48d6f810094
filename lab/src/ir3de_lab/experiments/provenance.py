"""How a result came about: the command, the commit, the sources that ran and the machine, kept in every raw file."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import ir3de
import ir3de_lab
from ir3de_lab.benchmarks.measurement import circumstances

FOLDERS = {  # in a checkout, and of the packages that run
    "src/ir3de": Path(ir3de.__file__).parent,
    "lab/src/ir3de_lab": Path(ir3de_lab.__file__).parent,
}
SOURCES = (".py", ".c", ".h", ".toml")


def this_process() -> dict[str, Any]:
    """The command, the commit, the sources that ran and the machine."""
    named, sources = commit(), digest_sources()
    own = None if named is None else digest_commit(named, Path(__file__).parent)
    changed = None if own is None else own != sources  # None: no checkout says what the commit has
    return {"command": command(), "commit": named, "sources": sources, "changed": changed, **circumstances()}


def command(arguments: Sequence[str] | None = None) -> str:
    """The command line of this process, without what is particular to this machine's folders.

    >>> command(["bench", "outcomes", "--data", "../texts", "--experts", "/home/ada/models/clm"])
    'ir3de bench outcomes --data DIR --experts models/clm'
    """
    given = sys.argv[1:] if arguments is None else arguments
    shown = ["DIR" if before == "--data" else _short(argument) for before, argument in pairwise(["", *given])]
    return " ".join(["ir3de", *shown])


def commit() -> str | None:
    """The commit this code is of: that of its checkout, or what IR3DE_COMMIT says where there is none."""
    if given := os.environ.get("IR3DE_COMMIT"):
        return given
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


@cache
def digest_sources() -> str:
    """A digest of the programs and settings that run here, whatever the commit is said to be."""
    found = {}
    for name, package in FOLDERS.items():
        for path in sorted(package.rglob("*")):
            if path.suffix in SOURCES:
                content = path.read_bytes().replace(b"\r\n", b"\n")
                found[f"{name}/{path.relative_to(package).as_posix()}"] = _blob(content)
    return digest_blobs(found)


@cache
def digest_commit(commit: str, checkout: Path) -> str | None:
    """The same digest of a commit's own sources; None where the checkout does not have the commit."""
    asked = ["git", "-C", str(checkout), "ls-tree", "-r", "--full-tree", commit, "--", *FOLDERS]
    try:
        listed = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    blobs = {}
    for line in listed.splitlines():
        about, _, path = line.partition("\t")
        if Path(path).suffix in SOURCES:
            blobs[path] = about.split()[2]
    return digest_blobs(blobs)


def digest_blobs(blobs: Mapping[str, str]) -> str:
    """Sixteen hexadecimal digits of paths and of their contents' names in git."""
    listed = "".join(f"{blob} {path}\n" for path, blob in sorted(blobs.items()))
    return hashlib.sha256(listed.encode()).hexdigest()[:16]


def _blob(content: bytes) -> str:
    """What git calls a content: so a commit's sources are digested without being read."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _short(argument: str) -> str:
    path = Path(argument)
    return "/".join(path.parts[-2:]).lstrip("/") if path.is_absolute() else argument
