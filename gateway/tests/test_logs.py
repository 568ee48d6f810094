"""Logs: a line a request, whole, without a word of what is secret; files that come, go and fill up."""

import asyncio
import json
import os
import select
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

import exchange_records as made
import running_gateway
import tiny
from ir3de.errors import ArtifactError
from ir3de_gateway.telemetry import log_lines, logs
from ir3de_gateway.telemetry.counts import PROCESS_COUNTS
from ir3de_gateway.telemetry.log_lines import format_access_line, format_decision_line
from ir3de_gateway.telemetry.logs import LogFile
from ir3de_gateway.telemetry.metrics import OUTCOMES
from ir3de_gateway.telemetry.observer import Observer
from raw_sockets import eventually

SECRET = "sk-Geheim"
ANYTHING = st.text(max_size=200) | st.sampled_from(["\n", '"', "\\", "\ud800", "字🙂", "\u2028", "a" * 5_000])
SECONDS = st.none() | st.floats(0, 1e6)
RECORDS = st.fixed_dictionaries(
    {
        "asked": ANYTHING,
        "expert": ANYTHING,
        "model": ANYTHING,
        "error": ANYTHING,
        "outcome": st.sampled_from(OUTCOMES),
        "route_seconds": SECONDS,
        "first_seconds": SECONDS,
        "total_seconds": st.floats(0, 1e6),
        "cost": SECONDS,
        "prompt_tokens": st.none() | st.integers(0, 10**9),
        "stream": st.booleans(),
        "fallbacks": st.lists(st.tuples(ANYTHING, ANYTHING, ANYTHING), max_size=20),
        "decision": st.booleans().map(lambda routed: made.decided() if routed else None),
        "confidence": st.none() | st.floats(0, 1),
        "margin": st.none() | st.floats(-1, 1),
    }
)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@tiny.LAW
@given(RECORDS)
def test_a_record_is_one_line_of_json_without_its_prompt_or_session(fields: dict[str, Any]) -> None:
    record = made.record(**fields, text=SECRET, session=SECRET)
    told = [format_access_line(record)]
    if record.decision is not None:
        told.append(format_decision_line(record, price=made.live().snapshot.config.experts[0].price))
    for line in told:
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        assert SECRET.encode() not in line
        found = json.loads(line)
        assert found["outcome"] == record.outcome and found["cost"] == pytest.approx(record.cost)
        assert "text" not in found
    found = json.loads(told[0])
    assert found["asked"] == record.asked[: log_lines.MAX_NAME_CHARS]
    assert (found["confidence"] is None) == (record.decision is None or record.confidence is None)
    assert found["stream"] is record.stream


@tiny.LAW
@given(ANYTHING)
def test_with_prompts_the_decisions_log_holds_the_text_to_the_letter(text: str) -> None:
    assert json.loads(format_decision_line(made.record(text=text), prompts=True))["text"] == text


def test_a_time_is_in_universal_time_to_the_millisecond() -> None:
    assert json.loads(format_access_line(made.record(started=86_400.9996)))["time"] == "1970-01-02T00:00:00.999Z"


def test_the_decisions_log_has_what_was_decided_and_what_was_served(tmp_path: Path) -> None:
    observer = Observer(made.live(made.log_paths(tmp_path, prompts=True)))
    handed_on = [("law", "maths", "5xx")]
    observer.observe(made.record(expert="maths", fallbacks=handed_on, text="Is it void?"))
    observer.observe(made.record(decision=None, expert="law", why="asked by name"))
    observer.close()
    assert [line["expert"] for line in lines(tmp_path / "access.jsonl")] == ["maths", "law"]
    (decided,) = lines(tmp_path / "decisions.jsonl")  # the other one was not routed
    assert (decided["expert"], decided["served"], decided["text"]) == ("law", "maths", "Is it void?")
    assert decided["fallbacks"] == [["law", "maths", "5xx"]]
    assert decided["price"] == {"input_per_1m": 1.0, "output_per_1m": 2.0}
    assert [row["expert"] for row in decided["ranking"]] == ["law", "maths"]
    assert decided["confidence"] == pytest.approx(made.decided().confidence, abs=1e-6)


