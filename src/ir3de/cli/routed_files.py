"""Files of routed rows: JSON lines, a JSON document, CSV, TSV or Parquet, by the ending of the file's name."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Any

from ir3de import files
from ir3de.cli.decisions import DECISION_FIELD
from ir3de.cli.formats import json_text
from ir3de.cli.options import refuse_existing
from ir3de.errors import InputError, MissingExtraError

Routed = Iterable[tuple[Mapping[str, object], Mapping[str, Any]]]  # rows, each with its decision

COLUMNS = ("expert", "confidence", "expected_score", "margin", "abstained", "reason")  # of a decision, in tables
SEPARATORS = {".csv": ",", ".tsv": "\t"}
PARQUET_ROWS = 1_024  # written at once


def _write_json(file: IO[bytes], rows: Routed, path: Path) -> None:
    """One JSON object a line, or a list of them in .json: the row, and its decision in the field `ir3de`."""
    texts = (json_text({**row, DECISION_FIELD: decision}).encode() for row, decision in rows)
    if path.suffix.lower() != ".json":
        file.writelines(text + b"\n" for text in texts)
        return
    before = b"[\n"
    for text in texts:
        file.write(before + text)
        before = b",\n"
    file.write(b"[]\n" if before == b"[\n" else b"\n]\n")


def _write_separated(file: IO[bytes], rows: Routed, path: Path) -> None:
    """CSV or TSV."""
    text = io.TextIOWrapper(file, "utf-8", errors="backslashreplace", newline="", write_through=True)
    table = csv.writer(text, delimiter=SEPARATORS[path.suffix.lower()], lineterminator="\n")
    for number, row in enumerate(_join(rows, path)):
        if number == 0:
            table.writerow(row)
        table.writerow([one if one is None or isinstance(one, str) else json_text(one) for one in row.values()])
    text.detach()  # the caller closes the file


def _write_parquet(file: IO[bytes], rows: Routed, path: Path) -> None:
    """Parquet; the types are those of the first rows."""
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    joined, writer = _join(rows, path), None
    while batch := list(islice(joined, PARQUET_ROWS)):
        try:
            if writer is None:
                found = pyarrow.Table.from_pylist(batch).schema
                text = pyarrow.string()  # for columns that are empty so far
                kinds = [(one.name, text if pyarrow.types.is_null(one.type) else one.type) for one in found]
                writer = ParquetWriter(file, pyarrow.schema(kinds))
            writer.write_table(pyarrow.Table.from_pylist(batch, writer.schema))
        except (pyarrow.ArrowException, OverflowError) as error:
            raise InputError(
                f"{path.name}: a column of Parquet holds values of one type, found others ({error}): "
                "write .jsonl instead"
            ) from error
    if writer is not None:
        writer.close()


def _join(rows: Routed, path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a table: the columns of the first row, then the decision's, longer if the row has one of that name."""
    own: tuple[str, ...] = ()
    columns: dict[str, str] = {}  # of the decision: field, column
    for number, (row, decision) in enumerate(rows, 1):
        if number == 1:
            own = tuple(row)
            known = [field for field in COLUMNS if field in decision]
            fields = [field for field in known if (field, decision[field]) != ("confidence", None)]
            columns = {field: f"{DECISION_FIELD}_{field}" if field in row else field for field in fields}
        if unknown := [name for name in row if name not in own]:
            raise InputError(
                f"{path.name}: row {number:,} has the field {unknown[0]!r}, which the first row has not, and a "
                "table has the same columns in every row: write .jsonl instead"
            )
        yield {name: row.get(name) for name in own} | {name: decision.get(field) for field, name in columns.items()}


WRITERS: Mapping[str, Callable[[IO[bytes], Routed, Path], None]] = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), _write_json),
    **dict.fromkeys(SEPARATORS, _write_separated),
    ".parquet": _write_parquet,
}


def check_target(target: str, *, force: bool, tables: bool = True) -> Path:
    """The file to write, or an error before anything is routed. Without `tables` it must be a JSON file."""
    path = Path(target).expanduser()
    suffix = path.suffix.lower()
    if suffix not in WRITERS:
        found = f"ends in {suffix!r}" if suffix else "has no ending"
        raise InputError(
            f"--output {target} {found}, and the ending names the format: {', '.join(WRITERS)}. "
            "`--output -` prints JSON lines"
        )
    if not tables and WRITERS[suffix] is not _write_json:
        named = ", ".join(ending for ending, write in WRITERS.items() if write is _write_json)
        raise InputError(f"--output {target}: the turns of a chat fit no table: name a file {named}")
    if suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise MissingExtraError("pyarrow", "parquet", "writing Parquet") from error
    refuse_existing(path, force=force)
    return path


def write_routed(path: Path, rows: Routed) -> None:
    """Write rows with their decisions. The file appears when all are written."""
    with files.open_atomic(path) as file:
        WRITERS[path.suffix.lower()](file, rows, path)
