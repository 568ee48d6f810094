"""Digests of source and of data: they change when what a program does may have changed, and not with a comment.

A source is a module or a package, named as Python names it. Its digest covers every file of it. Of Python, comments,
docstrings and empty lines are left out; the compiled kernel is left out, its C files are not.
"""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ir3de.errors import InputError

DIGITS = 16  # of a digest, in hexadecimal: 64 bits tell any two states of a source apart
COMPILED = (".so", ".pyd", ".pyc", ".dylib")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def digest_source(name: str) -> str:
    """Digest a module or a package by the code in its files.

    >>> len(digest_source("ir3de.errors"))
    16
    """
    place = find_source(name)
    return _digest((path.relative_to(place.parent).as_posix(), _read_code(path)) for path in _list_files(place))


@cache
def digest_data(folder: Path) -> str:
    """Digest a folder of data by the names and the bytes of its files."""
    return _digest((path.relative_to(folder).as_posix(), path.read_bytes()) for path in _list_files(folder))


def find_last_change(name: str) -> float:
    """Find when a file of a module or a package was last written, in seconds since 1970."""
    return max(path.stat().st_mtime for path in _list_files(find_source(name)))


def find_source(name: str) -> Path:
    """Find the file of a module, or the folder of a package."""
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:
        spec = None
    folders = spec.submodule_search_locations if spec is not None else None
    if folders:
        return Path(next(iter(folders)))
    if spec is None or spec.origin is None:
        raise InputError(f"there is no module '{name}': correct lab/src/ir3de_lab/catalogue/catalogue.toml")
    return Path(spec.origin)


def strip_code(code: str) -> str:
    """Leave out the comments, the docstrings and the empty lines of Python code.

    >>> strip_code('''def double(x):
    ...     "Two of it."
    ...
    ...     return 2 * x  # not x ** 2
    ... ''')
    'def double(x):\\n    return 2 * x\\n'
    """
    lines = code.splitlines()
    for row, start, end in _find_comments(code):
        lines[row] = lines[row][:start] + lines[row][end:]
    for first, column, last in _find_docstrings(code):
        lines[first:last] = [lines[first][:column], *[""] * (last - first - 1)]
    return "".join(f"{line.rstrip()}\n" for line in lines if line.strip())


def _find_comments(code: str) -> Iterator[tuple[int, int, int]]:
    """The row, the first and the last column of every comment."""
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0] - 1, token.start[1], token.end[1]


def _find_docstrings(code: str) -> Iterator[tuple[int, int, int]]:
    """The first row and column of every docstring, and the row behind it."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            expression = node.body[0]
            assert expression.end_lineno is not None
            yield expression.lineno - 1, expression.col_offset, expression.end_lineno


def _list_files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    found = (path for path in place.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(path for path in found if path.suffix not in COMPILED)


def _read_code(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".py":
        return strip_code(content.decode("utf-8").replace("\r\n", "\n")).encode()
    return content


def _digest(files: Iterator[tuple[str, bytes]]) -> str:
    total = hashlib.sha256()
    for name, content in files:
        total.update(f"{name}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()[:DIGITS]
