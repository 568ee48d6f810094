"""What the operator is told: of experts that refuse or fail, and of changes that a restart leaves in force."""

from __future__ import annotations

import json
import logging
import socket
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import yaml
from openai import APIStatusError, OpenAI

import raw_sockets
from commands import run, run_json, wrong_call
from ir3de.cli.output import Output
from ir3de_gateway import validation
from ir3de_gateway.admin.state import State, StateFolder
from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.config.load import read
from running_gateway import QUESTIONS, failing, running, small_router


def ask(url: str, expert: str, model: str = "auto", **more: Any) -> APIStatusError:
    with (
        OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(APIStatusError) as found,
    ):
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": QUESTIONS[expert]}], **more)
    return found.value


def test_an_expert_that_refuses_our_key_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAW_KEY", "sk-very-secret")
    with running(tmp_path, experts={"law": {"api_key_env": "LAW_KEY"}}) as gateway, caplog.at_level(logging.WARNING):
        gateway.upstream.behaviour["law"] = failing(401)
        ask(gateway.url, "law")
        error = ask(gateway.url, "law")
    assert caplog.text.count("rejects") == 1
    assert error.status_code == 401 and error.response.headers["x-ir3de-expert"] == "law"
    assert "'law' rejects the gateway's key (api_key_env: LAW_KEY)" in caplog.text
    assert "sk-very-secret" not in caplog.text


def test_an_expert_that_is_left_alone_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    breaker = {"law": {"breaker": {"failures": 2, "rest": 60}}}
    with running(tmp_path, experts=breaker) as gateway, caplog.at_level(logging.WARNING):
        gateway.upstream.behaviour["law"] = failing(500)
        for number in range(4):
            ask(gateway.url, "law", model="law", user=str(number))
    told = [record.getMessage() for record in caplog.records if "no requests for 60 s" in record.getMessage()]
    assert len(told) == 1 and "'law' answered with status 500 at http://127.0.0.1:" in told[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])  # a name may have several addresses
def test_an_expert_that_cannot_be_reached_is_told_of_in_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, host: str
) -> None:
    with running(tmp_path, experts={"law": {"base_url": f"http://{host}:9/v1"}}) as gateway:
        assert ask(gateway.url, "law", model="law").status_code == 502
    assert f"'law' at http://{host}:9/v1: connection refused" in caplog.messages


