"""The formats with columns: CSV, TSV and Parquet."""

import csv
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from ir3de.corpora.remote import Remote
from ir3de.corpora.rows import Row, list_names
from ir3de.corpora.streams import Options, Source, decode_utf8, refuse_other_file, utf8_error
from ir3de.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

_SEPARATORS = {",": "comma", "\t": "tab", ";": "semicolon"}
_MAX_FIELD_CHARACTERS = 2**31 - 1  # the largest limit that fits a C long on every platform
_PARQUET_ROWS = 256  # rows turned into Python objects at once: few, because a row may be a whole book
_PARQUET_BUFFER_BYTES = 1 << 20


def parse_separated(
    raw_lines: Iterable[bytes], source: Source, options: Options, *, separator: str
) -> Iterator[tuple[int, Row]]:
    """Iterate over the rows of a table of lines, the first of which names the columns.

    Where the first line lacks the separator of the suffix but has another one, that one separates the columns: what
    spreadsheets save as .csv is separated by semicolons in many countries.
    """
    # The limit belongs to the whole process and guards against broken quoting, which `strict` catches anyway.
    # It is only ever raised: to put it back would break another reader that is still at work.
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_FIELD_CHARACTERS))
    # a line that is not UTF-8 may be part of a longer row, so where rows may be skipped it is decoded all the same
    numbered = enumerate(raw_lines, 1)
    lines: Iterator[str]
    if options.on_damage is None:
        lines = (decode_utf8(raw, source, first_line=number) for number, raw in numbered)
    else:
        lines = (raw.decode(errors="surrogateescape") for _, raw in numbered)
    separator, lines = _find_separator(lines, separator)
    records = _records(lines, source.name, separator)
    header = _check_header(next(records, (1, []))[1], source)
    sole = header[0] if len(header) == 1 else None
    for number, values in records:
        wrong = _find_fault(values, header, source.place(number), separator)
        if wrong is not None:
            options.report_damage(wrong)
            continue
        row = Row(zip(header, values, strict=True))
        row.sole_column = sole
        yield number, row


def _find_separator(lines: Iterator[str], usual: str) -> tuple[str, Iterator[str]]:
    """What separates the columns of the first line that is not blank, and all lines."""
    head: list[str] = []
    for line in lines:
        head.append(line)
        if not line.isspace():
            break
    first = head[-1] if head else ""
    others = [mark for mark in _SEPARATORS if mark in first]
    return (usual if usual in others or not others else others[0]), chain(head, lines)


def _records(lines: Iterable[str], name: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Iterate over the records that are not blank, with the line on which each begins."""
    reader = csv.reader(lines, delimiter=separator, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            values = next(reader, None)
        except csv.Error as error:
            if str(error).startswith("new-line character"):
                raise InputError(
                    f"{name}:{number}: found a carriage return inside a line: put values that hold one in quotes; if "
                    "every line of the file ends so, convert it with `tr '\\r' '\\n'`"
                ) from None
            raise InputError(
                f"{name}:{number}: not a valid table ({error}): put values that hold a quote or a line end "
                'in quotes, and double the quotes inside them ("")'
            ) from None
        if values is None:
            return
        if values:
            yield number, values


def _find_fault(values: list[str], header: list[str], place: str, separator: str) -> InputError | None:
    if len(values) != len(header):
        had, named = _count(len(values), "value"), _count(len(header), "column")
        advice = (
            "fill in what is missing"
            if len(values) < len(header)
            else "separate the columns by commas, semicolons or tabs, and put quotes around values that hold one"
            if len(header) == 1
            else f"put quotes around values that hold a {_SEPARATORS[separator]}"
        )
        return InputError(f"{place}: the row has {had}, but the header has {named}: {advice}")
    try:
        "".join(values).encode()
    except UnicodeEncodeError as error:
        return utf8_error(place, ord(error.object[error.start]) - 0xDC00)
    return None


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _check_header(header: list[str], source: Source) -> list[str]:
    name = source.name
    decode_utf8("".join(header).encode(errors="surrogateescape"), source)  # without a header there are no rows to skip
    refuse_other_file("".join(header).encode(), name)
    if any("\0" in column for column in header):
        raise InputError(f"{name}: the header holds zero bytes, as UTF-16 does: convert the file to UTF-8")
    if not header:
        raise InputError(f"{name}: found no header: write the names of the columns on the first line")
    if len(set(header)) < len(header):
        twice = list_names(sorted({column for column in header if header.count(column) > 1}))
        raise InputError(f"{name}: the header names a column more than once ({twice}): rename the others")
    return header


def parquet_rows(source: Source, options: Options) -> Generator[tuple[int, dict[str, object]], None, None]:
    """Iterate over the rows of a Parquet file, or of some of its row groups, reading only the columns needed."""
    with _open_parquet(source) as file:
        names: list[str] = file.schema_arrow.names
        columns = names if options.columns is None else options.columns(names)
        yield from _read_batches(file, columns, source, options)


def row_group_bytes(source: Source) -> list[int]:
    """How many bytes of the file are each row group's, about; together they are all of it."""
    with _open_parquet(source) as file:
        size = source.state().size
        sizes = [file.metadata.row_group(group).total_byte_size for group in range(file.metadata.num_row_groups)]
    reached = [size * sum(sizes[: group + 1]) // max(1, sum(sizes)) for group in range(len(sizes))]
    return [after - before for before, after in pairwise([0, *reached])]


@contextmanager
def _open_parquet(source: Source) -> Iterator["ParquetFile"]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet", "Reading a .parquet file") from None
    whole = replace(source, begin=0, end=None)  # row groups are no bytes
    with whole.open():
        pass  # so that a file that may not be read is said like any other
    try:
        where = source.path.open() if isinstance(source.path, Remote) else source.path
        with pyarrow.parquet.ParquetFile(where, buffer_size=_PARQUET_BUFFER_BYTES) as file:
            yield file
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{source.name}: not a valid Parquet file ({error}): download it, or write it, again"
        ) from error


def _read_batches(
    file: "ParquetFile", columns: list[str], source: Source, options: Options
) -> Iterator[tuple[int, dict[str, object]]]:
    """Iterate over the rows, telling the bytes in proportion, for columns may lie anywhere in the file."""
    groups = range(file.metadata.num_row_groups)[source.begin : source.end]
    counts = [file.metadata.row_group(group).num_rows for group in range(groups.stop)]
    skipped, rows = sum(counts[: groups.start]), sum(counts[groups.start :])
    size = sum(row_group_bytes(source)[groups.start : groups.stop]) if options.on_bytes is not None else 0
    done = told = 0
    for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=columns, row_groups=list(groups)):
        if options.on_bytes is not None:
            reached = size * (done + batch.num_rows) // rows
            options.on_bytes(reached - told)
            told = reached
        yield from enumerate(batch.to_pylist(), skipped + done + 1)
        done += batch.num_rows
    if options.on_bytes is not None and told < size:
        options.on_bytes(size - told)
