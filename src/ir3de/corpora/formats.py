"""The formats, by suffix: each turns a source into numbered rows, one at a time."""

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

from ir3de.corpora.streams import STDIN, Options, Source, decode_utf8, lines_of
from ir3de.corpora.tables import parquet_rows, parse_separated
from ir3de.errors import InputError

Numbered = tuple[int, object]  # the line or the row number, from 1, and the row

_EXCERPT_CHARACTERS = 30  # characters shown on each side of what is wrong


@dataclass(frozen=True, slots=True)
class Format:
    """How a format is read, and what its numbers count."""

    read: Callable[[Source, Options], Generator[Numbered, None, None]]
    numbers_rows: bool = False  # or lines

    def place(self, source: Source, number: int) -> str:
        return f"{source.name}, row {number}" if self.numbers_rows else source.place(number)


Parse = Callable[[Iterable[bytes], Source, Options], Iterator[Numbered]]


def _line_rows(source: Source, options: Options, *, parse: Parse) -> Generator[Numbered, None, None]:
    with source.open(options.on_bytes) as stream:
        yield from parse(lines_of(stream, source), source, options)


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


def _json_lines_or_texts(lines: Iterable[bytes], source: Source, options: Options) -> Iterator[Numbered]:
    """Standard input: JSON lines if the first line that is not blank begins with a brace."""
    first, lines = _peek(lines)
    parse = _json_lines if first.lstrip().startswith(b"{") else _plain_texts
    return parse(lines, source, options)


def _json_lines_or_table(lines: Iterable[bytes], source: Source, options: Options) -> Iterator[Numbered]:
    """Standard input with columns: JSON lines, or a table whose header is separated by tabs, commas or semicolons."""
    first, lines = _peek(lines)
    if first.lstrip().startswith(b"{"):
        return _json_lines(lines, source, options)
    if not any(mark in first for mark in (b"\t", b",", b";")):
        found = _excerpt(first.decode(errors="replace"), 0) if first.strip() else "nothing"
        raise InputError(
            f"{source.name}: rows with a label must be JSON lines, or a table whose first line names its columns, "
            f"separated by commas, semicolons or tabs; found {found}: write it so, or name a file"
        )
    return parse_separated(lines, source, options, separator="\t" if b"\t" in first else ",")


def _peek(lines: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first line that is not blank, and all lines: the blank ones too, so that the others keep their numbers."""
    lines = iter(lines)
    head: list[bytes] = []
    for line in lines:
        head.append(line)
        if not line.isspace():
            break
    return head[-1], chain(head, lines)


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
    # Decoding here and calling the decoder itself saves what `json.loads` spends on guessing the encoding of
    # each line. Whatever is unusual, blank lines and leading spaces included, goes the careful way.
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


def _json_error(place: str, text: str, error: Exception, advice: str) -> InputError:
    position, reason = (error.pos, error.msg) if isinstance(error, json.JSONDecodeError) else (0, str(error))
    return InputError(f"{place}: not valid JSON ({reason}), found {_excerpt(text, position)}: {advice}")


def _excerpt(text: str, position: int) -> str:
    start, end = max(0, position - _EXCERPT_CHARACTERS), position + _EXCERPT_CHARACTERS
    before, after = "…" if start else "", "…" if end < len(text.rstrip()) else ""
    return repr(before + text[start:end].strip() + after)


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
