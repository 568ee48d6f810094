"""The journal: routed requests and the feedback on them, in an SQLite file of the feedback folder.

    requests    one row per routed request, in the order of arrival
    feedback    at most one row per request and author, so that it can be repeated, changed and deleted

The workers of one gateway write it together, and commands read it meanwhile. What `append` and `put_feedback` have
written survives a kill and a power failure. A deleted row is overwritten in the file.
"""
# ruff: noqa: S608 - statements are built from the names of columns here, never from values

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from ir3de import files
from ir3de.errors import ArtifactError, InputError, VersionError, name_upgrade
from ir3de.files.database import close_with, open_database
from ir3de.traffic.records import Feedback, JournalPrompt, TrafficRecord
from ir3de.traffic.selection import ALL, Selection

JOURNAL_FILE = "journal.sqlite"
FEEDBACK_FOLDER = "feedback"  # in the state folder of a gateway, unless another one is named
VERSION = 1
APPLICATION_ID = 0x49523344  # "IR3D": what SQLite writes into the file's header
READ_ROWS = 2_000  # fetched at a time
WAIT_MS = 5_000  # for another process that writes
LARGEST_NUMBER = 2**63 - 1  # of a row in SQLite

_COLUMNS = ("id", "response", "time", "key", "router", "decided", "served")
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS requests (number INTEGER PRIMARY KEY, id TEXT, response TEXT, time REAL, key TEXT, "
    "router TEXT, decided TEXT, served TEXT, details TEXT, keep TEXT, prompt BLOB)",
    "CREATE INDEX IF NOT EXISTS ids ON requests (id)",
    "CREATE INDEX IF NOT EXISTS responses ON requests (response) WHERE response != ''",
    "CREATE INDEX IF NOT EXISTS times ON requests (time)",
    "CREATE TABLE IF NOT EXISTS feedback (request INTEGER, author TEXT, time REAL, expert TEXT, score REAL, "
    "comment TEXT, PRIMARY KEY (request, author)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID",
)
_DETAILS = tuple(one.name for one in fields(TrafficRecord) if one.name not in (*_COLUMNS, "prompt", "feedback"))
_DEFAULTS = tuple(one.default for one in fields(TrafficRecord) if one.name in _DETAILS)
_get_columns, _get_details = attrgetter(*_COLUMNS), attrgetter(*_DETAILS)
_INSERT = f"INSERT INTO requests ({', '.join(_COLUMNS)}, details, keep, prompt) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Journal:
    """The journal in a folder.

    >>> import tempfile
    >>> journal = Journal.create(tempfile.mkdtemp())
    >>> journal.append([TrafficRecord("r1", 1.0, key="alice", decided="law", served="law")])
    >>> journal.put_feedback("r1", Feedback("alice", 2.0, expert="maths"))
    >>> [(one.id, one.feedback[0].expert) for one in journal.read()]
    [('r1', 'maths')]
    >>> journal.delete(Selection(key="alice"))
    1
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._explain("opened"):
            self._database = open_database(path, ())
            close_with(self, self._database)
            pragmas = ("synchronous=FULL", "secure_delete=ON", "wal_autocheckpoint=1000", f"busy_timeout={WAIT_MS}")
            for pragma in pragmas:
                self._database.execute(f"PRAGMA {pragma}")
            with self._transaction():  # processes that start together create the tables one after another
                self._check_version()
                for statement in _SCHEMA:
                    self._database.execute(statement)

    @classmethod
    def create(cls, folder: str | Path) -> Journal:
        """The journal of a feedback folder, which is made if there is none."""
        folder = Path(folder).expanduser()
        files.make_folder(folder, mode=0o700)
        return cls(folder / JOURNAL_FILE)

    @classmethod
    def open(cls, folder: str | Path) -> Journal:
        """The journal in a feedback folder, or in the state folder of a gateway."""
        folder = Path(folder).expanduser()
        for path in (folder / JOURNAL_FILE, folder / FEEDBACK_FOLDER / JOURNAL_FILE, folder):
            if path.is_file():
                return cls(path)
        raise InputError(
            f"{folder} has no journal ({JOURNAL_FILE}): name the folder in `feedback.folder` of the gateway's "
            "configuration, or the state folder that holds it. Without `feedback` a gateway keeps no journal"
        )

    def _check_version(self) -> None:
        (found,) = self._database.execute("PRAGMA application_id").fetchone()
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        (tables,) = self._database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if not found and not tables:  # it is new
            self._database.execute(f"PRAGMA application_id={APPLICATION_ID}")
            self._database.execute(f"PRAGMA user_version={VERSION}")
        elif found != APPLICATION_ID:
            raise ArtifactError(f"{self.path} is an SQLite file, but not a journal of IR3DE: nothing was changed")
        elif version > VERSION:
            raise VersionError(
                f"{self.path} has version {version}, this package knows up to {VERSION}: {name_upgrade()}"
            )

    @contextmanager
    def _explain(self, what: str) -> Iterator[None]:
        """Errors of SQLite as errors about this file."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if isinstance(error, ArtifactError):
                raise
            why = getattr(error, "strerror", None) or error
            raise ArtifactError(
                f"{self.path} cannot be {what}: {why}. What it holds is unchanged; if it is damaged, put a copy back"
            ) from error

    # requests ---------------------------------------------------------------------------------------------------

    def append(self, records: Iterable[TrafficRecord]) -> None:
        """Write requests, all or none."""
        rows = [_to_row(record) for record in records]
        with self._explain("written"), self._transaction():
            self._database.executemany(_INSERT, rows)

    def read(
        self,
        selection: Selection = ALL,
        *,
        prompts: bool = True,
        on_damage: Callable[[ArtifactError], None] | None = None,
    ) -> Iterator[TrafficRecord]:
        """The requests in the order of their arrival, each with its feedback; `on_damage` gets damaged ones."""
        where, values = selection.build_where()
        kept = "keep, prompt" if prompts else "NULL, NULL"
        chosen = f"SELECT number, {', '.join(_COLUMNS)}, details, {kept} FROM requests WHERE {where}"
        last = 0
        while True:
            with self._explain("read"):
                rows = self._database.execute(
                    f"{chosen} AND number > ? ORDER BY number LIMIT {READ_ROWS}", (*values, last)
                ).fetchall()
                if not rows:
                    return
                given = self._read_feedback(rows[0][0], rows[-1][0])
            for number, *row in rows:
                try:
                    record = self._from_row(row, given.get(number, ()))
                except ArtifactError as error:
                    if on_damage is None:
                        raise
                    on_damage(error)
                else:
                    yield record
            last = rows[-1][0]

    def read_after(self, number: int, most: int) -> tuple[int, list[TrafficRecord]]:
        """The requests after that one, evenly spread if they are more than `most`; and the number of the last."""
        with self._explain("read"):
            number = number if self._find_last() >= number else 0  # all were deleted: numbers began anew
            query = "SELECT count(*), max(number) FROM requests WHERE number > ?"
            many, last = self._database.execute(query, (number,)).fetchone()
            step = max(-(-many // most), 1)
            rows = self._select("number > ? AND number % ? = 0 ORDER BY number", number, step)
        return last or number, self._from_rows(rows)

    def read_before(self, number: int | None, most: int) -> tuple[int, list[TrafficRecord]]:
        """The last requests before that one, or of all, in the order of their arrival; and the number of the first.

        If there are fewer than `most`, nothing is before them, and the number is 0.
        """
        with self._explain("read"):
            rows = self._select("number < ? ORDER BY number DESC LIMIT ?", number or LARGEST_NUMBER, most)[::-1]
        return rows[0][0] if len(rows) == most else 0, self._from_rows(rows)

    def _select(self, where: str, *values: int) -> list[Any]:
        query = f"SELECT number, {', '.join(_COLUMNS)}, details, keep, prompt FROM requests WHERE {where}"
        return self._database.execute(query, values).fetchall()

    def _from_rows(self, rows: Sequence[Any]) -> list[TrafficRecord]:
        """The requests of rows in ascending order, without damaged ones, which `read` reports."""
        found = []
        with self._explain("read"):
            given = self._read_feedback(rows[0][0], rows[-1][0]) if rows else {}
        for number, *row in rows:
            with suppress(ArtifactError):
                found.append(self._from_row(row, given.get(number, ())))
        return found

    def _find_last(self) -> int:
        (last,) = self._database.execute("SELECT max(number) FROM requests").fetchone()
        return int(last or 0)

    def read_note(self, name: str) -> bytes | None:
        """What was computed from the requests and kept under that name."""
        with self._explain("read"):
            row = self._database.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def write_notes(self, notes: Mapping[str, bytes]) -> None:
        """Keep what was computed from the requests. It is deleted when somebody's requests are."""
        with self._explain("written"), self._transaction():
            self._database.executemany("INSERT OR REPLACE INTO notes VALUES (?, ?)", notes.items())

    def _read_feedback(self, first: int, last: int) -> dict[int, list[Feedback]]:
        found: dict[int, list[Feedback]] = {}
        query = "SELECT * FROM feedback WHERE request BETWEEN ? AND ? ORDER BY request, author"
        for number, *values in self._database.execute(query, (first, last)):
            found.setdefault(number, []).append(Feedback(*values))
        return found

    def _from_row(self, row: Sequence[Any], feedback: Iterable[Feedback]) -> TrafficRecord:
        *columns, details, keep, prompt = row
        try:
            values = json.loads(details)
            if "ranking" in values:
                values["ranking"] = tuple((str(name), float(value)) for name, value in values["ranking"])
            kept = None if prompt is None else JournalPrompt.decode(keep, prompt)
            own = dict(zip(_COLUMNS, columns, strict=True))
            return TrafficRecord(**own, **values, prompt=kept, feedback=tuple(feedback))
        except (TypeError, ValueError) as error:
            raise ArtifactError(f"{self.path} is damaged at request {columns[0]!r:.80}: {error}") from error

    def count(self, selection: Selection = ALL) -> int:
        where, values = selection.build_where()
        with self._explain("read"):
            (number,) = self._database.execute(f"SELECT count(*) FROM requests WHERE {where}", values).fetchone()
        return int(number)

    def delete(self, selection: Selection, *, keeps_notes: bool = False) -> int:
        """Delete requests with their feedback, and overwrite what they held; returns how many there were.

        Notes are about all requests, so they are deleted, too, unless the requests are just old.
        """
        where, values = selection.build_where()
        numbers = f"SELECT number FROM requests WHERE {where}"
        with self._explain("changed"):
            with self._transaction():
                self._database.execute(f"DELETE FROM feedback WHERE request IN ({numbers})", values)
                deleted = self._database.execute(f"DELETE FROM requests WHERE number IN ({numbers})", values).rowcount
                if not keeps_notes:
                    self._database.execute("DELETE FROM notes")
            self._empty_log()
        return deleted

    def _empty_log(self) -> None:
        """Overwrite deleted rows in the file itself, and take them out of the log that SQLite writes first."""
        with suppress(sqlite3.OperationalError):  # a reader is active: the next checkpoint does it
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # feedback ---------------------------------------------------------------------------------------------------

    def find(self, request_id: str, *, key: str | None = None) -> TrafficRecord | None:
        """The last request of that id, or with an answer of that id; with a key, only a request of that key."""
        number = self._find_number(request_id, key)
        if number is None:
            return None
        query = f"SELECT {', '.join(_COLUMNS)}, details, keep, prompt FROM requests WHERE number = ?"
        with self._explain("read"):
            row = self._database.execute(query, (number,)).fetchone()
            given = self._read_feedback(number, number)
        return None if row is None else self._from_row(row, given.get(number, ()))

    def _find_number(self, request_id: str, key: str | None) -> int | None:
        of_key, values = ("", [request_id]) if key is None else (" AND key = ?", [request_id, key])
        with self._explain("read"):
            for column in ("id", "response"):
                query = f"SELECT max(number) FROM requests WHERE {column} = ?{of_key}"
                (number,) = self._database.execute(query, values).fetchone()
                if number is not None:
                    return int(number)
        return None

    def put_feedback(self, request_id: str, feedback: Feedback, *, key: str | None = None) -> None:
        """Write an author's feedback on a request, in place of the author's earlier feedback."""
        number = self._require(request_id, key)
        row = (number, feedback.author, feedback.time, feedback.expert, feedback.score, feedback.comment)
        with self._explain("written"):
            self._database.execute("INSERT OR REPLACE INTO feedback VALUES (?, ?, ?, ?, ?, ?)", row)

    def put_all(self, given: Iterable[tuple[str, Feedback]]) -> int:
        """Write feedback on many requests, all or none, except for requests that are not there; returns how much."""
        rows = [(self._find_number(request_id, None), one) for request_id, one in given]
        values = [(number, *astuple(one)) for number, one in rows if number is not None]
        with self._explain("written"), self._transaction():
            self._database.executemany("INSERT OR REPLACE INTO feedback VALUES (?, ?, ?, ?, ?, ?)", values)
        return len(values)

    def delete_feedback(self, request_id: str, author: str, *, key: str | None = None) -> bool:
        """Delete an author's feedback on a request; whether there was any."""
        number = self._require(request_id, key)
        with self._explain("written"):
            query = "DELETE FROM feedback WHERE request = ? AND author = ?"
            return self._database.execute(query, (number, author)).rowcount == 1

    def count_feedback(self, authors: Sequence[str], selection: Selection = ALL) -> int:
        """How often these authors gave feedback on these requests."""
        where, values = self._of_authors(authors, selection)
        with self._explain("read"):
            (number,) = self._database.execute(f"SELECT count(*) FROM feedback WHERE {where}", values).fetchone()
        return int(number)

    def delete_authors(self, authors: Sequence[str], selection: Selection = ALL) -> int:
        """Delete all feedback of these authors on these requests, and overwrite it; returns how much there was."""
        where, values = self._of_authors(authors, selection)
        with self._explain("changed"):
            deleted = self._database.execute(f"DELETE FROM feedback WHERE {where}", values).rowcount
            self._empty_log()
        return deleted

    def _of_authors(self, authors: Sequence[str], selection: Selection) -> tuple[str, list[Any]]:
        where, values = selection.build_where()
        of = f"{_name_any('author', authors)} AND request IN (SELECT number FROM requests WHERE {where})"
        return of, [*authors, *values]

    def delete_labels(
        self,
        *,
        authors: Sequence[str] = (),
        key: str | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> int:
        """Delete the feedback that these authors gave or that requests of a key got, in that time; returns how much."""
        some = [(_name_any("author", authors), list(authors))] if authors else []
        some += [("request IN (SELECT number FROM requests WHERE key = ?)", [key])] if key is not None else []
        when = [(text, value) for text, value in (("time >= ?", since), ("time < ?", until)) if value is not None]
        where = " AND ".join([f"({' OR '.join(text for text, _ in some) or '1'})", *(text for text, _ in when)])
        with self._explain("changed"):
            values = [one for _, values in some for one in values] + [value for _, value in when]
            deleted = self._database.execute(f"DELETE FROM feedback WHERE {where}", values).rowcount
            self._empty_log()
        return deleted

    def _require(self, request_id: str, key: str | None) -> int:
        number = self._find_number(request_id, key)
        if number is None:
            raise InputError(
                f"no request {request_id[:200]!r}: it was not routed here, belongs to another key, or is no longer kept"
            )
        return number

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _name_any(column: str, values: Sequence[str]) -> str:
    return f"{column} IN ({', '.join('?' * len(values))})"


def _to_row(record: TrafficRecord) -> tuple[Any, ...]:
    """The row without fields that have their default value, which are most."""
    found = zip(_DETAILS, _get_details(record), _DEFAULTS, strict=True)
    details = {name: value for name, value, default in found if value != default}
    prompt = record.prompt
    kept = (None, None) if prompt is None else (prompt.keep, prompt.encode())
    return (*_get_columns(record), json.dumps(details), *kept)
