"""Files of routed rows: JSON lines, a JSON document, CSV, TSV or Parquet, as the file's name says."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from ir3de.cli.options import refuse_existing
from ir3de.cli.output import json_text
from ir3de.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter

Row = Mapping[str, object]

DECISION_FIELD = "ir3de"
COLUMNS = ("expert", "confidence", "expected_score", "margin", "abstained", "reason")  # of a decision, in tables
SEPARATORS = {".csv": ",", ".tsv": "\t"}
PARQUET_ROWS = 1_024  # written at once


class RowWriter(Protocol):
    """Writes rows with their decisions to an open file."""

    def __init__(self, file: IO[bytes], name: str) -> None: ...
    def write(self, row: Row, decision: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


class LinesWriter:
    """One JSON object a line: the row, and its decision in the field `ir3de`."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file

    def write(self, row: Row, decision: Mapping[str, Any]) -> None:
        self._file.write(json_text({**row, DECISION_FIELD: decision}).encode() + b"\n")

    def close(self) -> None:
        pass


class DocumentWriter:
    """The same objects as one JSON list."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._before = file, b"[\n"

    def write(self, row: Row, decision: Mapping[str, Any]) -> None:
        self._file.write(self._before + json_text({**row, DECISION_FIELD: decision}).encode())
        self._before = b",\n"

    def close(self) -> None:
        self._file.write(b"\n]\n" if self._before == b",\n" else b"[]\n")


class SeparatedWriter:
    """CSV or TSV: the columns of the first row, then those of its decision."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._columns = _Columns(name)
        self._text = io.TextIOWrapper(file, "utf-8", errors="backslashreplace", newline="", write_through=True)
        self._table = csv.writer(self._text, delimiter=SEPARATORS[_suffix_of(name)], lineterminator="\n")

    def write(self, row: Row, decision: Mapping[str, Any]) -> None:
        is_first = not self._columns.names
        joined = self._columns.join(row, decision)
        if is_first:
            self._table.writerow(joined)
        self._table.writerow(map(_format_cell, joined.values()))

    def close(self) -> None:
        self._text.detach()  # the file is closed by whoever opened it


class ParquetRowsWriter:
    """Parquet: the columns of the first row, then those of its decision; types are those of the first rows."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name, self._columns = file, name, _Columns(name)
        self._rows: list[dict[str, Any]] = []
        self._writer: ParquetWriter | None = None

    def write(self, row: Row, decision: Mapping[str, Any]) -> None:
        self._rows.append(self._columns.join(row, decision))
        if len(self._rows) == PARQUET_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.close()

    def _flush(self) -> None:
        import pyarrow
        from pyarrow.parquet import ParquetWriter

        try:
            if self._writer is None:
                found = pyarrow.Table.from_pylist(self._rows).schema
                text = pyarrow.string()  # for columns that are empty so far
                kinds = [(one.name, text if pyarrow.types.is_null(one.type) else one.type) for one in found]
                self._writer = ParquetWriter(self._file, pyarrow.schema(kinds))
            self._writer.write_table(pyarrow.Table.from_pylist(self._rows, self._writer.schema))
        except (pyarrow.ArrowException, OverflowError) as error:
            raise InputError(
                f"{self._name}: a column of Parquet holds values of one type, found others ({error}): "
                "write .jsonl instead"
            ) from error
        self._rows = []


WRITERS: Mapping[str, Callable[[IO[bytes], str], RowWriter]] = {
    ".jsonl": LinesWriter,
    ".ndjson": LinesWriter,
    ".json": DocumentWriter,
    ".csv": SeparatedWriter,
    ".tsv": SeparatedWriter,
    ".parquet": ParquetRowsWriter,
}
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")


def check_target(target: str, *, force: bool, tables: bool = True) -> Path:
    """The file to write, or an error before anything is routed. Without `tables` it must be a JSON file."""
    path, suffix = Path(target).expanduser(), _suffix_of(target)
    if suffix not in WRITERS:
        found = f"ends in {suffix!r}" if suffix else "has no ending"
        raise InputError(
            f"--output {target} {found}, and the ending names the format: {', '.join(WRITERS)}. "
            "`--output -` prints JSON lines"
        )
    if not tables and suffix not in JSON_SUFFIXES:
        raise InputError(f"--output {target}: the turns of a chat fit no table: name a file {', '.join(JSON_SUFFIXES)}")
    if suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise MissingExtraError("pyarrow", "parquet", "writing Parquet") from error
    refuse_existing(path, force=force)
    return path


@contextmanager
def open_routed(path: Path) -> Iterator[Callable[[Row, Mapping[str, Any]], None]]:
    """A function that writes a row with its decision. The file appears when all are written."""
    from ir3de.files.atomic import open_atomic

    with open_atomic(path) as file:
        writer = WRITERS[_suffix_of(path.name)](file, path.name)
        yield writer.write
        writer.close()


class _Columns:
    """The columns of a table, known from its first row."""

    def __init__(self, name: str) -> None:
        self.names: dict[str, str] = {}  # of the decision: field, column
        self._own: tuple[str, ...] = ()
        self._name, self._number = name, 0

    def join(self, row: Row, decision: Mapping[str, Any]) -> dict[str, Any]:
        """The row's own columns, then the decision's, under a longer name where the row has one of that name."""
        self._number += 1
        if not self.names:
            self._own = tuple(row)
            fields = [
                field for field in COLUMNS if field in decision and (field, decision[field]) != ("confidence", None)
            ]
            self.names = {field: f"{DECISION_FIELD}_{field}" if field in row else field for field in fields}
        if unknown := [name for name in row if name not in self._own]:
            raise InputError(
                f"{self._name}: row {self._number:,} has the field {unknown[0]!r}, which the first row has not, and a "
                "table has the same columns in every row: write .jsonl instead"
            )
        own = {name: row.get(name) for name in self._own}
        return own | {column: decision.get(field) for field, column in self.names.items()}


def _suffix_of(name: str) -> str:
    return Path(name).suffix.lower()


def _format_cell(value: object) -> object:
    if value is None or isinstance(value, str):
        return value
    return json_text(value)