def test_replicas_that_are_down_are_told_of_in_words(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checks = {"interval": 0.05, "down_interval": 0.05, "unhealthy": 1, "timeout": 0.2}
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it lets clients in and says nothing
        addresses = ["http://127.0.0.1:9/v1", f"http://127.0.0.1:{silent.getsockname()[1]}/v1"]
        law = {"base_url": addresses[0], "replicas": addresses, "health": checks}
        with running(tmp_path, experts={"law": law}), caplog.at_level(logging.WARNING):
            assert raw_sockets.eventually(lambda: caplog.text.count("is down (") == 2)
    assert f"at {addresses[1]} is down (no response within 0.2 s): it gets no requests" in caplog.text
    assert f"at {addresses[0]} is down (connection refused): it gets" in caplog.text and "Err" not in caplog.text


def test_health_tells_experts_that_cool_from_those_that_fail(tmp_path: Path) -> None:
    with running(tmp_path) as gateway:
        experts = gateway.gateway.live.snapshot.experts

        def health() -> tuple[str, int, list[str]]:
            told = raw_sockets.ask(gateway.url, path="/health").json
            ready = raw_sockets.ask(gateway.url, path="/readyz").status
            return told["status"], ready, list(told["experts"].values())

        assert health() == ("ok", 200, ["closed"] * 3)
        for expert in experts.values():
            expert.breaker.cool_down(30.0)
        assert health() == ("degraded", 200, ["cooling"] * 3)  # clients are told when to come back
        for expert in experts.values():
            for _ in range(5):
                expert.breaker.record_failure()
        assert health() == ("unavailable", 503, ["open"] * 3)


def test_who_was_asked_before_is_said(tmp_path: Path) -> None:
    gone = {name: {"base_url": "http://127.0.0.1:1/v1"} for name in QUESTIONS}
    with running(tmp_path, experts=gone, routing={"default": "maths"}) as gateway:
        said: Any = ask(gateway.url, "law").body
    assert "'maths' cannot be reached. Tried before: law (connect)" in said["message"]


@pytest.mark.parametrize("proxy", ["ftp://u:sk-very-secret@127.0.0.1:1", "http://u:sk-very-secret@127.0.0.1:port"])
def test_a_proxy_that_cannot_be_used_is_told_of_without_its_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    elsewhere = {name: {"base_url": f"http://{name}.example/v1"} for name in QUESTIONS}
    with running(tmp_path, experts=elsewhere) as gateway, caplog.at_level(logging.WARNING):
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        got = raw_sockets.ask(gateway.url, raw_sockets.chat(QUESTIONS["law"], "auto"))
    assert got.status == 502 and "cannot be reached" in got.error["message"]
    assert "the environment's proxy" in caplog.text and "sk-very-secret" not in caplog.text + got.error["message"]


def test_fifty_megabytes_are_refused_before_they_are_sent(tmp_path: Path) -> None:
    with running(tmp_path) as gateway:
        connection = HTTPConnection(gateway.url.removeprefix("http://"), timeout=20)
        connection.putrequest("POST", "/v1/chat/completions")
        connection.putheader("content-length", "50000000")
        connection.endheaders()
        answer = connection.getresponse()
        assert answer.status == 413 and json.load(answer)["error"]["code"] == "request_too_large"
        connection.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    small_router().save(tmp_path / "router")
    experts = [{"name": name, "base_url": "http://127.0.0.1:1/v1"} for name in QUESTIONS]
    path = tmp_path / "ir3de.yaml"
    path.write_text(yaml.safe_dump({"version": 1, "router": {"path": "router"}, "experts": experts}))
    return path


def test_a_start_names_the_line_of_what_is_wrong(file: Path) -> None:
    file.write_text(file.read_text() + "server: {host: 0.0.0.0}\n")
    line = file.read_text().count("\n")
    assert f"line {line}, server.host: 0.0.0.0 can be reached from other machines" in run("serve", file, code=1).stderr


def test_replicas_that_are_still_drained_are_named(file: Path) -> None:
    folder = StateFolder(file.parent / "ir3de-state")
    folder.path.mkdir()
    drained = State().with_drained("law", "127.0.0.1:1", is_drained=True).with_drained("law", "b", is_drained=True)
    folder.write(drained, {"action": "test"})
    _, (finding,) = validation.apply_admin_state(read(file), file)
    assert "apply: drained 127.0.0.1:1 of law, b of law. Delete" in finding.message
    (folder.path / "state.json").unlink()
    assert validation.apply_admin_state(read(file), file)[1] == []


def test_changes_that_are_still_in_force_are_shown(file: Path) -> None:
    config = read(file)
    assert validation.apply_admin_state(config, file) == (config, [])
    garden = ExpertConfig(name="garden", base_url="http://127.0.0.1:1/v1")
    folder = StateFolder(file.parent / "ir3de-state")
    folder.path.mkdir()
    folder.write(State().with_expert(garden).without("law", config), {"action": "test"})
    changed, (finding,) = validation.apply_admin_state(config, file)
    assert list(changed.by_name) == ["maths", "cooking", "garden"]
    assert "added garden; removed law" in finding.message and str(folder.path) in finding.message
    assert finding.message.endswith("Delete {} to drop them".format(folder.path / "state.json"))  # and nothing else
    for command in (("config", "show", file), ("config", "validate", file), ("serve", file, "--dry-run")):
        told = run(*command)
        assert "garden" in told.stdout and "added garden" in " ".join((told.stdout + told.stderr).split()), command
    shown = json.loads(run("config", "show", file, "--json").stdout)
    assert [expert["name"] for expert in shown["config"]["experts"]] == ["maths", "cooking", "garden"]


@pytest.mark.parametrize(
    ("field", "name", "why"),
    [
        ("access", "logs/access.jsonl", "No such file or directory"),
        ("access", "a" * 300, "File name too long"),
        ("decisions", "router", "Is a directory"),
    ],
)
def test_a_log_that_cannot_be_written_is_found_before_serving(file: Path, field: str, name: str, why: str) -> None:
    file.write_text(file.read_text() + f"logs:\n  {field}: {name}\n")
    line = file.read_text().count("\n")
    for command in (("config", "validate"), ("serve", "--dry-run")):
        (found,) = [one for one in run_json(*command, file, code=1)["findings"] if one["level"] == "error"]
        assert (found["line"], found["where"]) == (line, f"logs.{field}")
        assert f"cannot write the log {file.parent / name}: {why}. Name a file" in found["message"]
    assert f"line {line}, logs.{field}: cannot write" in run("serve", file, code=1).stderr


def test_logs_that_can_be_written_are_not_made_by_a_check(file: Path) -> None:
    file.write_text(file.read_text() + "logs: {access: access.jsonl, decisions: null}\n")
    run("config", "validate", file)
    assert not (file.parent / "access.jsonl").exists()


def test_warnings_are_one_line_where_no_terminal_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    message = " ".join(["a line of a log is searched as a whole"] * 10)
    Output().warn(message)
    assert capsys.readouterr().err == f"warning: {message}\n"


def test_config_check_is_answered_with_validate() -> None:
    assert "No such command 'check'. Did you mean 'validate'?" in wrong_call("config", "check")
