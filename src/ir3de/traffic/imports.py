"""Feedback of other tools for the journal: labels, scores of Langfuse and OpenTelemetry, spend logs of LiteLLM.

Labels and spend logs bring requests of their own. Scores are about requests that the journal has, by the id of the
request or of the answer; the others are counted as unmatched. A file that is imported again changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from ir3de.corpora import read_rows, text_of
from ir3de.errors import InputError
from ir3de.files.formats import list_names
from ir3de.traffic.journal import Journal
from ir3de.traffic.records import MAX_COMMENT_CHARS, MAX_NAME_CHARS, Feedback, JournalPrompt, TrafficRecord

EVENT = "gen_ai.evaluation.result"
LABEL_SCORE = "expert"  # a score of this name, whose value is a word, is a label
BATCH_ROWS = 500
MAX_EXAMPLES = 3
MILLISECONDS_FROM = 1e11  # a time beyond the year 5138 is in milliseconds
_TRUTH = {"true": 1.0, "false": 0.0}

Fields = Mapping[str, Any]


class WrongRowError(ValueError):
    """A row that cannot be used, and why."""


class Item(NamedTuple):
    """One row of a file: a request that the journal may lack, feedback on a request, or both."""

    ids: tuple[str, ...]  # of the request, the likeliest first
    feedback: Feedback | None = None
    record: TrafficRecord | None = None


@dataclass
class ImportReport:
    """What was imported, and what was not."""

    kind: str
    rows: int = 0
    requests: int = 0  # that were added
    feedback: int = 0
    known: int = 0  # requests that were there already
    unmatched: int = 0
    wrong: int = 0
    examples: list[str] = field(default_factory=list)  # of what was left out


def import_feedback(
    journal: Journal, path: str | Path, *, author: str | None = None, best: float = 1.0, now: float
) -> ImportReport:
    """Import a file. `author` replaces the one that the file names, `best` is the score of a perfect answer."""
    rows = _expand(_read(Path(path)))
    if (first := next(rows, None)) is None:
        raise InputError(f"{path} has no rows")
    kind, read = _recognise(first, str(path))
    report, rows = ImportReport(kind), chain([first], rows)
    while batch := list(islice(rows, BATCH_ROWS)):
        report.rows += len(batch)
        _write(journal, list(_understand(batch, _bind(read, author, best, now), report)), report)
    return report


def _bind(
    read: Callable[[Fields, float, float], Item], author: str | None, best: float, now: float
) -> Callable[[Fields], Item]:
    """The reader of one kind of row, with the options of the import."""

    def read_one(row: Fields) -> Item:
        item = read(row, best, now)
        if author is None or item.feedback is None:
            return item
        given = item.feedback
        return item._replace(feedback=Feedback(author, given.time, given.expert, given.score, given.comment))

    return read_one


def _understand(batch: Iterable[Fields], read: Callable[[Fields], Item], report: ImportReport) -> Iterator[Item]:
    for row in batch:
        try:
            yield read(row)
        except (WrongRowError, InputError) as error:
            report.wrong += 1
            _note(report, str(error))


def _write(journal: Journal, items: list[Item], report: ImportReport) -> None:
    new: dict[str, TrafficRecord] = {}
    for item in items:
        if item.record is not None and item.record.id not in new:
            if journal.find(item.record.id) is None:
                new[item.record.id] = item.record
            else:
                report.known += 1
    journal.append(new.values())
    report.requests += len(new)
    matched = []
    for item in items:
        if item.feedback is None:
            continue
        found = next((one for one in item.ids if journal.find(one) is not None), None)
        if found is None:
            report.unmatched += 1
            _note(report, f"no request {item.ids[0][:80]!r}")
        else:
            matched.append((found, item.feedback))
    report.feedback += journal.put_all(matched)


def _note(report: ImportReport, text: str) -> None:
    if len(report.examples) < MAX_EXAMPLES:
        report.examples.append(text)


# reading ------------------------------------------------------------------------------------------------------------


def _read(path: Path) -> Iterator[Fields]:
    """The rows of a table, or of JSON: a list, an answer of an API with a list in `data`, or an OTLP document."""
    if path.suffix == ".json":
        with suppress(OSError, ValueError):  # which `read_rows` explains
            content = json.loads(path.expanduser().read_text(encoding="utf-8"))
            if isinstance(content, dict):
                listed = content.get("data")
                yield from (one for one in (listed if isinstance(listed, list) else [content]) if isinstance(one, dict))
                return
    for row in read_rows([path]):
        yield row if isinstance(row, Mapping) else {"text": row}


def _expand(rows: Iterable[Fields]) -> Iterator[Fields]:
    """One row for each event of an OTLP document, and for each score of a trace."""
    for row in rows:
        scores = row.get("scores")
        if isinstance(row.get("resourceLogs"), list) or isinstance(row.get("resourceSpans"), list):
            yield from _list_events(row)
        elif isinstance(scores, list) and scores and all(isinstance(one, dict) for one in scores):
            yield from ({"traceId": row.get("id"), **one} for one in scores)
        else:
            yield row


def _list_events(value: object) -> Iterator[Fields]:
    """The evaluations in an OTLP document, as log records or as events of spans."""
    if isinstance(value, list):
        for one in value:
            yield from _list_events(one)
    elif isinstance(value, dict):
        if EVENT in (value.get("eventName"), value.get("name")):
            yield value
        for below in value.values():
            yield from _list_events(below)


def _recognise(row: Fields, name: str) -> tuple[str, Callable[[Fields, float, float], Item]]:
    names = {_simplify(one) for one in row}
    if EVENT in (row.get("eventName"), row.get("name"), row.get("event_name"), row.get("event.name")):
        return "OpenTelemetry evaluations", _read_evaluation
    if {"requestid", "spend"} <= names:
        return "LiteLLM spend logs", _read_spend
    if "name" in names and {"value", "stringvalue"} & names and {"traceid", "observationid", "subject"} & names:
        return "Langfuse scores", _read_score
    if "expert" in names:
        return "labels", _read_label
    raise InputError(
        f"{name}: its fields are {list_names(row)}, which are none of: labels (text, expert), scores of Langfuse "
        f"(traceId, name, value), events of OpenTelemetry ({EVENT}), spend logs of LiteLLM (request_id, spend)"
    )


# kinds of rows ------------------------------------------------------------------------------------------------------


def _read_label(row: Fields, best: float, now: float) -> Item:
    text = text_of({name: value for name, value in row.items() if name not in ("expert", "source", "time")})
    expert, author = str(row.get("expert") or "").strip(), str(row.get("source") or "import").strip()
    if not text.strip() or not expert:
        raise WrongRowError("a row without a text or an expert")
    if len(expert) > MAX_NAME_CHARS:
        raise WrongRowError(f"an expert with a name of {len(expert):,} characters")
    digest = blake2b(f"{author}\n{text}".encode(errors="surrogatepass"), digest_size=12).hexdigest()
    moment, request_id = _read_time(row.get("time"), now), f"import-{digest}"
    prompt = JournalPrompt.from_text([text])
    record = TrafficRecord(request_id, moment, key=author, why="imported", prompt=prompt)
    return Item((request_id,), Feedback(author, moment, expert), record)


def _read_score(row: Fields, best: float, now: float) -> Item:
    """A score of Langfuse: of its API, or a row of its CSV export."""
    given = {_simplify(name): value for name, value in row.items()}
    subject = about if isinstance(about := given.get("subject"), dict) else {}
    named = (given.get("traceid"), given.get("observationid"), subject.get("traceId"), subject.get("id"))
    ids = tuple(str(one) for one in named if one)
    if not ids:
        raise WrongRowError("a score without traceId")
    name = str(given.get("name") or "score")
    value = given.get("value") if given.get("value") not in (None, "") else given.get("stringvalue")
    moment = _read_time(given.get("timestamp") or given.get("createdat"), now)
    return Item(ids, _build_feedback(f"langfuse:{name}", moment, name, value, given.get("comment"), best))


def _read_evaluation(row: Fields, best: float, now: float) -> Item:
    """An event of OpenTelemetry's conventions for generative AI, as OTLP or with plain attributes."""
    found = row.get("attributes", row)
    if isinstance(found, list):
        found = {one.get("key"): _unwrap(one.get("value")) for one in found if isinstance(one, dict)}
    if not isinstance(found, dict) or not (response := found.get("gen_ai.response.id")):
        raise WrongRowError("an evaluation without gen_ai.response.id")
    name = str(found.get("gen_ai.evaluation.name") or "evaluation")
    value = found.get("gen_ai.evaluation.score.value")
    value = found.get("gen_ai.evaluation.score.label") if value is None else value
    nanoseconds = row.get("timeUnixNano")
    moment = _read_time(row.get("time") or row.get("timestamp"), now) if not nanoseconds else int(nanoseconds) / 1e9
    comment = found.get("gen_ai.evaluation.explanation")
    return Item((str(response),), _build_feedback(f"otel:{name}", moment, name, value, comment, best))


