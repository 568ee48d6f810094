"""Batch files with `auto`, aliases and experts' names: split by expert, and joined again, by OpenAI's own client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from client_keys import key, write_keys
from ir3de_gateway.stages import joined_batches
from ir3de_gateway.stages.joined_status import join_batches, join_status
from object_servers import ObjectServer, serving_objects
from raw_sockets import ask
from routed_batches import CHATS, Found, client, found, line, one, put, write  # noqa: F401 - two of them are fixtures
from running_gateway import QUESTIONS, running, served

FORM_END = b"\r\n--"


def read_sent(server: ObjectServer) -> dict[str, list[dict[str, Any]]]:
    """The lines that each expert got."""
    sent = {}
    for expert, method, path, content in server.seen:
        if (method, path) == ("POST", "files"):
            file = content.split(b"\r\n\r\n")[-1].split(FORM_END)[0]
            sent[expert] = [json.loads(one) for one in file.splitlines() if one]
    return sent


def test_each_line_goes_to_its_expert_under_the_experts_own_name(found: Found) -> None:
    file = put(
        found,
        line(1, QUESTIONS["law"]),
        line(2, QUESTIONS["maths"], "gpt-4o"),
        line(3, QUESTIONS["law"], "claude"),
        b"",
        line(4, QUESTIONS["maths"], "law"),
        line(5, QUESTIONS["law"], None),
    )
    assert file.id.startswith("file-ir3de") and file.purpose == "batch" and file.status == "processed"
    sent = read_sent(found[1])
    assert {name: [one["custom_id"] for one in lines] for name, lines in sent.items()} == {
        "law": ["r1", "r4", "r5"],
        "maths": ["r2", "r3"],
    }
    assert {one["body"]["model"] for one in sent["law"]} == {"law-v1"}
    assert {one["body"]["model"] for one in sent["maths"]} == {"maths-v1"}
    assert sent["law"][0]["body"]["messages"][0]["content"] == QUESTIONS["law"] and sent["law"][0]["method"] == "POST"
    assert file.ir3de == {"parts": [{"expert": "law", "lines": 3}, {"expert": "maths", "lines": 2}]}
    assert client(found).files.retrieve(file.id).id == file.id
    content = client(found).files.content(file.id).read()
    assert b'"r1"' in content and b'"r2"' in content


def test_one_batch_is_joined_over_all_experts(found: Found) -> None:
    server, api = found[1], client(found)
    file = put(found, line(1, QUESTIONS["law"]), line(2, QUESTIONS["maths"]), line(3, QUESTIONS["maths"]))
    batch = api.batches.create(input_file_id=file.id, metadata={"a": "b"}, **CHATS)  # type: ignore[arg-type]
    assert batch.status == "validating" and batch.input_file_id == file.id and batch.output_file_id is None
    assert batch.metadata == {"a": "b"} and batch.request_counts is not None and batch.request_counts.total == 3
    made = {name.split("/")[0]: one for name, one in server.objects.items() if "/batches/" in name}
    made["law"] |= {
        "status": "completed",
        "request_counts": {"total": 1, "completed": 1, "failed": 0},
        "completed_at": 5,
    }
    made["maths"] |= {"status": "in_progress", "request_counts": {"total": 2, "completed": 1, "failed": 0}}
    again = api.batches.retrieve(batch.id)
    assert again.status == "in_progress" and again.output_file_id is None and again.completed_at is None
    made["maths"] |= {
        "status": "completed",
        "request_counts": {"total": 2, "completed": 1, "failed": 1},
        "completed_at": 9,
    }
    for expert, name in (("law", "r1"), ("maths", "r2")):
        server.contents[made[expert]["output_file_id"]] = json.dumps({"custom_id": name}).encode()
    done = api.batches.retrieve(batch.id)
    assert done.status == "completed" and done.completed_at == 9 and done.request_counts is not None
    assert (done.request_counts.total, done.request_counts.completed, done.request_counts.failed) == (3, 2, 1)
    assert [one["status"] for one in done.ir3de["parts"]] == ["completed"] * 2  # type: ignore[attr-defined]
    assert done.output_file_id is not None and done.error_file_id is None
    output = api.files.content(done.output_file_id).read()
    assert [json.loads(one)["custom_id"] for one in output.splitlines()] == ["r1", "r2"]
    assert api.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        api.files.retrieve(file.id)
    assert [asked for asked in server.asked if "DELETE" in asked[1]]


def test_a_batch_is_cancelled_everywhere(found: Found) -> None:
    file = put(found, line(1, QUESTIONS["law"]), line(2, QUESTIONS["maths"]))
    batch = client(found).batches.create(input_file_id=file.id, **CHATS)  # type: ignore[arg-type]
    assert client(found).batches.cancel(batch.id).status == "cancelled"
    cancelled = [expert for expert, asked in found[1].asked if asked.endswith("/cancel")]
    assert sorted(cancelled) == ["law", "maths"]


def test_files_and_batches_belong_to_their_key_and_keys_keep_their_experts(found: Found) -> None:
    file = put(found, line(1, QUESTIONS["law"]))
    batch = client(found).batches.create(input_file_id=file.id, **CHATS)  # type: ignore[arg-type]
    other = client(found, "b")
    for refused in (
        lambda: other.files.retrieve(file.id),
        lambda: other.files.content(file.id),
        lambda: other.files.delete(file.id),
        lambda: other.batches.retrieve(batch.id),
        lambda: other.batches.cancel(batch.id),
        lambda: other.batches.create(input_file_id=file.id, **CHATS),  # type: ignore[arg-type]
    ):
        with pytest.raises(openai.NotFoundError):
            refused()
    assert list(read_sent(found[1])) == ["law"]
    with pytest.raises(openai.BadRequestError, match=r"line 1 of the file: .*not allowed for this API key"):
        put(found, line(1, QUESTIONS["maths"], "maths"), name="lawyer")
    put(found, line(1, QUESTIONS["law"]), name="lawyer", extra_headers={"x-ir3de-deny": "maths"})


def test_a_key_that_loses_an_expert_loses_what_is_joined_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", "root")
    keys = {"keys_file": str(write_keys(tmp_path / "keys.yaml", key("a")))}
    state = {"state": str(tmp_path / "state")}
    with serving_objects(tmp_path, ("law", "maths"), server=keys, **state) as found:
        file = put(found, line(1, QUESTIONS["law"]), line(2, QUESTIONS["maths"]))
        batch = client(found).batches.create(input_file_id=file.id, **CHATS)  # type: ignore[arg-type]
        for one in found[1].objects.values():
            one["status"] = "completed"
        output = client(found).batches.retrieve(batch.id).output_file_id
        assert output is not None
        own = put(found, line(1, QUESTIONS["law"]))
        change = {"name": "a", "merge": True, "experts": ["law"]}
        assert ask(found[0].url, change, "/admin/keys", authorization="Bearer root").status == 200
        found[1].seen.clear()
        api = client(found)
        for refused in (
            lambda: api.batches.create(input_file_id=file.id, **CHATS),  # type: ignore[arg-type]
            lambda: api.batches.retrieve(batch.id),
            lambda: api.batches.cancel(batch.id),
            lambda: api.files.retrieve(file.id),
            lambda: api.files.content(output),
            lambda: api.files.delete(file.id),
        ):
            with pytest.raises(openai.NotFoundError, match="it was not made here, or it no longer exists"):
                refused()
        assert found[1].seen == []
        assert api.batches.create(input_file_id=own.id, **CHATS).id.startswith("batch_ir3de")  # type: ignore[arg-type]


def put_joined(found: Found) -> Any:
    return put(found, line(1, QUESTIONS["law"]), line(2, QUESTIONS["maths"]))


def put_at(found: Found, expert: str) -> Any:
    """A file that passes as it is."""
    there: Any = {"extra_headers": {"x-ir3de-allow": expert}}
    return client(found).files.create(file=("b.jsonl", write(line(1, "x", f"{expert}-v1"))), purpose="batch", **there)


FILES = pytest.mark.parametrize("make", [put_joined, lambda found: put_at(found, "maths")], ids=["joined", "as it is"])


@FILES
@pytest.mark.parametrize(
    "controls",
    [
        {"extra_headers": {"x-ir3de-deny": "maths"}},
        {"extra_headers": {"x-ir3de-allow": "law"}},
        {"extra_body": {"ir3de": {"deny": ["maths"]}}},
    ],
)
def test_a_batch_does_not_start_at_an_expert_that_its_request_excludes(found: Found, make: Any, controls: Any) -> None:
    file = make(found)
    found[1].seen.clear()
    with pytest.raises(openai.BadRequestError, match="maths: not allowed by the request") as caught:
        client(found).batches.create(input_file_id=file.id, **CHATS, **controls)
    assert (caught.value.code, caught.value.param) == ("no_eligible_expert", "input_file_id")
    assert found[1].seen == []
    for only in (put(found, line(1, QUESTIONS["law"])), put_at(found, "law")):
        client(found).batches.create(input_file_id=only.id, **CHATS, **controls)


@FILES
def test_what_exists_is_read_cancelled_and_deleted_whatever_a_request_excludes(found: Found, make: Any) -> None:
    api, file = client(found), make(found)
    denied: Any = {"extra_headers": {"x-ir3de-deny": "maths"}}
    batch = api.batches.create(input_file_id=file.id, **CHATS)  # type: ignore[arg-type]
    assert api.batches.retrieve(batch.id, **denied).id == batch.id
    assert api.batches.cancel(batch.id, **denied).status == "cancelled"
    assert api.files.retrieve(file.id, **denied).id == file.id
    assert b"maths-v1" in api.files.content(file.id, **denied).read()
    assert api.files.delete(file.id, **denied).deleted


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ((line(1, "x"), b"{"), "line 2 of the file: it is not an object with custom_id"),
        ((line(1, QUESTIONS["law"]), line(1, QUESTIONS["law"])), "line 2 of the file: line 1 has the same custom_id"),
        ((line(1, "x", url="/v1/audio/speech"),), "line 1 of the file: no endpoint '/v1/audio/speech'"),
        ((line(1, "x"), line(2, "x", "gpt-5")), "line 2 of the file: no model 'gpt-5'"),
        ((line(1, QUESTIONS["cooking"], "cooking"),), "line 1 of the file: cooking has no batches or files"),
        ((line(1, "x", url="/v1/completions"),), "line 1 of the file: prompt must be a string or a list of strings"),
        ((line(1, "x", body={"model": "auto", "messages": []}),), "line 1 of the file: messages is empty"),
        (
            (line(1, "x", url="/v1/messages", body={"messages": line(1, "x")["body"]["messages"], "model": "law"}),),
            "line 1 of the file: law cannot answer it, because lines of a batch are not translated",
        ),
        (
            (line(1, "", url="/v1/responses", body={"input": "x", "previous_response_id": "resp_1"}),),
            "line 1 of the file: previous_response_id is not possible",
        ),
    ],
)
def test_a_line_that_cannot_be_answered_is_named(found: Found, lines: Any, told: str) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        put(found, *lines)
    assert told in str(caught.value) and caught.value.status_code in (400, 404)
    assert found[1].seen == []  # nothing is half done


def test_files_without_a_model_of_the_gateway_pass_as_they_are(found: Found) -> None:
    content = write(line(1, "x", "law-v1"), line(2, "x", "law-v1"))
    law = {"extra_headers": {"x-ir3de-allow": "law"}}
    file = client(found).files.create(file=("b.jsonl", content), purpose="batch", **law)  # type: ignore[arg-type]
    assert file.id.startswith("file-law") and content in found[1].seen[-1][3]
    file = put(found, line(1, QUESTIONS["law"]), extra_body={"model": "maths"})  # as the client names the expert
    assert file.id.startswith("file-maths")
    with pytest.raises(openai.BadRequestError, match="several experts have files"):
        client(found).files.create(file=("b.txt", b"text"), purpose="assistants")


def test_where_nothing_is_stored_a_batch_cannot_be_joined(tmp_path: Path) -> None:
    off = {"pinning": {"stored_ttl": 0}}
    refused = pytest.raises(openai.BadRequestError, match="nothing is stored here")
    with serving_objects(tmp_path, ("law",), routing=off) as found, refused:
        put(found, line(1, QUESTIONS["law"]))
    assert found[1].seen == []


@pytest.mark.parametrize(
    ("statuses", "joined"),
    [
        (["validating", "validating"], "validating"),
        (["validating", "in_progress"], "in_progress"),
        (["completed", "validating"], "in_progress"),
        (["completed", "finalizing"], "finalizing"),
        (["cancelling", "completed"], "cancelling"),
        (["completed", "cancelled"], "cancelled"),
        (["completed", "expired"], "expired"),
        (["failed", "failed"], "failed"),
        (["failed", "completed"], "completed"),
    ],
)
def test_how_statuses_are_joined(statuses: list[str], joined: str) -> None:
    assert join_status(statuses) == joined


def test_a_part_that_failed_as_a_whole_counts_as_failed() -> None:
    fault = {"code": "invalid", "message": "no"}
    parts: list[dict[str, Any]] = [
        {"status": "completed", "request_counts": {"total": 2, "completed": 2, "failed": 0}},
        {"status": "failed", "errors": {"object": "list", "data": [fault]}},
    ]
    found = join_batches({"id": "x"}, parts, [2, 3])
    assert found.has_ended and found.fields["request_counts"] == {"total": 5, "completed": 2, "failed": 3}
    assert found.fields["errors"]["data"] == [fault]


def test_a_part_stays_with_the_replica_that_has_it(tmp_path: Path) -> None:
    server, able = ObjectServer(), {"capabilities": ["chat", "files", "batches"], "health": {"active": False}}
    with served(server.app()) as url:
        replicas = [{"base_url": f"{url}/{name}/v1", "name": name} for name in ("one", "two")]
        law = {"replicas": replicas, "base_url": replicas[0]["base_url"], "model": "law-v1", **able}
        with running(tmp_path, experts={"law": law}) as gateway:
            found = (gateway, server)
            file = put(found, line(1, QUESTIONS["law"]))
            gateway.gateway.live.snapshot.experts["law"].replicas[0].set_drained(True)
            batch = client(found).batches.create(input_file_id=file.id, **CHATS)  # type: ignore[arg-type]
            assert client(found).batches.retrieve(batch.id).status == "validating"
            assert {expert for expert, _ in server.asked} == {"one"}  # which has the file, though it is drained by now
            put(found, line(1, QUESTIONS["law"]))
            assert server.asked[-1] == ("two", "POST files")


def test_a_large_file_is_refused_if_it_would_be_routed(found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_batches, "MAX_ROUTED_BYTES", 1 << 20)
    long = QUESTIONS["law"] * 200
    with pytest.raises(openai.APIStatusError, match="has at most 1 MB: split it") as caught:
        put(found, *(line(number, long) for number in range(500)))
    assert caught.value.status_code == 413 and found[1].seen == []
    law = {"extra_headers": {"x-ir3de-allow": "law"}}
    file = put(found, *(line(number, long, "law-v1") for number in range(500)), **law)
    assert file.id.startswith("file-law")
    monkeypatch.undo()
    assert put(found, *(line(number, long) for number in range(500))).id.startswith("file-ir3de")  # from disk
