"""Versions of the router: every one that went live is in the history, and can serve again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from starlette.testclient import TestClient

from admin_client import HISTORY, admin, config, error, token  # noqa: F401
from ir3de.serving import read_header
from ir3de.traffic import Journal, JournalPrompt, TrafficRecord
from ir3de_gateway.cli.router import router as command
from raw_sockets import eventually
from saved import first_router, second_router


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    first_router().save(tmp_path / "router")
    second_router().save(tmp_path / "other")
    return tmp_path


def open_gateway(folder: Path, versions: int = 5, **changes: Any) -> Any:
    return admin(
        config(folder, router={"path": str(folder / "router"), "follow": 0.05, "versions": versions}, **changes)
    )


def history(client: TestClient) -> list[dict[str, Any]]:
    found = client.get("/admin/router/history").json()["data"]
    assert isinstance(found, list)
    return found


def use(client: TestClient, path: Path) -> str:
    made = client.put("/admin/router", json={"path": str(path)})
    assert made.status_code == 200, made.text
    return str(made.json()["digest"])


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, catch_exceptions=True)


def test_every_router_that_went_live_is_in_the_history(folder: Path) -> None:
    with open_gateway(folder) as client:
        (first,) = history(client)
        assert (first["number"], first["action"], first["who"]) == (1, "load", "") and first["live"] and first["kept"]
        assert first["digest"] == read_header(folder / "router")["sha256"]
        second = use(client, folder / "other")
        assert [row["digest"] for row in history(client)] == [second, first["digest"]]
        assert history(client)[0]["action"] == "replace router" and history(client)[0]["who"].startswith("token ")
        back = client.post("/admin/router/rollback", json={"why": "complaints"})
        assert (back.status_code, back.json()["digest"]) == (200, first["digest"])
        newest = history(client)[0]
        assert (newest["number"], newest["action"], newest["why"]) == (3, "roll back", "complaints")
        again = client.post("/admin/router/rollback", json={"to": "2"})
        assert again.json()["digest"] == second
    with open_gateway(folder) as client:  # what serves is the same after a restart, and no new version
        assert client.get("/admin/router").json()["digest"] == second and len(history(client)) == 4


def test_a_published_router_is_a_version_and_can_be_undone(folder: Path) -> None:
    with open_gateway(folder) as client:
        first = history(client)[0]["digest"]
        second_router().save(folder / "router")  # in place, as a deployment does
        assert eventually(lambda: len(history(client)) == 2)
        assert history(client)[0]["action"] == "load"
        assert client.post("/admin/router/rollback", json={}).json()["digest"] == first
        assert client.delete("/admin/router").json()["digest"] == read_header(folder / "router")["sha256"]
        assert [row["number"] for row in history(client)] == [4, 3, 2, 1]


def test_only_the_last_routers_are_kept_and_the_live_one_always(folder: Path) -> None:
    with open_gateway(folder, versions=2) as client:
        first, second = history(client)[0]["digest"], use(client, folder / "other")
        made = client.post(
            "/admin/experts",
            json={"name": "history", "texts": HISTORY, "upstream": {"base_url": "http://127.0.0.1:9/v1"}},
        )
        assert made.status_code == 201, made.text
        rows = history(client)
        assert [row["kept"] for row in rows] == [True, True, False] and rows[2]["digest"] == first
        kept = {path.name for path in (folder / "state").glob("*router-*")}
        assert kept == {f"router-{row['digest'][:16]}" for row in rows[:2]} and rows[1]["digest"] == second
        status, message = error(client.post("/admin/router/rollback", json={"to": "1"}))
        assert status == 409 and "no longer kept" in message
    with open_gateway(folder, versions=0) as client:  # the one that serves is needed
        assert client.post("/admin/router/rollback", json={"to": "2"}).status_code == 200
        assert client.get("/admin/router").json()["digest"] == second


@pytest.mark.parametrize(
    ("body", "status", "part"),
    [
        ({"to": "99"}, 404, "no version '99'"),
        ({"to": "1"}, 409, "serves already"),
        ({}, 404, "no other version is kept"),
        ({"to": 1}, 422, "to"),
        ({"for": "1"}, 422, "for"),
    ],
)
def test_a_rollback_that_cannot_be_is_refused(folder: Path, body: dict[str, Any], status: int, part: str) -> None:
    with open_gateway(folder) as client:
        found, message = error(client.post("/admin/router/rollback", json=body))
        assert found == status and part in message


def test_a_damaged_version_does_not_serve(folder: Path) -> None:
    with open_gateway(folder) as client:
        first = history(client)[0]["digest"]
        second = use(client, folder / "other")
        table = next((folder / "state" / f"router-{first[:16]}").glob("statistics-*"))
        table.unlink()
        table.write_bytes(b"half")
        status, message = error(client.post("/admin/router/rollback", json={}))
        assert status == 409 and "damaged" in message
        assert client.get("/admin/router").json()["digest"] == second


def test_a_damaged_history_is_reported_and_stops_nothing(folder: Path) -> None:
    with open_gateway(folder) as client:
        (folder / "state" / "versions.json").write_text('{"kind": "ir3de.versions", "version": 1, "versions": 3}')
        status, message = error(client.get("/admin/router/history"))
        assert status == 500 and "versions.json is damaged" in message and "Copy it again" in message
        assert use(client, folder / "other") == read_header(folder / "other")["sha256"]
    with open_gateway(folder) as client:
        assert client.get("/admin/router").json()["origin"] == "replaced"


def test_a_diff_names_what_changed(folder: Path) -> None:
    prompts = [f"Is contract {n} void?" for n in range(20)] + [f"How do I boil {n} eggs?" for n in range(20)]
    with Journal.create(folder / "kept") as journal:
        rows = [
            TrafficRecord(f"r{n}", float(n), prompt=JournalPrompt.from_text([text])) for n, text in enumerate(prompts)
        ]
        journal.append(rows)
    with open_gateway(folder, feedback={"folder": str(folder / "kept"), "keep": "text"}) as client:
        client.post(
            "/admin/experts",
            json={"name": "history", "texts": HISTORY, "upstream": {"base_url": "http://127.0.0.1:9/v1"}},
        )
        found = client.get("/admin/router/diff").json()
        assert (found["from"]["number"], found["to"]["number"]) == (1, 2)
        assert found["experts"] == {"added": ["history"], "removed": []}
        assert found["contributions"] == {"added": [], "removed": []} and isinstance(found["settings"], dict)
        assert found["traffic"]["requests"] == 40 and found["traffic"]["unknown"] is None
        assert found["traffic"]["different"] == sum(move["requests"] for move in found["traffic"]["moves"])
        back = client.get("/admin/router/diff?from=2&to=1").json()
        assert back["experts"] == {"added": [], "removed": ["history"]}
        assert client.get("/admin/router/diff?from=7").status_code == 404


# the command line ---------------------------------------------------------------------------------------------------


def test_the_command_line_shows_and_undoes_while_the_gateway_serves(folder: Path) -> None:
    state = str(folder / "state")
    with open_gateway(folder) as client:
        first = history(client)[0]["digest"]
        use(client, folder / "other")
        shown = run("history", state)
        assert shown.exit_code == 0 and first[:12] in shown.output and "replace router" in shown.output
        assert "version 1 → 2" in run("diff", state).output
        made = run("rollback", state, "--why", "complaints", "--json")
        assert json.loads(made.output)["digest"] == first
        assert eventually(lambda: client.get("/admin/router").json()["digest"] == first)
        assert eventually(lambda: len(history(client)) == 3)
        newest = history(client)[0]
        assert newest["who"].startswith("user ") and newest["why"] == "complaints"
        assert client.get("/admin/audit").json()["data"][0]["action"] == "roll back"
    assert run("rollback", state, "--to", "2").exit_code == 0  # nothing serves now
    with open_gateway(folder) as client:
        assert history(client)[0]["number"] == 4 and client.get("/admin/router").json()["digest"] != first


def test_the_command_line_refuses_other_folders(folder: Path) -> None:
    for arguments in (("history",), ("diff",), ("rollback",)):
        found = run(arguments[0], str(folder / "other"))
        assert "is not the state folder" in str(found.exception)
    shutil.rmtree(folder / "state", ignore_errors=True)
    with open_gateway(folder):
        pass
    assert "no version '9'" in str(run("rollback", str(folder / "state"), "--to", "9").exception)
