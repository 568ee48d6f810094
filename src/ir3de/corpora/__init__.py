"""Texts: read from files, folders, patterns, addresses and standard input; labelled, split, checked for repeats.

    files.sources    what the caller names      -> one `Source` a file, in an order that never changes
    files.formats    a `Source`                 -> numbered rows, one at a time
    rows             a row                      -> its text
    labels           a row, a folder            -> labels, which name experts
    labelled         labelled data of any shape -> {label: texts}
    repeats          {label: texts}             -> prompts that occur twice, or with several labels
    holdout          {label: texts}             -> prompts to fit on, and prompts to measure with
    routes           a file of another router   -> {label: texts}, descriptions, and what has no place here

Only the buffer, the current row and the list of file names are in memory; `read_labelled` alone keeps its texts.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from ir3de.corpora.holdout import is_held_out, split_held_out
from ir3de.corpora.labelled import Labelled, read_labelled
from ir3de.corpora.routes import ImportedRoutes, import_routes
from ir3de.corpora.rows import columns_with_text, text_in, text_of
from ir3de.errors import InputError
from ir3de.files.formats import FORMATS, Row
from ir3de.files.sources import expand
from ir3de.files.streams import Options, Source

__all__ = [
    "ImportedRoutes", "Labelled", "Source", "expand", "import_routes", "is_held_out", "read_labelled", "read_rows",
    "read_texts", "split_held_out", "text_of", "texts_in", "total_bytes",
]  # fmt: skip


def read_texts(
    sources: Iterable[str | Path],
    *,
    field: str | None = None,
    whole_files: bool = False,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[str]:
    """Stream every text of every source, in order, leaving out the empty ones.

    A source is a file, a folder, a glob pattern, an address (s3://…) of these, or `-` for standard input. Names
    are checked at the call, contents as they are read. `field` names the field (or `a.b` path) that holds the text;
    `whole_files` makes each plain-text file one text instead of one a line; `on_bytes` is called with the number
    of bytes read from disk since its last call. Texts remember the `source` of their row, as in `text_of`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("What is a cell?\\n\\nProve it.\\n")
    ...     _ = Path(folder, "b.jsonl").write_text('{"prompt": "Sort a list."}\\n')
    ...     list(read_texts([folder]))
    ['What is a cell?', 'Prove it.', 'Sort a list.']
    """
    return _texts(expand(sources), field, Options(whole_files, partial(columns_with_text, field=field), on_bytes))


def texts_in(
    source: Source,
    *,
    field: str | None = None,
    whole_files: bool = False,
    on_bytes: Callable[[int], None] | None = None,
    on_damage: Callable[[InputError], None] | None = None,
) -> Iterator[str]:
    """Stream the texts of one source; `on_damage` is called for records that cannot be read, which are then skipped."""
    options = Options(whole_files, partial(columns_with_text, field=field), on_bytes, on_damage)
    return _texts([source], field, options)


def read_rows(
    sources: Iterable[str | Path],
    *,
    on_bytes: Callable[[int], None] | None = None,
    on_damage: Callable[[InputError], None] | None = None,
) -> Iterator[dict[str, object]]:
    """Stream every row of every source with all its fields; a plain string becomes `{"text": string}`.

    Each row remembers its file and line, and the errors of `text_of` name them. `on_damage` is
    called for rows that cannot be read, which are then skipped.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "q.jsonl").write_text('{"id": 7, "text": "Sort a list."}\\n"Prove it."\\n')
    ...     for row in read_rows([folder]):
    ...         print(row, "->", text_of(row))
    {'id': 7, 'text': 'Sort a list.'} -> Sort a list.
    {'text': 'Prove it.'} -> Prove it.
    """
    return _rows(expand(sources), Options(on_bytes=on_bytes, on_damage=on_damage))


def total_bytes(sources: Iterable[str | Path]) -> int | None:
    """Count the bytes on disk of every file the sources name; None when standard input is among them.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_bytes(b"Prove it.")
    ...     total_bytes([folder]), total_bytes([folder, "-"])
    (9, None)
    """
    found = expand(sources)
    return None if any(source.path is None for source in found) else sum(source.state().size for source in found)


def _texts(sources: list[Source], field: str | None, options: Options) -> Iterator[str]:
    for source in sources:
        form = FORMATS[source.kind]
        # `closing` closes the file at once when the caller stops early, without waiting for the garbage collector.
        with closing(form.read(source, options)) as rows:
            for number, row in rows:
                try:
                    text = text_in(row, field)
                except InputError as error:
                    options.report_damage(InputError(f"{form.place(source, number)}: {error}"))
                    continue
                if text and not text.isspace():
                    yield text


def _rows(sources: list[Source], options: Options) -> Iterator[dict[str, object]]:
    for source in sources:
        form = FORMATS[source.kind]
        with closing(form.read(source, options)) as rows:
            for number, row in rows:
                try:
                    placed = Row.at(form.place(source, number), row)
                except InputError as error:
                    options.report_damage(error)
                    continue
                yield placed