def test_a_rotated_file_is_left_for_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    monkeypatch.setattr(logs, "ROTATION_CHECK_S", 3_600.0)
    log = LogFile(str(path))
    log.write(b"one\n")
    assert eventually(lambda: path.read_text() == "one\n")
    path.rename(tmp_path / "log.1")
    log.write(b"two\n")  # not looked yet
    assert eventually(lambda: (tmp_path / "log.1").read_text() == "one\ntwo\n")
    monkeypatch.setattr(log, "_next_check_at", 0.0)
    log.write(b"three\n")
    assert eventually(lambda: path.exists() and path.read_text() == "three\n")
    path.rename(tmp_path / "log.2")
    log.reopen()  # as on SIGHUP
    log.write(b"four\n")
    log.close()
    found = [(tmp_path / name).read_text() for name in ("log.1", "log.2", "log")]
    assert found == ["one\ntwo\n", "three\n", "four\n"]


def test_a_new_configuration_moves_the_log(tmp_path: Path) -> None:
    live = made.live(made.log_paths(tmp_path))
    observer = Observer(live)
    observer.observe(made.record())
    snapshot = live.snapshot
    moved = snapshot.config.logs.model_copy(update={"access": str(tmp_path / "new.jsonl"), "decisions": None})
    live.swap(type(snapshot).from_config(snapshot.config.model_copy(update={"logs": moved}), snapshot.router, "e" * 64))
    observer.observe(made.record())
    observer.close()
    assert [len(lines(tmp_path / name)) for name in ("access.jsonl", "decisions.jsonl", "new.jsonl")] == [1, 1, 1]


def test_a_folder_that_is_missing_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"cannot write the log .*No such file"):
        LogFile(str(tmp_path / "nowhere" / "log"))


FULL = """
import logging, os, resource, signal, sys
from ir3de_gateway.telemetry.logs import LogFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
logging.basicConfig(format="%(message)s")
log = LogFile(sys.argv[1])
log.write(b"a" * 99 + b"\\n")
while not os.path.getsize(sys.argv[1]):
    pass
resource.setrlimit(resource.RLIMIT_FSIZE, (150, 150))  # as a disk that is full
for _ in range(3):
    log.write(b"b" * 99 + b"\\n")
log.close()
print(log.lost)
"""


def test_a_full_disk_loses_lines_and_nothing_else(tmp_path: Path) -> None:
    command, environment = tiny.python_command(FULL, tmp_path / "log")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "3\n"
    assert done.stderr.count("lines dropped so far") == 1  # not once a request
    log = LogFile(str(tmp_path / "log"))
    log._is_torn = True
    log.write(b"c\n")
    log.close()
    assert (tmp_path / "log").read_text().splitlines() == ["a" * 99, "b" * 50, "c"]


def fill_pipe(log: LogFile, line: bytes) -> None:
    """Write until lines are lost, because nobody reads."""
    while not log.lost:
        for _ in range(1_000):
            log.write(line)


def test_a_log_that_nobody_reads_never_blocks_and_says_what_it_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = os.pipe()
    monkeypatch.setattr(logs, "MAX_QUEUE_BYTES", 100_000)
    before = PROCESS_COUNTS.log_lines_dropped
    log = LogFile("-")
    log._file = writer
    fill_pipe(log, b"x" * 99 + b"\n")
    assert "cannot write to standard output: lines come faster than it accepts them" in caplog.text
    assert PROCESS_COUNTS.log_lines_dropped - before == log.lost > 0
    log.close(0.01)  # what waited is lost now
    assert log.lost > 900
    written = b""
    assert log._thread is not None
    while log._thread.is_alive():  # a reader comes after all
        if select.select([reader], [], [], 0.01)[0]:
            written += os.read(reader, 65_536)
    os.close(writer)
    while piece := os.read(reader, 65_536):
        written += piece
    assert written.endswith(b"\n") and set(written.splitlines()) == {b"x" * 99}  # only whole lines
    os.close(reader)


def test_a_pipe_that_somebody_made_non_blocking_loses_nothing() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    log = LogFile("-")
    log._file = writer
    for number in range(5_000):
        log.write(b"%099d\n" % number)
    read = b""
    while len(read) < 500_000:
        read += os.read(reader, 65_536)
    assert [int(line) for line in read.splitlines()] == list(range(5_000)) and log.lost == 0
    log.close()
    os.close(reader), os.close(writer)


