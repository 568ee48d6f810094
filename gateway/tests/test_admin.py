"""/admin over HTTP: experts come and go while the gateway serves, and a restart finds everything as it was."""

import base64
import gzip
import json
import threading
from pathlib import Path
from typing import Any

import fsspec
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient

import tiny
from admin_client import ENDPOINT, HISTORY, TOKEN, admin, config, error, folder, names, token  # noqa: F401
from ir3de import Router, collect
from ir3de.evaluation import measure_change
from ir3de.policies import Policy
from ir3de.statistics.files import save_statistics
from running_gateway import Upstream, answer, served
from saved import PROMPTS, first_router


def decisions(client: TestClient) -> list[Any]:
    return client.gateway.live.snapshot.router.route_batch(PROMPTS)


def test_an_expert_comes_and_goes_and_leaves_no_trace(folder: Path) -> None:
    before = tiny.contents(folder / "router")
    with admin(config(folder)) as client:
        first = client.get("/admin/router")
        at_first, expected = first.json(), decisions(client)
        assert at_first["origin"] == "configuration" and at_first["changeable"]
        added = client.post("/admin/experts", json={"name": "history", "upstream": ENDPOINT, "texts": HISTORY})
        assert added.status_code == 201 and added.headers["etag"] != first.headers["etag"]
        row = added.json()
        assert (row["routed"], row["prompts"], row["origin"], row["breaker"]) == (True, 3, "admin", "closed")
        assert row["upstream"]["base_url"] == ENDPOINT["base_url"]
        assert names(client) == [*tiny.DOMAINS, "history"]
        assert client.gateway.live.snapshot.router.route(HISTORY[0]).expert == "history"
        assert "history" in [model["id"] for model in client.get("/v1/models").json()["data"]]
        changed = client.get("/admin/router").json()
        assert changed["origin"] == "changed" and changed["configured"]["newer_than_changed"] is False
        assert changed["digest"] != at_first["digest"]

    with admin(config(folder)) as client:  # after a restart
        assert names(client) == [*tiny.DOMAINS, "history"]
        assert client.get("/admin/router").json() == changed
        more = {"name": "history", "texts": HISTORY[:1], "merge": True}
        assert client.post("/admin/experts", json=more).json()["prompts"] == 4
        removed = client.delete("/admin/experts/history").json()
        assert (removed["name"], removed["removed"]) == ("history", True)
        assert names(client) == [*tiny.DOMAINS]
        assert decisions(client) == expected
        assert tiny.same_table(client.gateway.live.snapshot.router, first_router())
        assert client.delete("/admin/router").json()["digest"] == at_first["digest"]
        actions = [line["action"] for line in client.get("/admin/audit").json()["data"]]
        assert actions == ["configured router", "remove expert", "merge expert", "add expert"]
    assert tiny.contents(folder / "router") == before  # the configured one is never written to


def test_a_live_change_keeps_the_scorer_and_reports_before_and_after(folder: Path) -> None:
    """Three prompts of a newcomer would choose other parameters for everybody."""
    texts = {name: tiny.sentences(name, 14, seed=5) for name in tiny.DOMAINS}
    Router.fit(texts, embedding=tiny.embedding()).save(folder / "router")
    history = {"name": "history", "upstream": ENDPOINT, "texts": HISTORY}
    served = {"threshold": 0.6, "default": "law"}
    with admin(config(folder, routing=served)) as client:
        scorer = client.get("/admin/router").json()["scorer"]
        change = client.post("/admin/experts", json=history).json()["change"]
        assert client.get("/admin/router").json()["scorer"] == scorer
        before, after = change["before"], change["after"]
        assert before["scorer"] == after["scorer"] and scorer["name"] in before["scorer"]
        assert (before["prompts"], after["prompts"], change["compared"]) == (42, 45, 42)
        for figures in (before, after):
            assert figures["accuracy"]["low"] < figures["accuracy"]["value"] <= figures["accuracy"]["high"]
            assert 0 < figures["mean_confidence"] < 1
        (made,) = (folder / "state").glob("router-*")
        routers = (Router.load(path).with_policy(Policy(0.6), default="law") for path in (folder / "router", made))
        assert change == json.loads(json.dumps(measure_change(*routers).to_dict()))  # as the gateway serves them

        again = client.post("/admin/experts", json={**history, "merge": True, "scorer": "choose"}).json()["change"]
        together = Router.fit({**texts, "history": [*HISTORY, *HISTORY]}, embedding=tiny.embedding())
        assert again["after"]["scorer"] == repr(together.scorer) != again["before"]["scorer"]
        gone = client.delete("/admin/experts/history?scorer=choose").json()["change"]
        assert gone["after"]["scorer"] == before["scorer"] and client.get("/admin/router").json()["scorer"] == scorer
        assert client.delete("/admin/experts/law?scorer=blend").status_code == 422
        assert client.post("/admin/experts", json={**history, "scorer": "blend"}).status_code == 422
        endpoint = {"name": "maths", "upstream": ENDPOINT, "merge": True}
        assert client.post("/admin/experts", json=endpoint).json()["change"] is None  # the router is as it was