def _read_spend(row: Fields, best: float, now: float) -> Item:
    """A spend log of LiteLLM's proxy: a request with its model, tokens and cost, and no feedback."""
    request_id, model = str(row.get("request_id") or ""), str(row.get("model_group") or row.get("model") or "")
    if not request_id or not model:
        raise WrongRowError("a spend log without request_id or model")
    about = _parse(row.get("metadata"))
    alias = about.get("user_api_key_alias") if isinstance(about, dict) else None
    began, ended = (_read_time(row.get(name), now) for name in ("startTime", "endTime"))
    messages = _parse(row.get("messages"))
    text = text_of({"messages": messages}) if isinstance(messages, list) and messages else ""
    record = TrafficRecord(
        request_id,
        began,
        key=str(alias or row.get("api_key") or ""),
        served=model,
        why="imported",
        status=500 if row.get("status") == "failure" else 200,
        seconds=max(0.0, ended - began),
        prompt_tokens=_read_count(row.get("prompt_tokens")),
        completion_tokens=_read_count(row.get("completion_tokens")),
        cost=_read_number(row.get("spend") or 0.0, "spend"),
        prompt=JournalPrompt.from_text([text]) if text.strip() else None,
    )
    return Item((request_id,), record=record)


# values -------------------------------------------------------------------------------------------------------------