STALLED = """
import logging, os, sys
from ir3de_gateway.server import configure_logging
configure_logging("info")
for number in range(20_000):
    logging.getLogger("ir3de.gateway").warning("%s", "x" * 500)
sys.exit(7)
"""


def test_messages_that_nobody_reads_do_not_block_a_process_not_even_at_its_end() -> None:
    command, environment = tiny.python_command(STALLED)
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        assert process.wait(60) == 7
        assert process.stderr is not None and b"WARNING xxx" in process.stderr.read()


@pytest.mark.nightly
def test_several_processes_do_not_mix_their_lines(tmp_path: Path) -> None:
    script = """
import sys
from ir3de_gateway.telemetry.logs import LogFile
log = LogFile(sys.argv[1])
for number in range(300):
    log.write((sys.argv[2] * 3000 + "\\n").encode())
log.close()
"""
    workers = []
    for letter in "ab":
        command, environment = tiny.python_command(script, tmp_path / "log", letter)
        workers.append(subprocess.Popen(command, env=environment))
    assert [worker.wait() for worker in workers] == [0, 0]
    found = (tmp_path / "log").read_text().splitlines()
    assert len(found) == 600 and set(found) == {"a" * 3000, "b" * 3000}


def test_an_observer_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    observer = Observer(made.live())
    observer.observe(made.record(route_seconds="soon", text=SECRET))
    assert "could not record request request-1" in caplog.text and SECRET not in caplog.text


def test_requests_that_ask_no_expert_have_a_line_but_for_probes_that_go_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IR3DE_API_KEY", "sesame")
    monkeypatch.delenv("IR3DE_ADMIN_TOKEN", raising=False)
    access = tmp_path / "access.jsonl"

    async def ask(url: str) -> None:
        async with aiohttp.ClientSession(headers={"authorization": f"Bearer {SECRET}"}) as session:
            for path in ("/version", "/livez", "/metrics", f"/nothing?{SECRET}", "/v1/models", "/admin/audit"):
                async with session.get(url + path) as answer:
                    await answer.read()

    with running_gateway.running(tmp_path, logs={"access": str(access)}) as running:
        asyncio.run(ask(running.url))
    told = [(line["method"], line["endpoint"], line["status"], line["error"]) for line in lines(access)]
    assert told == [
        ("GET", "/nothing", 404, ""),
        ("GET", "/v1/models", 401, "invalid_api_key"),
        ("GET", "/admin/audit", 403, "no_admin"),
    ]
    assert SECRET not in access.read_text()


def test_a_gateway_writes_down_its_requests_but_no_secret_of_theirs(tmp_path: Path) -> None:
    access = tmp_path / "access.jsonl"
    paths = {"access": str(access), "decisions": str(tmp_path / "decisions.jsonl")}

    async def ask(url: str) -> list[int]:
        headers = {"authorization": f"Bearer {SECRET}", "x-session-id": SECRET, "cookie": SECRET, "x-own": SECRET}
        messages = [{"role": "user", "content": f"Is my contract void? {SECRET}"}]
        found = []
        async with aiohttp.ClientSession(headers=headers) as session:
            for extra in ({}, {"stream": True}, {"stream": "yes"}, {"model": "law"}, {"model": "nobody"}):
                body = {"model": "auto", "messages": messages, **extra}
                async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
                    await answer.read()
                    found.append(answer.status)
            async with session.get(f"{url}/metrics") as answer:
                assert SECRET not in await answer.text()
        return found

    with running_gateway.running(tmp_path, logs=paths) as running:
        statuses = asyncio.run(ask(running.url))
    told = lines(access)
    assert [line["status"] for line in told] == statuses == [200, 200, 400, 200, 404]
    assert [line["outcome"] for line in told] == ["ok", "ok", "client_error", "ok", "client_error"]
    assert [line["expert"] for line in told] == ["law", "law", "", "law", ""]
    assert told[1]["stream"] is True and told[0]["prompt_tokens"] == 10
    assert len(lines(tmp_path / "decisions.jsonl")) == 2
    for path in (access, tmp_path / "decisions.jsonl"):
        assert SECRET not in path.read_text()