def test_no_request_waits_for_confidence_after_a_change(folder: Path) -> None:
    """A change in Python learns confidence at its first use. The gateway swaps routers that have learnt it."""

    def list_deferred(router: Router) -> list[str]:
        rules = router.compiled.rules
        return [name for part in (rules, rules.valuation) for name in vars(part).get("_deferred", {})]

    changed = Router.load(folder / "router")
    changed.add("history", HISTORY)
    assert "membership" in list_deferred(changed)
    with admin(config(folder)) as client:
        added = client.post("/admin/experts", json={"name": "history", "upstream": ENDPOINT, "texts": HISTORY})
        assert added.status_code == 201
        served_now = client.gateway.live.snapshot.router
        assert list_deferred(served_now) == []
        assert served_now.compiled.rules.membership == changed.compiled.rules.membership


def uploads(folder: Path) -> dict[str, bytes]:
    lines = "\n".join(json.dumps({"prompt": text}) for text in HISTORY).encode()
    counted = collect(HISTORY, embedding=tiny.embedding(), keep_sample=True)
    return {
        "history.jsonl.gz": gzip.compress(lines),
        "../../etc/history.txt": "\n".join(HISTORY).encode(),
        "history.stats": save_statistics(counted, folder / "history.stats").read_bytes(),
    }


@pytest.mark.nightly
def test_files_of_every_kind_give_the_same_router(folder: Path) -> None:
    expected = first_router()
    expected.add("history", HISTORY)
    with admin(config(folder)) as client:
        for name, content in uploads(folder).items():
            file = {"name": name, "content": base64.b64encode(content).decode()}
            sent = client.post("/admin/experts", json={"name": "history", "upstream": ENDPOINT, "file": file})
            assert sent.status_code == 201, sent.text
            assert tiny.same_table(client.gateway.live.snapshot.router, expected)
            assert client.delete("/admin/router").status_code == 200  # the domain goes, the endpoint stays
            assert client.delete("/admin/experts/history").status_code == 200


@pytest.mark.parametrize("name", ["json.py", "numpy.py", "sitecustomize.py", "ir3de.py", "../json.py", "json.py.txt"])
def test_an_uploaded_file_is_never_imported(folder: Path, name: str) -> None:
    trace = folder / "it-ran"
    content = f"open({str(trace)!r}, 'w').close()\n".encode()
    file = {"name": name, "content": base64.b64encode(content).decode()}
    with admin(config(folder)) as client:
        sent = client.post("/admin/experts", json={"name": "history", "upstream": ENDPOINT, "file": file})
    assert (sent.status_code, name.endswith(".txt")) in ((422, False), (201, True)), sent.text
    assert not trace.exists()


