"""feedback list, export, forget and import: the journal of a gateway, and what people think of its answers."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import IO, TYPE_CHECKING, Any

import click

from ir3de.cli import lib
from ir3de.cli.formats import FAINT, line
from ir3de.cli.options import force_option, gather_options, output_options, refuse_existing
from ir3de.cli.output import MOST_ROWS, Block, Output, Result, facts, hint, table
from ir3de.errors import InputError

if TYPE_CHECKING:
    from ir3de.traffic import Feedback, Journal, Selection, TrafficRecord

MOMENTS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S")
MAX_COMMENT_CHARS = 60  # of a comment in the table
COLUMNS = (
    "time", "request", "response", "key", "router", "decided", "served", "propensity", "confidence", "status",
    "prompt_tokens", "completion_tokens", "cost", "author", "expert", "score", "comment", "text",
)  # fmt: skip


@dataclass(frozen=True)
class Chosen:
    """Which requests of which journal a command is about."""

    folder: Path
    key: str | None
    since: datetime | None
    until: datetime | None

    def select(self, *, has_feedback: bool = False, of_key: bool = True) -> Selection:
        since, until = (
            None if one is None else one.replace(tzinfo=UTC).timestamp() for one in (self.since, self.until)
        )
        key = self.key if of_key else None
        return lib.traffic.Selection(key=key, since=since, until=until, has_feedback=has_feedback)


def choosing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --from, --key, --since and --until. The command gets them as `chosen`."""
    moment = click.DateTime(MOMENTS)
    folder = click.Path(path_type=Path)
    return gather_options(
        "chosen",
        Chosen,
        click.option("--from", "folder", type=folder, required=True, metavar="FOLDER", help="The feedback folder."),
        click.option("--key", metavar="NAME", help="Only requests of this client's key."),
        click.option("--since", type=moment, metavar="TIME", help="Only requests from then on, in UTC: 2026-01-31"),
        click.option("--until", type=moment, metavar="TIME", help="Only requests before then."),
    )(function)


@click.group()
def feedback() -> None:
    """Look at feedback, export it, delete it, and bring some from elsewhere.

    \b
    Examples:
      ir3de feedback list --from feedback --since 2026-01-31
      ir3de feedback export --from feedback labels.csv
      ir3de feedback forget --from feedback --key alice
    """


@feedback.command("list")
@choosing
@click.option("--all", "shows_all", is_flag=True, help="Also requests without feedback.")
@output_options
def list_feedback(chosen: Chosen, shows_all: bool, out: Output) -> None:
    """List feedback, the latest first.

    \b
    Example:
      ir3de feedback list --from feedback --key alice
    """
    with _open(chosen) as journal:
        selection = chosen.select(has_feedback=not shows_all)
        count, requests = journal.count(selection), journal.count(chosen.select())
        found = journal.read(selection)
        if out.as_json:
            out.json({"requests": requests, "data": [_to_document(one) for one in found]})
            return
        last = list(_take_last(found, MOST_ROWS))[::-1]
    rows = [row for one in last for row in _list_rows(one)]
    out.result(table("time", "key", "answered by", "feedback", "author", "comment", rows=rows))
    shown = f"{count:,} of {requests:,} requests have feedback" if not shows_all else f"{requests:,} requests"
    out.note(line((f"{shown}{'; the latest' if count > len(last) else ''}", FAINT)))
    if count:
        out.note(hint(f"ir3de feedback export --from {chosen.folder} feedback.jsonl", "all of it:"))


@feedback.command()
@choosing
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--all", "takes_all", is_flag=True, help="Also requests without feedback.")
@force_option
@output_options
def export(chosen: Chosen, target: Path, takes_all: bool, force: bool, out: Output) -> None:
    """Write requests and their feedback into a file.

    FILE ends in .jsonl or .csv; - is JSON Lines on standard output. JSON Lines have a row for each request, CSV has a
    row for each feedback.

    \b
    Example:
      ir3de feedback export --from feedback --since 2026-01-31 january.csv
    """
    is_stdout = str(target) == "-"
    if not is_stdout and target.suffix not in (".jsonl", ".csv"):
        raise InputError(f"{target}: the name must end in .jsonl or .csv")
    if not is_stdout:
        refuse_existing(target, force=force)
    with _open(chosen) as journal:
        found = journal.read(chosen.select(has_feedback=not takes_all))
        if is_stdout:
            _write_lines(found, sys.stdout)
            return
        with target.expanduser().open("w", encoding="utf-8", newline="") as file:
            count = _write_table(found, file) if target.suffix == ".csv" else _write_lines(found, file)
    document = {"file": str(target), "requests": count}
    out.show(document, [Result(line((f"{count:,} requests", "bold"), (f" in {target}", "")))])


