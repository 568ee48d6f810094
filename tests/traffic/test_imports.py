"""Feedback of other tools: recognised by its fields, matched by id, and what does not fit is counted."""

import json
from pathlib import Path
from typing import Any

import pytest

from commands import complaint, run, run_json
from ir3de.traffic import Journal, TrafficRecord

START = 1_770_000_000.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Journal.create(tmp_path / "kept") as journal:
        journal.append([TrafficRecord(f"r{n}", START, key="alice", served="law", response=f"a{n}") for n in range(3)])
    return tmp_path / "kept"


def bring(folder: Path, name: str, content: Any, *options: str) -> dict[str, Any]:
    path = folder.parent / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    found: dict[str, Any] = run_json("feedback", "import", "--from", folder, path, *options)
    return found


def given(folder: Path) -> dict[str, list[tuple[str, str | None, float | None, str]]]:
    with Journal.open(folder) as journal:
        rows = {
            row.id: [(one.author, one.expert, one.score, one.comment) for one in row.feedback] for row in journal.read()
        }
    return {name: found for name, found in rows.items() if found}


LANGFUSE = [
    {"id": "s1", "traceId": "r0", "name": "helpful", "value": 0.5, "dataType": "NUMERIC", "comment": "so so",
     "timestamp": "2026-02-02T03:00:00.000Z"},
    {"id": "s2", "traceId": "r0", "name": "right", "value": 1, "stringValue": "True", "dataType": "BOOLEAN"},
    {"id": "s3", "traceId": "r1", "observationId": "o1", "name": "expert", "value": None, "stringValue": "maths",
     "dataType": "CATEGORICAL"},
    {"id": "s4", "traceId": "elsewhere", "name": "helpful", "value": 1},
    {"id": "s5", "traceId": "r2", "name": "helpful", "value": 4},
]  # fmt: skip
WANTED = {
    "r0": [("langfuse:helpful", None, 0.5, "so so"), ("langfuse:right", None, 1.0, "")],
    "r1": [("langfuse:expert", "maths", None, "")],
}


def test_scores_of_langfuse_are_matched_by_trace(folder: Path) -> None:
    for content in ({"data": LANGFUSE, "meta": {"page": 1}}, LANGFUSE):  # twice changes nothing
        found = bring(folder, "scores.json", content)
        assert (found["kind"], found["rows"], found["feedback"]) == ("Langfuse scores", 5, 3)
        assert (found["unmatched"], found["wrong"], found["requests"]) == (1, 1, 0)
        assert found["examples"] == ["score 'helpful' is 4, not from 0 to 1", "no request 'elsewhere'"]
        assert given(folder) == WANTED
    with Journal.open(folder) as journal:
        assert journal.find("r0").feedback[0].time == START + 1_200  # type: ignore[union-attr]


def test_scores_of_langfuse_also_come_as_tables_and_within_traces(folder: Path) -> None:
    table = "id,timestamp,trace_id,name,data_type,value,comment\nx,2026-02-02 03:00:00,r0,stars,NUMERIC,4,good\n"
    bring(folder, "scores.csv", table, "--best", "5")
    bring(folder, "traces.jsonl", json.dumps({"id": "a1", "scores": [{"name": "ok", "value": "False"}]}) + "\n")
    bring(folder, "new.json", [{"subject": {"kind": "trace", "id": "r2"}, "name": "ok", "value": True}])
    assert given(folder) == {
        "r0": [("langfuse:stars", None, 0.8, "good")],
        "r1": [("langfuse:ok", None, 0.0, "")],
        "r2": [("langfuse:ok", None, 1.0, "")],
    }