def test_etags_guard_changes(folder: Path) -> None:
    with admin(config(folder)) as client:
        tag = client.get("/admin/experts").headers["etag"]
        assert tag == client.get("/admin/router").headers["etag"] and tag.startswith('"')
        new = {"name": "history", "upstream": ENDPOINT}
        done = client.post("/admin/experts", json=new, headers={"if-match": tag})
        assert done.status_code == 201
        for stale in (
            client.delete("/admin/experts/law", headers={"if-match": tag}),
            client.put("/admin/router", json={"path": "/x"}, headers={"if-match": tag}),
            client.post("/admin/reload", headers={"if-match": tag}),
        ):
            assert stale.status_code == 412 and stale.headers["etag"] == done.headers["etag"]
        assert client.get("/admin/experts").headers["etag"] == done.headers["etag"]
        assert client.post("/admin/reload", headers={"if-match": "*"}).status_code == 200


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    ("an expert twice", {"name": "law", "upstream": ENDPOINT}, 409, "send merge: true to extend it"),
    ("merging nobody", {"name": "nobody", "texts": ["a"], "merge": True}, 404, "no expert 'nobody'"),
    ("no endpoint", {"name": "new", "texts": ["a"]}, 422, "upstream: a new expert needs an endpoint"),
    ("nothing", {"name": "law", "merge": True}, 422, "nothing to do"),
    ("a wrong endpoint", {"name": "new", "upstream": {"base_url": "ftp://x"}}, 422, "upstream.base_url: must look"),
    ("a wrong replica", {"name": "new", "upstream": {"replicas": ["x"]}}, 422, "upstream.replicas.0: must look like"),
    ("an unknown field", {"name": "new", "upstream": {**ENDPOINT, "colour": 1}}, 422, "upstream.colour: "),
    ("two names", {"name": "new", "upstream": {**ENDPOINT, "name": "x"}}, 422, "upstream.name: "),
    ("a reserved name", {"name": "auto", "upstream": ENDPOINT}, 422, "upstream.name: 'auto' is the model"),
    (
        "our key",
        {"name": "new", "upstream": {**ENDPOINT, "api_key_env": "IR3DE_ADMIN_TOKEN"}},
        422,
        "is not allowed",
    ),
    ("a key", {"name": "new", "upstream": {**ENDPOINT, "api_key_env": "AWS_SECRET_ACCESS_KEY"}}, 422, "IR3DE_EXPERT_"),
    (
        "half a letter",
        {"name": "new", "upstream": {**ENDPOINT, "defaults": {"stop": "\ud800"}}},
        422,
        "cannot be encoded",
    ),
    ("an unknown fallback", {"name": "new", "upstream": {**ENDPOINT, "fallbacks": ["who"]}}, 422, "no expert 'who'"),
    ("texts of numbers", {"name": "new", "upstream": ENDPOINT, "texts": [1]}, 422, "texts.0: "),
    ("both", {"name": "new", "upstream": ENDPOINT, "texts": [], "file": {"name": "a", "content": ""}}, 422, "one of"),
    ("no base64", {"name": "new", "upstream": ENDPOINT, "file": {"name": "a.txt", "content": "?"}}, 422, "base64"),
    ("no text", {"name": "new", "upstream": ENDPOINT, "texts": [" "]}, 422, "'new' has no text"),
    ("a strange file", {"name": "new", "upstream": ENDPOINT, "file": {"name": "a.exe", "content": ""}}, 422, "a.exe: "),
    (
        "no statistics",
        {"name": "new", "upstream": ENDPOINT, "file": {"name": "a.stats", "content": ""}},
        422,
        "a.stats",
    ),
]


def test_what_cannot_be_is_refused_and_changes_nothing(folder: Path) -> None:
    with admin(config(folder)) as client:
        before, snapshot = client.get("/admin/experts"), client.gateway.live.snapshot
        for what, body, status, complaint in REFUSED:
            found, message = error(client.post("/admin/experts", content=json.dumps(body)))
            assert (found, complaint in message) == (status, True), (what, found, message)
            assert "default factory" not in message, what
        assert error(client.post("/admin/experts", content=b"{"))[0] == 400
        assert error(client.post("/admin/experts", content=b"[" * 100_000))[0] == 400
        assert error(client.post("/admin/experts", json=["x"]))[0] == 422
        assert error(client.put("/admin/router", json={}))[0] == 422
        secret = client.put("/admin/router", json={"path": "s3://me:hush@bucket/router"})
        assert secret.status_code == 422 and "hush" not in secret.text + (folder / "state/audit.jsonl").read_text()
        assert error(client.delete("/admin/experts/nobody"))[0] == 404
        assert error(client.delete("/admin/experts/law?domain=drop"))[0] == 422
        assert error(client.get("/admin/audit?last=0"))[0] == 422
        after = client.get("/admin/experts")
        assert (after.json(), after.headers["etag"]) == (before.json(), before.headers["etag"])
        assert client.gateway.live.snapshot is snapshot
        assert not list((folder / "state").glob("*router-*"))


def test_experts_that_are_needed_stay(folder: Path) -> None:
    routing = {"default": "maths", "shadow": "law"}
    with admin(config(folder, routing=routing)) as client:
        for name, place in (("maths", "routing.default"), ("law", "routing.shadow")):
            status, message = error(client.delete(f"/admin/experts/{name}"))
            assert status == 409 and place in message
        fallback = {"name": "law", "upstream": {**ENDPOINT, "fallbacks": ["cooking"]}, "merge": True}
        assert client.post("/admin/experts", json=fallback).status_code == 200
        status, message = error(client.delete("/admin/experts/cooking"))
        assert status == 409 and "the fallbacks of law" in message
    alone = config(folder, state=str(folder / "other"), experts=[{"name": "law", **ENDPOINT}])
    with admin(alone) as client:
        assert error(client.delete("/admin/experts/law")) == (409, "'law' is the only expert: add another first")
        assert names(client) == ["law", "maths", "cooking"]
        assert client.delete("/admin/experts/maths").status_code == 200  # nobody serves it, so only the router forgets
        assert names(client) == ["law", "cooking"]


