"""The formats of files with texts, by suffix: each turns a source into numbered rows, one at a time."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, AnyStr, Self

from ir3de.errors import InputError, MissingExtraError
from ir3de.files.remote import Remote
from ir3de.files.streams import STDIN, Options, Source, decode_utf8, lines_of, refuse_other_file, utf8_error

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

Numbered = tuple[int, object]  # the line or the row number, from 1, and the row
Parse = Callable[[Iterable[bytes], Source, Options], Iterator[Numbered]]

_EXCERPT_CHARACTERS = 30  # shown on each side of what is wrong
_NAMES_SHOWN = 20
_SEPARATORS = {",": "comma", "\t": "tab", ";": "semicolon"}
_MAX_FIELD_CHARACTERS = 2**31 - 1  # the largest limit that fits a C long on every platform
_PARQUET_ROWS = 256  # rows turned into Python objects at once: few, because a row may be a whole book
_PARQUET_BUFFER_BYTES = 1 << 20
_KINDS: dict[type, str] = {
    bool: "a true or false", int: "a number", float: "a number", list: "a list", dict: "an object", type(None): "null",
}  # fmt: skip


class Row(dict[str, object]):
    """A row that remembers where it was read, and its column when the file has no other."""

    __slots__ = ("place", "sole_column")
    place: str
    sole_column: str | None

    @classmethod
    def at(cls, place: str, row: object) -> Self:
        """Give a row its place; a plain string becomes a row with the field `text`."""
        if isinstance(row, str):
            row = {"text": row}
        elif not isinstance(row, dict):
            raise InputError(f"{place}: {describe_wrong_row(row)}")
        placed = cls(row)
        placed.place = place
        placed.sole_column = row.sole_column if isinstance(row, Row) else None
        return placed


def describe_wrong_row(row: object) -> str:
    return f"a row must be an object with named fields, or a string, but found {name_kind(row)}: write it so"


def name_kind(value: object) -> str:
    """The kind of a value from JSON, in words."""
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def list_names(names: Iterable[object]) -> str:
    """Write names for an error message, not more than can be read."""
    written = [repr(name) for name in names]
    more = f" and {len(written) - _NAMES_SHOWN} more" if len(written) > _NAMES_SHOWN else ""
    return (", ".join(written[:_NAMES_SHOWN]) + more) or "none"


@dataclass(frozen=True, slots=True)
class Format:
    """How a format is read, and what its numbers count."""

    read: Callable[[Source, Options], Generator[Numbered, None, None]]
    numbers_rows: bool = False  # or lines

    def place(self, source: Source, number: int) -> str:
        return f"{source.name}, row {number}" if self.numbers_rows else source.place(number)


def _line_rows(source: Source, options: Options, *, parse: Parse) -> Generator[Numbered, None, None]:
    with source.open(options.on_bytes) as stream:
        yield from parse(lines_of(stream, source), source, options)


def _peek(lines: Iterable[AnyStr]) -> tuple[AnyStr | None, Iterator[AnyStr]]:
    """The first line that is not blank, and all lines: the blank ones too, so that the others keep their numbers."""
    lines = iter(lines)
    head: list[AnyStr] = []
    for line in lines:
        head.append(line)
        if not line.isspace():
            break
    return head[-1] if head else None, chain(head, lines)


# --- plain text and JSON


def _plain_texts(lines: Iterable[bytes], source: Source, options: Options) -> Iterator[Numbered]:
    if options.whole_files:
        lines = [b"".join(lines)]
    for number, raw in enumerate(lines, 1):
        try:
            text = decode_utf8(raw, source, first_line=number)
        except InputError as error:
            options.report_damage(error)
            continue
        if not options.whole_files:
            text = text.removesuffix("\n").removesuffix("\r")
        if text and not text.isspace():
            yield number, text


def _json_lines(lines: Iterable[bytes], source: Source, options: Options) -> Iterator[Numbered]:
    # Decoding here and calling the decoder itself saves the time that `json.loads` spends on guessing the encoding of
    # each line. Unusual lines, such as blank ones or those with leading spaces, take the slower path.
    parse = json.JSONDecoder().raw_decode
    for number, raw in enumerate(lines, 1):
        try:
            text = raw.decode()
            row, end = parse(text)
        except (ValueError, RecursionError):
            end = -1
        if end >= 0 and not text[end:].strip(" \t\r\n"):
            yield number, row
        elif raw.strip():
            try:
                row = _parse_json_line(raw, source, number)
            except InputError as error:
                options.report_damage(error)
            else:
                yield number, row


def _parse_json_line(raw: bytes, source: Source, number: int) -> object:
    text = decode_utf8(raw, source, first_line=number)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        advice = "write one JSON object or string a line, or use a .txt file for plain lines"
        raise _json_error(source.place(number), text, error, advice) from None


def _json_rows(source: Source, options: Options) -> Generator[Numbered, None, None]:
    with source.open(options.on_bytes) as stream:
        text = decode_utf8(b"".join(lines_of(stream, source)), source)
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        advice = "repair the file, or name it .jsonl if each line is a row of its own"
        raise _json_error(f"{source.name}:{line}", text, error, advice) from None
    if not isinstance(rows, list):
        raise InputError(
            f"{source.name}: a .json file must hold a list of rows or strings, but found "
            f"{_excerpt(text, 0)}: put the rows in a list, or one a line in a .jsonl file"
        )
    yield from enumerate(rows, 1)


def _json_error(place: str, text: str, error: Exception, advice: str) -> InputError:
    position, reason = (error.pos, error.msg) if isinstance(error, json.JSONDecodeError) else (0, str(error))
    return InputError(f"{place}: not valid JSON ({reason}), found {_excerpt(text, position)}: {advice}")


def _excerpt(text: str, position: int) -> str:
    start, end = max(0, position - _EXCERPT_CHARACTERS), position + _EXCERPT_CHARACTERS
    before, after = "…" if start else "", "…" if end < len(text.rstrip()) else ""
    return repr(before + text[start:end].strip() + after)


def _json_lines_or_texts(lines: Iterable[bytes], source: Source, options: Options) -> Iterator[Numbered]:
    """Standard input: JSON lines if the first line that is not blank begins with a brace."""
    first, lines = _peek(lines)
    parse = _json_lines if first and first.lstrip().startswith(b"{") else _plain_texts
    return parse(lines, source, options)


def _json_lines_or_table(lines: Iterable[bytes], source: Source, options: Options) -> Iterator[Numbered]:
    """Standard input with columns: JSON lines, or a table whose header is separated by tabs, commas or semicolons."""
    peeked, lines = _peek(lines)
    first = peeked or b""
    if first.lstrip().startswith(b"{"):
        return _json_lines(lines, source, options)
    if not any(mark in first for mark in (b"\t", b",", b";")):
        found = _excerpt(first.decode(errors="replace"), 0) if first.strip() else "nothing"
        raise InputError(
            f"{source.name}: rows with a label must be JSON lines, or a table whose first line names its columns, "
            f"separated by commas, semicolons or tabs; found {found}: write it so, or name a file"
        )
    return parse_separated(lines, source, options, separator="\t" if b"\t" in first else ",")


# --- tables


def parse_separated(
    raw_lines: Iterable[bytes], source: Source, options: Options, *, separator: str
) -> Iterator[tuple[int, Row]]:
    """Iterate over the rows of a table of lines, the first of which names the columns.

    Where the first line lacks the separator of the suffix but has another one, that one separates the columns: in many
    countries, spreadsheets save .csv files with semicolons.
    """
    # The limit belongs to the whole process and guards against broken quoting, which `strict` catches anyway.
    # It is only ever raised: to lower it again would break another reader that is still at work.
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_FIELD_CHARACTERS))
    # a line that is not UTF-8 may be part of a longer row, so where rows may be skipped it is decoded all the same
    numbered = enumerate(raw_lines, 1)
    lines: Iterator[str]
    if options.on_damage is None:
        lines = (decode_utf8(raw, source, first_line=number) for number, raw in numbered)
    else:
        lines = (raw.decode(errors="surrogateescape") for _, raw in numbered)
    first, lines = _peek(lines)
    others = [mark for mark in _SEPARATORS if mark in (first or "")]
    separator = separator if separator in others or not others else others[0]
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
        if len(values) < len(header):
            advice = "fill in what is missing"
        elif len(header) == 1:
            advice = "separate the columns by commas, semicolons or tabs, and put quotes around values that hold one"
        else:
            advice = f"put quotes around values that hold a {_SEPARATORS[separator]}"
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


# --- Parquet


def parquet_rows(source: Source, options: Options) -> Generator[tuple[int, dict[str, object]], None, None]:
    """Iterate over the rows of a Parquet file, or of some of its row groups, reading only the columns needed."""
    with _open_parquet(source) as file:
        names: list[str] = file.schema_arrow.names
        columns = names if options.columns is None else options.columns(names)
        groups = range(file.metadata.num_row_groups)[source.begin : source.end]
        counts = [file.metadata.row_group(group).num_rows for group in range(groups.stop)]
        skipped, rows = sum(counts[: groups.start]), sum(counts[groups.start :])
        # bytes are reported in proportion to rows, because columns may lie anywhere in the file
        size = sum(row_group_bytes(source)[groups.start : groups.stop]) if options.on_bytes is not None else 0
        done = reported = 0
        for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=columns, row_groups=list(groups)):
            if options.on_bytes is not None:
                reached = size * (done + batch.num_rows) // rows
                options.on_bytes(reached - reported)
                reported = reached
            yield from enumerate(batch.to_pylist(), skipped + done + 1)
            done += batch.num_rows
        if options.on_bytes is not None and reported < size:
            options.on_bytes(size - reported)


def row_group_bytes(source: Source) -> list[int]:
    """About how many bytes of the file each row group has; together they are all of it."""
    with _open_parquet(source) as file:
        size = source.state().size
        sizes = [file.metadata.row_group(group).total_byte_size for group in range(file.metadata.num_row_groups)]
    reached = [size * sum(sizes[: group + 1]) // max(1, sum(sizes)) for group in range(len(sizes))]
    return [after - before for before, after in pairwise([0, *reached])]


@contextmanager
def _open_parquet(source: Source) -> Iterator[ParquetFile]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet", "Reading a .parquet file") from None
    with replace(source, begin=0, end=None).open():
        pass  # an unreadable file is reported like any other; the stretch counts row groups, not bytes
    try:
        where = source.path.open() if isinstance(source.path, Remote) else source.path
        with pyarrow.parquet.ParquetFile(where, buffer_size=_PARQUET_BUFFER_BYTES) as file:
            yield file
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{source.name}: not a valid Parquet file ({error}): download it, or write it, again"
        ) from error


_TEXT = Format(partial(_line_rows, parse=_plain_texts))
_JSON_LINES = Format(partial(_line_rows, parse=_json_lines))
_TABLES = {mark: Format(partial(_line_rows, parse=partial(parse_separated, separator=mark))) for mark in ",\t"}

FORMATS: dict[str, Format] = {
    ".txt": _TEXT,
    ".text": _TEXT,
    ".md": _TEXT,
    ".jsonl": _JSON_LINES,
    ".ndjson": _JSON_LINES,
    ".json": Format(_json_rows, numbers_rows=True),
    ".csv": _TABLES[","],
    ".tsv": _TABLES["\t"],
    ".parquet": Format(parquet_rows, numbers_rows=True),
    STDIN: Format(partial(_line_rows, parse=_json_lines_or_texts)),
}

# where rows have labels, standard input may be a table; without labels its lines are prompts
LABELLED_STDIN = Format(partial(_line_rows, parse=_json_lines_or_table))
