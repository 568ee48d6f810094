"""Loads the fast engine, `tokie`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from ir3de.errors import EmbeddingError
from ir3de.storage.packing import unpack_gzip


def load_engine(definition: Callable[[], bytes], cache: bytes | None) -> Any:
    """The engine from a tokenizer.json, or sooner from its compiled form, gzipped."""
    import tokie

    with tempfile.TemporaryDirectory() as folder:  # the engine reads files only
        path = Path(folder, "tokenizer")
        content = definition() if cache is None else unpack_gzip(cache, "the compiled tokenizer")
        try:
            path.write_bytes(content)
        except OSError as error:
            raise EmbeddingError(
                f"cannot unpack the tokenizer to {folder}: {error.strerror or error}. Make room there, or name another "
                "folder in TMPDIR"
            ) from error
        return tokie.Tokenizer.from_json(str(path)) if cache is None else tokie.Tokenizer.from_file(str(path))


@lru_cache(maxsize=1)
def find_engine_version() -> str:
    """The version of tokie that is installed."""
    import tokie

    # the folder beside the package says it too, and importlib.metadata takes 30 ms to import
    beside = Path(tokie.__file__).parent.parent.glob("tokie-*.dist-info")
    found = [path.name.removesuffix(".dist-info").partition("-")[2] for path in beside]
    if len(found) == 1:
        return found[0]
    from importlib.metadata import version

    return version("tokie")