def test_evaluations_of_opentelemetry_are_matched_by_answer(folder: Path) -> None:
    def attribute(name: str, value: Any) -> dict[str, Any]:
        return {"key": name, "value": {"doubleValue" if isinstance(value, float) else "stringValue": value}}

    names = (
        "gen_ai.response.id",
        "gen_ai.evaluation.name",
        "gen_ai.evaluation.score.value",
        "gen_ai.evaluation.explanation",
    )
    values = ("a2", "Relevance", 0.25, "off the point")
    event = {
        "timeUnixNano": str(int(START * 1e9)), "eventName": "gen_ai.evaluation.result",
        "attributes": [attribute(name, value) for name, value in zip(names, values, strict=True)],
    }  # fmt: skip
    other = {"eventName": "gen_ai.client.inference.operation.details", "attributes": []}
    document = {"resourceLogs": [{"scopeLogs": [{"logRecords": [other, event]}]}]}
    assert bring(folder, "logs.json", document)["kind"] == "OpenTelemetry evaluations"
    plain = {
        "name": "gen_ai.evaluation.result",
        "attributes": {**dict(zip(names, values, strict=True)), names[0]: "a0"},
    }
    bring(folder, "events.jsonl", json.dumps(plain) + "\n", "--author", "judge")
    assert given(folder) == {
        "r0": [("judge", None, 0.25, "off the point")],
        "r2": [("otel:Relevance", None, 0.25, "off the point")],
    }


def test_labels_bring_their_texts_once(folder: Path) -> None:
    table = "text,expert,source,time\nIs it void?,law,carol,2026-02-01\nSolve x.,maths,,\nNothing,,carol,\n"
    for added in (2, 0):
        found = bring(folder, "labels.csv", table)
        assert (found["kind"], found["requests"], found["feedback"], found["wrong"]) == ("labels", added, 2, 1)
    with Journal.open(folder) as journal:
        rows = [row for row in journal.read() if row.why == "imported"]
    texts = [(row.key, row.prompt and row.prompt.turns, row.feedback[0].expert) for row in rows]
    assert texts == [("carol", ("Is it void?",), "law"), ("import", ("Solve x.",), "maths")]
    assert rows[0].time == 1_769_904_000.0  # 2026-02-01, UTC
    bring(folder, "labels.csv", table.replace("void?,law", "void?,maths"))
    assert sorted(found[0][1] or "" for found in given(folder).values()) == ["maths", "maths"]  # it was changed


def test_spend_logs_of_litellm_become_requests(folder: Path) -> None:
    log = {
        "request_id": "chatcmpl-9", "call_type": "acompletion", "api_key": "88dc28", "spend": 0.0021, "model": "gpt-4o",
        "model_group": "strong", "prompt_tokens": 12, "completion_tokens": 30, "total_tokens": 42,
        "startTime": "2026-02-02T02:40:00Z", "endTime": "2026-02-02T02:40:01.500Z",
        "metadata": {"user_api_key_alias": "alice"}, "messages": [{"role": "user", "content": "Is it void?"}],
    }  # fmt: skip
    known, broken = {**log, "request_id": "r1"}, {**log, "request_id": ""}
    found = bring(folder, "spend.json", [log, log, known, broken])
    assert (found["kind"], found["requests"], found["known"], found["wrong"]) == ("LiteLLM spend logs", 1, 1, 1)
    with Journal.open(folder) as journal:
        row = journal.find("chatcmpl-9")
    assert row is not None and row.prompt is not None
    assert (row.key, row.served, row.cost, row.time, row.seconds) == ("alice", "strong", 0.0021, START, 1.5)
    assert (row.prompt_tokens, row.completion_tokens, row.prompt.turns) == (12, 30, ("Is it void?",))


def test_what_is_none_of_these_is_named(folder: Path) -> None:
    (folder.parent / "other.csv").write_text("a,b\n1,2\n")
    assert "traceId, name, value" in complaint("feedback", "import", "--from", folder, folder.parent / "other.csv")
    (folder.parent / "empty.jsonl").write_text("")
    assert "has no rows" in complaint("feedback", "import", "--from", folder, folder.parent / "empty.jsonl")
    lost = folder.parent / "lost.json"
    lost.write_text(json.dumps([{"traceId": "elsewhere", "name": "x", "value": 1}]))
    result = run("feedback", "import", "--from", folder, lost, code=1)
    assert "nothing of" in result.stderr and "no request 'elsewhere'" in result.stderr
    assert given(folder) == {}