@feedback.command()
@choosing
@click.option("--all", "takes_all", is_flag=True, help="Everything; needed without --key, --since and --until.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_options
def forget(chosen: Chosen, takes_all: bool, yes: bool, out: Output) -> None:
    """Delete requests with their feedback, and overwrite them in the file.

    With --key, feedback that this key gave on requests of others is deleted, too: nothing of the key is left in the
    journal. Logs, and routers that have learnt from the journal, are not changed: `ir3de forget` is for those.

    \b
    Example:
      ir3de feedback forget --from feedback --key alice
    """
    if not takes_all and (chosen.key, chosen.since, chosen.until) == (None, None, None):
        raise InputError("name what is to be deleted with --key, --since or --until, or everything with --all")
    with _open(chosen) as journal:
        selection, others = chosen.select(), chosen.select(of_key=False)
        requests = journal.count(selection)
        given = 0 if chosen.key is None else journal.count_feedback(lib.traffic.list_authors(chosen.key), others)
        what = f"{requests:,} requests" + (f", and feedback of {chosen.key} on {given:,}" if chosen.key else "")
        if (requests or given) and not yes:
            click.confirm(f"delete {what}, for ever?", abort=True, err=True)
        if chosen.key is not None:
            given = journal.delete_authors(lib.traffic.list_authors(chosen.key), others)
        requests = journal.delete(selection)
    document = {"folder": str(chosen.folder), "requests": requests, "feedback": given}
    out.show(document, [Result(line(("deleted ", ""), (what, "bold")))])


@feedback.command("import")
@click.option("--from", "folder", type=click.Path(path_type=Path), required=True, metavar="FOLDER",
              help="The feedback folder; it is made if there is none.")  # fmt: skip
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--author", metavar="NAME", help="Who gave it, instead of who the file names.")
@click.option("--best", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True, metavar="NUMBER",
              help="The score of a perfect answer, such as 5; the worst is 0.")  # fmt: skip
@output_options
def import_file(folder: Path, source: Path, author: str | None, best: float, out: Output) -> None:
    """Bring feedback of other tools into a journal.

    FILE is a table (.csv, .jsonl, .json, .parquet) of labels (text, expert; also source and time), of scores of
    Langfuse (traceId, name, value, comment), of OpenTelemetry's events gen_ai.evaluation.result, or of spend logs of
    LiteLLM (request_id, model, spend). Labels and spend logs bring requests of their own, with their texts. Scores must
    be about requests of the journal, by the id of the request or of its answer. Imported again, a file changes nothing.

    \b
    Example:
      ir3de feedback import --from feedback labels.csv
      ir3de feedback import --from feedback scores.json --best 5
    """
    with lib.traffic.Journal.create(folder) as journal:
        report = lib.imports.import_feedback(journal, source, author=author, best=best, now=time())
    found = {"requests added": report.requests, "feedback": report.feedback, "requests known already": report.known,
             "unmatched": report.unmatched, "wrong": report.wrong}  # fmt: skip
    rows = [(name, f"{count:,}") for name, count in found.items() if count or name == "feedback"]
    title = line((f"{report.rows:,} rows", "bold"), (f" of {source}: {report.kind}", ""))
    left_out = [line((f"left out: {text}", FAINT)) for text in report.examples]
    out.show(asdict(report), [Result(title), facts(rows), *left_out])
    if report.rows == report.unmatched + report.wrong:
        raise InputError(f"nothing of {source} could be imported: {report.examples[0]}")


# the journal --------------------------------------------------------------------------------------------------------


@contextmanager
def _open(chosen: Chosen) -> Iterator[Journal]:
    with lib.traffic.Journal.open(chosen.folder) as journal:
        yield journal


def _take_last(found: Iterable[TrafficRecord], most: int) -> Iterable[TrafficRecord]:
    from collections import deque

    return deque(found, most)


def format_time(seconds: float) -> str:
    """A time in UTC, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _list_rows(record: TrafficRecord) -> Iterator[tuple[Block, ...]]:
    about = line((format_time(record.time), FAINT)), record.key or "–", record.served or "–"
    for one in record.feedback:
        comment = one.comment if len(one.comment) <= MAX_COMMENT_CHARS else f"{one.comment[: MAX_COMMENT_CHARS - 1]}…"
        yield *about, _describe(one, record), one.author, line((" ".join(comment.split()), FAINT))
    if not record.feedback:
        yield *about, line(("–", FAINT)), "", ""


def _describe(feedback: Feedback, record: TrafficRecord) -> Block:
    """Green where the answer was right, red where it was not."""
    parts = []
    if feedback.expert is not None:
        parts.append((f"should be {feedback.expert}  ", "green" if feedback.expert == record.served else "red"))
    if feedback.score is not None:
        parts.append((f"{feedback.score:.2f}", "green" if feedback.score >= 0.5 else "red"))
    return line(*parts)


# files --------------------------------------------------------------------------------------------------------------


def _to_document(record: TrafficRecord) -> dict[str, Any]:
    """A request as JSON. Its prompt is text or token ids, as the journal has it."""
    found = {name: getattr(record, name) for name in record.__slots__ if name not in ("prompt", "feedback")}
    if record.prompt is not None:
        kept = list(record.prompt.turns) or [ids.tolist() for ids in record.prompt.ids]
        found["prompt"] = {"keep": record.prompt.keep, "turns": kept}
    given = [{name: getattr(one, name) for name in one.__slots__} for one in record.feedback]
    return {**found, "feedback": given}


def _write_lines(records: Iterable[TrafficRecord], file: IO[str]) -> int:
    count = 0
    for record in records:
        file.write(json.dumps(_to_document(record)) + "\n")
        count += 1
    return count


def _write_table(records: Iterable[TrafficRecord], file: IO[str]) -> int:
    writer, count = csv.writer(file), 0
    writer.writerow(COLUMNS)
    for record in records:
        count += 1
        text = "" if record.prompt is None else "\n".join(record.prompt.turns)
        moment = datetime.fromtimestamp(record.time, UTC).isoformat(timespec="milliseconds")
        about = (moment, record.id, record.response, *(getattr(record, name) for name in COLUMNS[3:13]))
        for one in record.feedback:
            writer.writerow((*about, one.author, one.expert, one.score, one.comment, text))
        if not record.feedback:
            writer.writerow((*about, "", "", "", "", text))
    return count