def test_the_domains_of_a_router_elsewhere_or_of_a_serving_copy_are_not_changed_here(folder: Path) -> None:
    memory, address = fsspec.filesystem("memory"), "memory://admin/router"
    for path in (folder / "router").iterdir():
        memory.pipe(f"{address}/{path.name}", path.read_bytes())
    first_router().save(folder / "serving", serving=True)
    try:
        for path, complaint in ((address, "publish it"), (str(folder / "serving"), "is a serving copy")):
            with admin(config(folder, router={"path": path}, state=str(folder / complaint))) as client:
                new = {"name": "history", "upstream": ENDPOINT}
                for refused in (
                    client.post("/admin/experts", json={**new, "texts": HISTORY}),
                    client.delete("/admin/experts/law"),
                ):
                    status, message = error(refused)
                    assert status == 409 and complaint in message
                assert client.post("/admin/experts", json=new).status_code == 201
                assert client.delete("/admin/experts/law?domain=keep").status_code == 200
                shown = client.get("/admin/router").json()
                assert not shown["changeable"] and "law" in shown["experts"]
    finally:
        memory.store.clear()


def test_the_audit_log_knows_who_and_never_the_token(folder: Path) -> None:
    with admin(config(folder)) as client:
        client.post("/admin/experts", json={"name": "x", "upstream": ENDPOINT}, headers={"x-request-id": "mine"})
        client.post("/admin/experts", json={"name": "x", "upstream": ENDPOINT})
        refused, done = client.get("/admin/audit").json()["data"]
        assert client.get("/admin/audit?last=1").json()["data"] == [refused]
    assert (done["action"], done["expert"], done["request_id"], done["outcome"]) == ("add expert", "x", "mine", "done")
    assert done["router_before"] == done["router_after"] and done["who"] == refused["who"].strip()
    assert (refused["outcome"], refused["status"], refused["code"]) == ("refused", 409, "exists")
    written = "".join(path.read_text() for path in (folder / "state").glob("*.json*"))
    assert TOKEN not in written and "texts" not in written


def test_a_request_in_flight_ends_with_the_expert_that_is_removed_meanwhile(folder: Path) -> None:
    upstream, asked, go_on = Upstream(), threading.Event(), threading.Event()

    async def slow(request: Request, body: dict[str, Any]) -> Response:
        import asyncio

        asked.set()
        await asyncio.to_thread(go_on.wait, 30)
        return await answer(request, body)

    upstream.behaviour["law"] = slow
    with served(upstream.app()) as address, admin(config(folder, f"{address}/law/v1")) as client:
        answers: list[Any] = []
        body = {"model": "law", "messages": [{"role": "user", "content": "Is it void?"}]}
        thread = threading.Thread(target=lambda: answers.append(client.post("/v1/chat/completions", json=body)))
        thread.start()
        assert asked.wait(30)
        assert client.delete("/admin/experts/law").status_code == 200
        assert client.post("/v1/chat/completions", json=body).status_code == 404
        go_on.set()
        thread.join(30)
    assert answers[0].status_code == 200 and answers[0].headers["x-ir3de-expert"] == "law"


def test_without_the_token_there_is_no_admin(folder: Path) -> None:
    with admin(config(folder)) as client:
        for headers in ({"authorization": ""}, {"authorization": "Bearer wrong"}):
            for method, path in (
                ("GET", "experts"),
                ("POST", "experts"),
                ("DELETE", "experts/law"),
                ("POST", "reload"),
            ):
                assert client.request(method, f"/admin/{path}", headers=headers).status_code == 401
        assert names(client) == [*tiny.DOMAINS]


def test_a_router_fitted_from_outcomes_takes_rows_with_scores(folder: Path) -> None:
    rows = [{"text": text, "scores": {"a": len(text) % 3, "b": 1}} for text in tiny.mixed(12)]
    Router.fit_outcomes(rows, embedding=tiny.embedding()).save(folder / "outcomes")
    base = config(folder, router={"path": str(folder / "outcomes")}, experts=[{"name": n, **ENDPOINT} for n in "ab"])
    new = {"name": "c", "upstream": ENDPOINT}
    with admin(base) as client:
        status, message = error(client.post("/admin/experts", json={**new, "texts": HISTORY}))
        assert status == 422 and "must be a mapping with 'text' and 'scores', found str" in message
        content = "\n".join(json.dumps({"text": row["text"], "scores": {"c": 2}}) for row in rows).encode()
        file = {"name": "c.jsonl", "content": base64.b64encode(content).decode()}
        assert client.post("/admin/experts", json={**new, "file": file}).status_code == 201
        assert client.gateway.live.snapshot.router.experts == ("a", "b", "c")
