"""State without a configuration file: kept where the welcome says, found again, shared with nobody by accident."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from admin_client import HISTORY, TOKEN
from commands import run
from ir3de_gateway.admin.state import find_relatives, find_state_home, prepare_state_home
from running_gateway import Upstream, served, small_router

LAW = {"name": "law", "base_url": "http://127.0.0.1:9/v1"}
MATHS = {"name": "maths", "base_url": "http://127.0.0.1:9/v1", "model": "qwen"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "states"))
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", TOKEN)
    for name in ("IR3DE_API_KEY", "IR3DE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    small_router().save(tmp_path / "router")
    return tmp_path / "states" / "ir3de"


@contextmanager
def serving(*options: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """`ir3de serve` without a file, and what it says of itself."""
    command = [sys.executable, "-m", "ir3de", "serve", "--json", "--port", "0", *options]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    with subprocess.Popen(command, text=True, **pipes) as running:
        try:
            assert running.stdout is not None
            yield running, json.loads(running.stdout.readline())
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


def admin(address: str, method: str, path: str, body: Any = None) -> Any:
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    content = None if body is None else json.dumps(body).encode()
    with urlopen(Request(address + path, content, headers, method=method), timeout=60) as response:
        return json.load(response)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("workers", [pytest.param("1", marks=pytest.mark.nightly), "2"])
def test_what_was_acknowledged_is_there_after_a_kill_and_a_restart(home: Path, tmp_path: Path, workers: str) -> None:
    with served(Upstream().app()) as experts:
        options = ["--router", str(tmp_path / "router"), "--workers", workers]
        options += ["--expert", f"law={experts}/a/v1,{experts}/b/v1", "--expert", f"maths={experts}/maths/v1"]
        drained = f"{experts.partition('://')[2]}/a/v1"
        history = {"name": "history", "upstream": {"base_url": f"{experts}/history/v1"}, "texts": HISTORY}
        with serving(*options) as (running, said):
            assert Path(said["state"]).parent == home and Path(said["state"]).is_dir()
            admin(said["address"], "PUT", f"/admin/experts/law/replicas/{drained}", {"drain": True})
            admin(said["address"], "POST", "/admin/experts", history)
            os.killpg(running.pid, signal.SIGKILL)  # at once
        with serving(*options) as (_, again):
            assert again["state"] == said["state"] and "history" in again["experts"]
            rows = {row["name"]: row for row in admin(again["address"], "GET", "/admin/experts")["data"]}
            assert rows["history"]["routed"] and rows["history"]["prompts"] == len(HISTORY)
            assert [replica["state"] for replica in rows["law"]["replicas"]] == ["drained", "up"]
            done = [line["action"] for line in admin(again["address"], "GET", "/admin/audit")["data"]]
            assert done == ["add expert", "drain replica"]
        assert (home / Path(said["state"]).name).stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_where_no_folder_can_be_made_it_serves_and_says_so(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with serving("--router", str(tmp_path / "router"), "--expert", f"law={LAW['base_url']}") as (running, said):
        assert said["state"] is None
        admin(said["address"], "POST", "/admin/experts", {"name": "maths", "upstream": {"base_url": LAW["base_url"]}})
        running.send_signal(signal.SIGTERM)
        assert running.stderr is not None
        assert "are lost when this gateway stops" in running.stderr.read()


def test_a_folder_belongs_to_what_is_served(home: Path) -> None:
    found = find_state_home("/srv/router", [LAW, MATHS])
    assert found == find_state_home("/srv/router/", [MATHS, LAW]) and found.parent == home
    others = [
        find_state_home("/srv/other/router", [LAW, MATHS]),
        find_state_home("/srv/router", [LAW]),
        find_state_home("/srv/router", [LAW, {**MATHS, "model": "other"}]),
        find_state_home("/srv/router", [LAW, {**MATHS, "base_url": "http://127.0.0.1:10/v1"}]),
        find_state_home("s3://bucket/a router?", [LAW]),
        find_state_home("https://me:secret@host/router", [LAW]),
    ]
    assert len({found, *others}) == 7
    assert all("secret" not in str(path) and path.parent == home for path in others)


def test_changes_under_other_options_are_named_and_not_taken(home: Path, tmp_path: Path) -> None:
    router = str(tmp_path / "router")
    before = find_state_home(router, [LAW])
    prepare_state_home(before, router, [LAW])
    assert json.loads((before / "gateway.json").read_text()) == {"router": router, "experts": [LAW]}
    now = find_state_home(router, [LAW, MATHS])
    assert find_relatives(now) == []  # nothing was changed there
    (before / "state.json").write_text("{}")
    assert find_relatives(now) == [before] and find_relatives(before) == []
    given = ["--expert", f"law={LAW['base_url']}", "--expert", f"maths={MATHS['base_url']}#qwen", "--dry-run"]
    done = run("serve", "--router", router, *given)
    assert done.exit_code == 0 and str(before) in done.stderr.replace("\n", "")
    assert not now.exists()  # a dry run leaves nothing behind


def test_a_folder_that_is_named_is_used(home: Path, tmp_path: Path) -> None:
    options = ["--router", str(tmp_path / "router"), "--expert", f"law={LAW['base_url']}"]
    with serving(*options, "--state", str(tmp_path / "mine")) as (_, said):
        assert said["state"] == str(tmp_path / "mine") and not home.exists()


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("law=http://a/v1", []),
        ("law=http://a/v1,http://b/v1#m", ["http://a/v1", "http://b/v1"]),
        ("law=http://a/v1, https://b/v1", ["http://a/v1", "https://b/v1"]),
    ],
)
def test_several_addresses_on_the_command_line(text: str, addresses: list[str]) -> None:
    from ir3de_gateway.cli.config import Endpoint, build_template

    found = Endpoint.parse(text)
    assert list(found.replicas) == addresses and found.base_url == (addresses or ["http://a/v1"])[0]
    written = build_template("router", [found, Endpoint.parse(text.replace("law", "maths"))])
    assert written.count('replicas: ["http://a/') == (2 if addresses else 0)