def _build_feedback(author: str, moment: float, name: str, value: object, comment: object, best: float) -> Feedback:
    text = str(comment or "")[:MAX_COMMENT_CHARS]
    if name == LABEL_SCORE and isinstance(value, str) and 0 < len(value) <= MAX_NAME_CHARS:
        return Feedback(author, moment, expert=value, comment=text)
    score = _read_number(value, f"score '{name[:80]}'") / best
    if not 0 <= score <= 1:
        raise WrongRowError(f"score '{name[:80]}' is {value!r:.80}, not from 0 to {best:g}")
    return Feedback(author, moment, score=score, comment=text)


def _read_number(value: object, what: str) -> float:
    with suppress(TypeError, ValueError):
        number = _TRUTH.get(str(value).lower())
        number = float(value) if number is None else number  # type: ignore[arg-type] # anything else raises
        if abs(number) != float("inf") and number == number:
            return number
    raise WrongRowError(f"{what} is {value!r:.80}, not a number")


def _read_count(value: object) -> int | None:
    with suppress(TypeError, ValueError):
        return max(0, int(value))  # type: ignore[call-overload,no-any-return] # anything else raises
    return None


def _read_time(value: object, now: float) -> float:
    """Seconds since 1970, from a number or from ISO 8601; times without a zone are in UTC."""
    if value in (None, ""):
        return now
    with suppress(TypeError, ValueError):
        number = float(value)  # type: ignore[arg-type]
        return number / 1_000 if number > MILLISECONDS_FROM else number
    try:
        found = datetime.fromisoformat(str(value).strip().replace(" UTC", "+00:00"))
    except ValueError:
        raise WrongRowError(f"the time {value!r:.80} is not like 2026-01-31T12:00:00Z") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _unwrap(value: object) -> object:
    """A value of OTLP's JSON, such as {"doubleValue": 0.5}."""
    return next(iter(value.values()), None) if isinstance(value, dict) else value


def _parse(value: object) -> object:
    """A field that may be JSON within a table."""
    if isinstance(value, str) and value[:1] in "{[":
        with suppress(ValueError):
            return json.loads(value)
    return value


def _simplify(name: str) -> str:
    return name.replace("_", "").replace(" ", "").lower()
