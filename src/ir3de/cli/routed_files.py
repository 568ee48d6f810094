"""Files of routed rows: JSON lines, a JSON document, CSV, TSV or Parquet, by the ending of the file's name."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ir3de import files
from ir3de.cli.decisions import DECISION_FIELD
from ir3de.cli.formats import json_text
from ir3de.cli.options import refuse_existing
from ir3de.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter

Row = Mapping[str, object]

COLUMNS = ("expert", "confidence", "expected_score", "margin", "abstained", "reason")  # of a decision, in tables
SEPARATORS = {".csv": ",", ".tsv": "\t"}
PARQUET_ROWS = 1_024  # written at once


class JSONWriter:
    """One JSON object a line, or a list of them in .json: the row, and its decision in the field `ir3de`."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._is_list, self._count = file, _suffix_of(name) == ".json", 0

    def write(self, row: Row, decision: Mapping[str, Any]) -> None:
        text = json_text({**row, DECISION_FIELD: decision}).encode()
        before = b",\n" if self._count else b"[\n"
        self._file.write(before + text if self._is_list else text + b"\n")
        self._count += 1

    def close(self) -> None:
        if self._is_list:
            self._file.write(b"\n]\n" if self._count else b"[]\n")


class TableWriter:
    """A table with the columns of the first row, then those of its decision."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name, self._number = file, name, 0
        self._fields: dict[str, str] = {}  # of the decision: field, column
        self._own: tuple[str, ...] = ()

    def join(self, row: Row, decision: Mapping[str, Any]) -> dict[str, Any]:
        """The row's own columns, then the decision's, under a longer name if the row has one of that name."""
        self._number += 1
        if self._number == 1:
            self._own = tuple(row)
            known = [field for field in COLUMNS if field in decision]
            fields = [field for field in known if (field, decision[field]) != ("confidence", None)]
            self._fields = {field: f"{DECISION_FIELD}_{field}" if field in row else field for field in fields}
        if unknown := [name for name in row if name not in self._own]:
            raise InputError(
                f"{self._name}: row {self._number:,} has the field {unknown[0]!r}, which the first row has not, and a "
                "table has the same columns in every row: write .jsonl instead"
            )
        own = {name: row.get(name) for name in self._own}
        return own | {column: decision.get(field) for field, column in self._fields.items()}


class SeparatedWriter(TableWriter):
    """CSV or TSV."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        super().__init__(file, name)
        self._text = io.TextIOWrapper(file, "utf-8", errors="backslashreplace", newline="", write_through=True)
        self._table = csv.writer(self._text, delimiter=SEPARATORS[_suffix_of(name)], lineterminator="\n")

    def write(self, row: Row, decision: Mapping[str, Any]) -> None:
        joined = self.join(row, decision)
        if self._number == 1:
            self._table.writerow(joined)
        plain = [value if value is None or isinstance(value, str) else json_text(value) for value in joined.values()]
        self._table.writerow(plain)

    def close(self) -> None:
        self._text.detach()  # the caller closes the file


class ParquetRowsWriter(TableWriter):
    """Parquet; the types are those of the first rows."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        super().__init__(file, name)
        self._rows: list[dict[str, Any]] = []
        self._writer: ParquetWriter | None = None

    def write(self, row: Row, decision: Mapping[str, Any]) -> None:
        self._rows.append(self.join(row, decision))
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


WRITERS: Mapping[str, Callable[[IO[bytes], str], JSONWriter | SeparatedWriter | ParquetRowsWriter]] = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), JSONWriter),
    **dict.fromkeys(SEPARATORS, SeparatedWriter),
    ".parquet": ParquetRowsWriter,
}


def check_target(target: str, *, force: bool, tables: bool = True) -> Path:
    """The file to write, or an error before anything is routed. Without `tables` it must be a JSON file."""
    path, suffix = Path(target).expanduser(), _suffix_of(target)
    if suffix not in WRITERS:
        found = f"ends in {suffix!r}" if suffix else "has no ending"
        raise InputError(
            f"--output {target} {found}, and the ending names the format: {', '.join(WRITERS)}. "
            "`--output -` prints JSON lines"
        )
    if not tables and WRITERS[suffix] is not JSONWriter:
        named = ", ".join(ending for ending, writer in WRITERS.items() if writer is JSONWriter)
        raise InputError(f"--output {target}: the turns of a chat fit no table: name a file {named}")
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
    with files.open_atomic(path) as file:
        writer = WRITERS[_suffix_of(path.name)](file, path.name)
        yield writer.write
        writer.close()


def _suffix_of(name: str) -> str:
    return Path(name).suffix.lower()
