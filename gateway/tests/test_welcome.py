"""What `ir3de serve` says at its start, and the admin token of a run on loopback."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError

import pytest

from ir3de.cli.plugins import Output
from ir3de_gateway.cli.serve import welcome
from ir3de_gateway.config.document import Config, Server
from ir3de_gateway.http.service import build_page_link, provide_admin_token
from ir3de_gateway.validation import CheckedConfig
from running_gateway import small_router

ADDRESS = "http://127.0.0.1:8100"
LINK = re.compile(r"(http://[\w.:]+)/#token=([\w-]{32})")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IR3DE_CONFIG", "IR3DE_API_KEY", "IR3DE_ADMIN_TOKEN", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def check(**changes: object) -> CheckedConfig:
    given = {"router": {"path": "router"}, "experts": [{"name": "law", "base_url": "http://127.0.0.1:1/v1"}], **changes}
    return CheckedConfig(Config.model_validate(given), None, [])


def test_the_token_is_there_while_it_serves_and_gone_afterwards() -> None:
    with provide_admin_token(Server()) as token:
        assert token is not None and len(token) == 32 and os.environ["IR3DE_ADMIN_TOKEN"] == token
        with provide_admin_token(Server(host="::1", admin_token_env="OTHER")) as other:
            assert other == os.environ["OTHER"] != token
    assert "IR3DE_ADMIN_TOKEN" not in os.environ and "OTHER" not in os.environ
    assert (
        build_page_link(ADDRESS, "abc") == f"{ADDRESS}/#token=abc" and build_page_link(ADDRESS, None) == f"{ADDRESS}/"
    )


def test_there_is_none_where_one_is_configured_or_other_machines_can_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    with provide_admin_token(Server(host="0.0.0.0")) as token:
        assert token is None and "IR3DE_ADMIN_TOKEN" not in os.environ
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", " ")  # which counts as not set
    with provide_admin_token(Server()) as token:
        assert token == os.environ["IR3DE_ADMIN_TOKEN"]
    assert os.environ["IR3DE_ADMIN_TOKEN"] == " "
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", "sesame")
    with provide_admin_token(Server()) as token:
        assert token is None and os.environ["IR3DE_ADMIN_TOKEN"] == "sesame"


def test_the_welcome_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # by which rich takes anything for a terminal
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("IR3DE_API_KEY", "sesame")
    link = f"{ADDRESS}/#token={'x' * 32}"
    welcome(ADDRESS, check(routing={"shadow": "law"}, server={"keys_file": "/k"}), Output(), page=link)
    printed = capsys.readouterr()
    assert printed.out == ""  # where the access log goes
    for expected in (
        f"{ADDRESS}/v1",
        "everything goes to law",
        "workers",
        "Bearer $IR3DE_API_KEY",
        '"model": "auto"',
        link,
    ):
        assert expected in printed.err
    assert "sesame" not in printed.err and "$IR3DE_API_KEY or /k" in printed.err
    welcome(ADDRESS, check(server={"admin_token_env": "ROOT_TOKEN"}), Output(), page=f"{ADDRESS}/", state=Path("/s"))
    printed = capsys.readouterr()
    assert "off: set ROOT_TOKEN" in printed.err and "/s" in printed.err


@pytest.mark.parametrize(("variable", "keys_file", "shown"), [("", "/k", "KEY"), ("sesame", None, "IR3DE_API_KEY")])
def test_the_example_carries_a_key_where_one_is_needed(
    variable: str,
    keys_file: str | None,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("IR3DE_API_KEY", variable)
    welcome(ADDRESS, check(server={"keys_file": keys_file}), Output(), page=f"{ADDRESS}/")
    assert f'-H "authorization: Bearer ${shown}"' in capsys.readouterr().err
    monkeypatch.setenv("IR3DE_API_KEY", "")
    welcome(ADDRESS, check(), Output(), page=f"{ADDRESS}/")
    assert "authorization" not in capsys.readouterr().err


def test_the_welcome_elsewhere_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    welcome(ADDRESS, check(), Output(), page=f"{ADDRESS}/")
    assert capsys.readouterr().err == f"serving on {ADDRESS}\n"
    welcome(ADDRESS, check(), Output(), page=f"{ADDRESS}/#token=abc")  # the demo's
    assert capsys.readouterr().err == f"serving on {ADDRESS}, page: {ADDRESS}/#token=abc\n"
    welcome(ADDRESS, check(), Output(quiet=True), page=f"{ADDRESS}/#token=abc")
    assert capsys.readouterr().err == f"serving on {ADDRESS}\n"


def ask_admin(address: str, token: str = "") -> tuple[int, str]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{address}/admin/experts", headers=headers)) as answer:
            return answer.status, answer.headers["x-request-id"]
    except HTTPError as error:
        with error:
            return error.code, json.loads(error.read())["error"]["message"]


@contextmanager
def serving(folder: Path, *options: str, terminal: bool) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`ir3de serve` as people start it, and where its messages can be read: from a terminal, or from a pipe."""
    small_router().save(folder / "router")
    reading, writing = pty.openpty() if terminal else os.pipe()
    experts = [f"--expert={name}=http://127.0.0.1:1/v1" for name in ("law", "maths", "cooking")]
    process = subprocess.Popen(
        [sys.executable, "-m", "ir3de", "serve", "--router", "router", "--port", "0", *experts, *options],
        cwd=folder,
        env={**os.environ, "COLUMNS": "60", "TERM": "xterm", "XDG_STATE_HOME": str(folder / "state")},
        stdout=subprocess.PIPE,
        stderr=writing,
    )
    os.close(writing)
    try:
        yield process, reading
    finally:
        process.terminate()
        if process.stdout is not None and not process.stdout.closed:
            process.communicate(timeout=30)
        os.close(reading)


def read_until(wanted: re.Pattern[str], file: int) -> re.Match[str]:
    said = ""
    while (found := wanted.search(said)) is None:
        piece = os.read(file, 4096).decode()
        assert piece, f"the gateway ended: {said}"
        said += piece
    return found


@pytest.mark.slow
def test_on_a_terminal_the_link_opens_admin_in_every_worker_and_no_log_has_the_token(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2", terminal=True) as (process, messages):
        address, token = read_until(LINK, messages).groups()
        assert {ask_admin(address, token)[0] for _ in range(20)} == {200}  # each on a connection of its own
        status, message = ask_admin(address, "guessed")
        assert status == 401 and "wrong" in message and "IR3DE_ADMIN_TOKEN" in message and "link" in message
        assert "missing" in ask_admin(address)[1]
        process.terminate()
        log = process.communicate(timeout=30)[0].decode()
    assert "/admin/experts" in log and token not in log
    assert not any(token in path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.slow
def test_where_nobody_watches_there_is_no_token_unless_json_asks_for_it(tmp_path: Path) -> None:
    with serving(tmp_path, terminal=False) as (_, messages):
        said = read_until(re.compile(r"serving on ([^\s,]+).*\n"), messages)
        assert "#" not in said[0]
        status, message = ask_admin(said[1])
        assert status == 403 and "IR3DE_ADMIN_TOKEN" in message
    with serving(tmp_path, "--json", terminal=False) as (process, _):
        assert process.stdout is not None
        page = LINK.fullmatch(json.loads(process.stdout.readline())["page"])
        assert page is not None and ask_admin(*page.groups())[0] == 200
