"""Files of every format, packed every way, for the tests of reading them."""

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from ir3de.corpora import read_texts
from ir3de.errors import InputError

TEXTS = ["What is a cell?", "naïve café ∑ 🙂", 'a "quoted", thing', "tab\there"]


def zstd_compress(data: bytes) -> bytes:
    try:
        from compression import zstd
    except ImportError:
        zstandard = pytest.importorskip("zstandard")
        return zstandard.ZstdCompressor(write_checksum=True).compress(data)
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd_compress,
}


def separated(texts: list[str], delimiter: str) -> bytes:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows([("id", "text"), *enumerate(texts)])
    return out.getvalue().encode()


def json_lines(rows: list[object]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def as_rows(texts: list[str]) -> list[object]:
    return [{"id": i, "text": text} for i, text in enumerate(texts)]


WRITERS: dict[str, Callable[[list[str]], bytes]] = {
    ".txt": lambda texts: "\n".join(texts).encode(),
    ".text": lambda texts: "\n\n".join(texts).encode(),
    ".md": lambda texts: "\r\n".join(texts).encode(),
    ".jsonl": lambda texts: json_lines(as_rows(texts)),
    ".ndjson": lambda texts: json_lines(list(texts)),
    ".json": lambda texts: json.dumps(as_rows(texts), indent=1).encode(),
    ".csv": lambda texts: separated(texts, ","),
    ".tsv": lambda texts: separated(texts, "\t"),
}


def write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_parquet(path: Path, columns: dict[str, list[object]], **options: object) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), path, **options)
    return path


def said(*sources: object, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        list(read_texts(sources, **options))  # type: ignore[arg-type]
    return str(caught.value)


class Piped:
    """A standard input that has bytes beneath it, as the real one has."""

    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)
