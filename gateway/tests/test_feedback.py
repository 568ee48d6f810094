"""/v1/feedback: by request or answer, changeable, deletable, for one's own requests alone; and its errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_keys import bearer, key, write_keys
from ir3de.traffic import Feedback, Journal, TrafficRecord
from raw_sockets import Got, ask, chat, eventually
from running_gateway import QUESTIONS, Running, running

LAW = chat(QUESTIONS["law"])
DAY_S = 86_400.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("feedback")


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[Running]:
    names = (key("alice"), key("bob"), key("chief", scopes=["admin", "inference"]), key("lawyer", experts=["law"]))
    limited = (key("admin"), key("three", requests_per_minute=3), key("broke", budget_per_day=0))
    file = write_keys(folder / "keys.yaml", *names, *limited)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IR3DE_ADMIN_TOKEN", "root")
        patch.delenv("IR3DE_API_KEY", raising=False)
        server = {"keys_file": str(file), "cors_origins": ["https://app.example"]}
        feedback = {"folder": str(folder / "kept"), "keep": "text", "days": 30}
        logs = {"access": str(folder / "access.log")}
        with running(folder, server=server, feedback=feedback, logs=logs) as found:
            yield found


def route(gateway: Running, name: str = "alice", **headers: str) -> str:
    """The id of a request that was routed."""
    got = ask(gateway.url, LAW, **bearer(name), **headers)
    assert got.status == 200
    return got.headers["x-request-id"]


def give(gateway: Running, name: str = "alice", **fields: Any) -> Got:
    return ask(gateway.url, fields, "/v1/feedback", **bearer(name))


def look(gateway: Running, request_id: str, **headers: str) -> list[dict[str, Any]]:
    return ask(gateway.url, path=f"/v1/feedback/{request_id}", **(headers or bearer("alice"))).json["data"]


def test_feedback_is_kept_changed_and_deleted(gateway: Running, folder: Path) -> None:
    request_id = route(gateway)
    first = give(gateway, request_id=request_id, expert="maths", comment="not law")
    assert (first.status, first.json["author"], first.json["served"]) == (200, "alice", "law")
    again = give(gateway, request_id=request_id, expert="maths", comment="not law")
    assert {**again.json, "time": 0} == {**first.json, "time": 0}
    assert give(gateway, request_id=request_id, thumb="up").status == 200
    (now,) = look(gateway, request_id)
    assert (now["expert"], now["score"], now["comment"]) == (None, 1.0, "")  # the last one replaces the others
    for _ in range(2):  # deleted twice, it is deleted
        gone = ask(gateway.url, path=f"/v1/feedback/{request_id}", method="DELETE", **bearer("alice"))
        assert (gone.status, gone.json["deleted"]) == (200, True)
    assert look(gateway, request_id) == []
    (row,) = [one for one in Journal.open(folder / "kept").read() if one.id == request_id]
    assert (row.key, row.decided, row.served, row.propensity, row.arm) == ("alice", "law", "law", 1.0, "")
    assert row.prompt is not None and row.prompt.turns == (QUESTIONS["law"],)
    assert (row.prompt_tokens, row.completion_tokens, row.status) == (10, 5, 200)
    assert row.ranking[0][0] == "law" and row.confidence == pytest.approx(row.ranking[0][1])


def test_an_answer_s_own_id_is_as_good(gateway: Running) -> None:
    request_id = route(gateway)
    assert give(gateway, response_id="x", score=0.25).json["request_id"] == request_id  # of the last such answer


def test_a_thousand_of_one_author_are_one(gateway: Running, folder: Path) -> None:
    request_id = route(gateway)
    for number in range(100):
        assert give(gateway, request_id=request_id, score=number / 100).status == 200
    assert [one["score"] for one in look(gateway, request_id)] == [0.99]


def test_others_requests_look_as_if_there_were_none(gateway: Running) -> None:
    request_id = route(gateway)
    foreign, unknown = (
        give(gateway, "bob", request_id=request_id, score=1),
        give(gateway, "bob", request_id="no", score=1),
    )
    assert foreign.status == unknown.status == 404
    assert foreign.error["message"].replace(request_id, "no") == unknown.error["message"]
    assert foreign.error["code"] == "request_not_found"
    assert ask(gateway.url, path=f"/v1/feedback/{request_id}", **bearer("bob")).status == 404
    assert ask(gateway.url, path=f"/v1/feedback/{request_id}", method="DELETE", **bearer("bob")).status == 404


def test_the_admin_token_reaches_all_and_is_its_own_author(gateway: Running) -> None:
    request_id, root = route(gateway), {"authorization": "Bearer root"}
    give(gateway, request_id=request_id, expert="maths")
    got = ask(gateway.url, {"request_id": request_id, "score": 0}, "/v1/feedback", **root)
    assert (got.status, got.json["author"]) == (200, "admin")
    assert give(gateway, "chief", request_id=request_id, score=1).json["author"] == "chief"
    assert [one["author"] for one in look(gateway, request_id, **root)] == ["admin", "alice", "chief"]
    assert [one["author"] for one in look(gateway, request_id)] == ["alice"]
    ask(gateway.url, path=f"/v1/feedback/{request_id}", method="DELETE", **root)
    assert [one["author"] for one in look(gateway, request_id, **root)] == ["alice", "chief"]


def test_a_key_named_admin_is_another_author_than_the_admin_token(gateway: Running) -> None:
    request_id, root = route(gateway, "admin"), {"authorization": "Bearer root"}
    assert give(gateway, "admin", request_id=request_id, score=1).json["author"] == "key:admin"
    ask(gateway.url, {"request_id": request_id, "score": 0}, "/v1/feedback", **root)
    assert [one["author"] for one in look(gateway, request_id, **root)] == ["admin", "key:admin"]
    assert [one["author"] for one in look(gateway, request_id, **bearer("admin"))] == ["key:admin"]


def test_nobody_gives_feedback_without_a_key(gateway: Running) -> None:
    assert ask(gateway.url, {"request_id": "r", "score": 1}, "/v1/feedback").status == 401


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({"score": "good"}, "invalid_type", 'score: must be a valid number, found "good"'),
        ({"score": 2}, "invalid_type", "score: must be less than or equal to 1, found 2"),
        ({"score": True}, "invalid_type", "score: must be a valid number"),
        ({"thumb": "sideways"}, "invalid_type", "thumb: must be 'up' or 'down'"),
        ({"thumb": "up", "score": 0.5}, "invalid_field", "contradict"),
        ({"expert": "lwa"}, "unknown_expert", "no expert 'lwa': did you mean law? there are maths, law, cooking"),
        ({}, "invalid_field", "needs 'expert', 'score' or 'thumb'"),
        ({"comment": "x" * 2_001, "score": 1}, "invalid_type", "at most 2000 characters"),
        ({"stars": 5}, "invalid_type", "stars: no such field, there are request_id"),
        ({"score": 1, "response_id": "x"}, "invalid_request", "either request_id"),
        ({"request_id": None, "score": 1}, "invalid_request", "either request_id"),
        ({"request_id": 7, "score": 1}, "invalid_type", "request_id: must be a valid string, found 7"),
    ],
)
def test_what_is_wrong_is_named_and_changes_nothing(
    gateway: Running, fields: dict[str, Any], code: str, says: str
) -> None:
    request_id = route(gateway)
    give(gateway, request_id=request_id, score=0.5)
    got = give(gateway, **{"request_id": request_id, **fields})
    assert (got.status, got.error["code"]) == (400, code)
    assert says in got.error["message"]
    assert [one["score"] for one in look(gateway, request_id)] == [0.5]


def test_other_bodies_are_refused(gateway: Running) -> None:
    large = give(gateway, request_id="r", comment="x" * 40_000)
    assert (large.status, large.error["code"]) == (413, "request_too_large")
    assert ask(gateway.url, [1], "/v1/feedback", **bearer("alice")).status == 400
    wrong = ask(gateway.url, {}, "/v1/feedback/r", method="PUT", **bearer("alice"))
    assert (wrong.status, wrong.headers["allow"]) == (405, "DELETE, GET, HEAD")


def test_a_key_names_only_experts_that_it_may_ask(gateway: Running) -> None:
    got = give(gateway, "lawyer", request_id=route(gateway, "lawyer"), expert="maths")
    assert (got.status, got.error["message"]) == (400, "no expert 'maths': there are law")


def test_limits_of_requests_count_feedback_and_budgets_do_not(gateway: Running) -> None:
    request_id = route(gateway, "three")
    statuses = [give(gateway, "three", request_id=request_id, score=1).status for _ in range(3)]
    assert statuses == [200, 200, 429]
    assert give(gateway, "broke", request_id="none", score=1).error["code"] == "request_not_found"


def test_pages_of_known_origins_may_send_it(gateway: Running) -> None:
    got = ask(gateway.url, path="/v1/feedback", method="OPTIONS", origin="https://app.example")
    assert (got.status, got.headers["access-control-allow-origin"]) == (204, "https://app.example")
    assert ask(gateway.url, path="/v1/feedback", method="OPTIONS", origin="https://evil.example").status == 403


def test_it_is_counted_and_logged(gateway: Running, folder: Path) -> None:
    def count(kind: str) -> float:
        scraped = ask(gateway.url, path="/metrics").body.decode()
        found = re.search(rf'ir3de_feedback_total{{kind="{kind}"}} (\S+)', scraped)
        return float(found[1]) if found else 0.0

    before, request_id = count("expert"), route(gateway)
    give(gateway, request_id=request_id, expert="law", score=1)
    assert count("expert") == before + 1

    def is_logged() -> bool:
        lines = [json.loads(line) for line in (folder / "access.log").read_text().splitlines()]
        found = [line for line in lines if line["endpoint"] == "/v1/feedback" and line["status"] == 200]
        return bool(found) and found[-1]["key"] == "alice"

    assert eventually(is_logged)


def test_a_request_that_is_too_old_is_as_good_as_gone(gateway: Running, folder: Path) -> None:
    """Also if it is not deleted yet; and deletion spares what is younger."""
    young = route(gateway)
    give(gateway, request_id=young, score=1)
    with Journal.open(folder / "kept") as journal:
        moment = journal.find(young).time  # type: ignore[union-attr]
        journal.append([TrafficRecord("old", moment - 31 * DAY_S, key="alice", decided="law", served="law")])
        journal.put_feedback("old", Feedback("alice", moment, score=1.0))
    assert give(gateway, request_id="old", score=0).status == 404
    writer = gateway.gateway.get_journal()
    assert writer is not None and writer.delete_old() == 1
    assert writer.find("old", None) is None and writer.find(young, "alice") is not None


def test_a_gateway_without_a_folder_takes_none(tmp_path: Path) -> None:
    with running(tmp_path) as gateway:
        for method, path in (("POST", "/v1/feedback"), ("GET", "/v1/feedback/x"), ("DELETE", "/v1/feedback/x")):
            body = {"request_id": "x", "score": 1} if method == "POST" else None
            got = ask(gateway.url, body, path, method=method)
            assert (got.status, got.error["code"]) == (404, "feedback_off")
            assert "feedback.folder" in got.error["message"]
    assert not list(tmp_path.rglob("journal.sqlite"))


@pytest.mark.parametrize("keep", ["tokens", "statistics"])
def test_what_is_kept_of_a_prompt_is_as_configured(tmp_path: Path, keep: str) -> None:
    messages = [{"role": "user", "content": QUESTIONS["law"]}, {"role": "assistant", "content": "Perhaps."}]
    messages.append({"role": "user", "content": "And the tenants?"})
    with running(tmp_path, feedback={"folder": str(tmp_path / "kept"), "keep": keep}) as gateway:
        ask(gateway.url, {"model": "auto", "messages": messages}, x_session_id="secret-session")
        router = gateway.gateway.live.snapshot.router
        ids = [router.tokenizer.encode(text).tolist() for text in (QUESTIONS["law"], "And the tenants?")]
    (row,) = Journal.open(tmp_path / "kept").read()
    assert row.prompt is not None and row.prompt.keep == keep and row.prompt.turns == ()
    wanted = ids if keep == "tokens" else [sorted(ids[0] + ids[1])]
    assert [one.tolist() for one in row.prompt.ids] == wanted
    content = b"".join(path.read_bytes() for path in (tmp_path / "kept").iterdir())
    assert b"contract" not in content and b"secret-session" not in content
