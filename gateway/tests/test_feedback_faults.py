"""A journal that is damaged, newer, full or not writable: a clear error, and nothing is lost that could be kept."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path
from time import time
from typing import Any

import pytest

from ir3de.errors import ArtifactError, VersionError
from ir3de.traffic import Journal, TrafficRecord
from ir3de_gateway.config.document import FeedbackConfig
from ir3de_gateway.exchange_record import ExchangeRecord
from ir3de_gateway.feedback import writer as writing
from ir3de_gateway.feedback.writer import ClockWatch, JournalWriter
from ir3de_gateway.gateway import Gateway
from ir3de_gateway.integrations import litellm_journal
from ir3de_gateway.integrations.decider import Verdict
from ir3de_gateway.integrations.litellm_journal import LiteLLMJournal
from ir3de_gateway.stages.choice import Prompt
from raw_sockets import ask, chat, eventually
from running_gateway import QUESTIONS, Running, config_for, running, small_router

is_root = hasattr(os, "geteuid") and os.geteuid() == 0


def make_record(number: int, text: str = QUESTIONS["law"]) -> ExchangeRecord:
    record = ExchangeRecord(f"r{number}", "chat", text=text)
    record.decision, record.decided, record.expert = small_router().route(text), "law", "law"
    return record


def give(gateway: Running, **fields: Any) -> Any:
    return ask(gateway.url, fields, "/v1/feedback")


def route(gateway: Running) -> str:
    return ask(gateway.url, chat(QUESTIONS["law"])).headers["x-request-id"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return small_router().save(tmp_path / "router")


def test_a_damaged_or_newer_journal_stops_the_start(tmp_path: Path, saved: Path) -> None:
    config = config_for("http://127.0.0.1:9", saved, feedback={"folder": str(tmp_path / "kept")})
    (tmp_path / "kept").mkdir()
    file = tmp_path / "kept" / "journal.sqlite"
    file.write_bytes(b"half of a page" * 40)
    with pytest.raises(ArtifactError, match=r"journal\.sqlite cannot be opened: .*What it holds is unchanged"):
        Gateway.open(config)
    assert file.read_bytes() == b"half of a page" * 40
    file.unlink()
    Journal.create(tmp_path / "kept").close()
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA user_version=99")
    database.close()
    with pytest.raises(VersionError, match="has version 99, this package knows up to 1"):
        Gateway.open(config)


def test_a_folder_that_is_a_file_stops_the_start(tmp_path: Path, saved: Path) -> None:
    (tmp_path / "kept").write_text("x")
    with pytest.raises(ArtifactError, match="cannot make the folder"):
        Gateway.open(config_for("http://127.0.0.1:9", saved, feedback={"folder": str(tmp_path / "kept")}))


def test_a_journal_that_breaks_while_serving_costs_no_answer_and_no_request(tmp_path: Path) -> None:
    """Feedback gets status 503 meanwhile. What waits is written as soon as the journal is whole again."""
    kept, aside = tmp_path / "kept", tmp_path / "aside"
    with running(tmp_path, feedback={"folder": str(kept), "keep": "text"}) as gateway:
        first = route(gateway)
        assert give(gateway, request_id=first, score=1).status == 200
        kept.rename(aside)
        kept.write_text("in the way")
        during = route(gateway)
        got = give(gateway, request_id=during, score=0)
        assert (got.status, got.error["code"]) == (503, "journal_unusable")
        assert "retry-after" in got.headers and str(kept) not in got.error["message"]
        kept.unlink()
        aside.rename(kept)
        assert give(gateway, request_id=during, score=0).status == 200
    with Journal.open(kept) as journal:
        assert [(row.id, row.feedback[0].score) for row in journal.read()] == [(first, 1.0), (during, 0.0)]


def test_a_deleted_folder_is_made_anew(tmp_path: Path) -> None:
    with running(tmp_path, feedback={"folder": str(tmp_path / "kept")}) as gateway:
        assert give(gateway, request_id=route(gateway), score=1).status == 200
        shutil.rmtree(tmp_path / "kept")
        assert give(gateway, request_id=route(gateway), score=1).status == 200


@pytest.mark.skipif(is_root or os.name != "posix", reason="this user may write everywhere")
def test_a_folder_that_is_not_writable_is_named(tmp_path: Path, saved: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    config = config_for("http://127.0.0.1:9", saved, feedback={"folder": str(tmp_path / "locked" / "kept")})
    with pytest.raises(ArtifactError, match="cannot make the folder"):
        Gateway.open(config)


def test_what_does_not_fit_into_memory_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MAX_WAITING", 5)
    monkeypatch.setattr(writing, "MAX_WAITING_CHARS", 10_000)
    monkeypatch.setattr(writing, "WRITE_DELAY_S", 60.0)
    lost: list[int] = []
    writer = JournalWriter(FeedbackConfig(folder=str(tmp_path), keep="text"), lost.append)
    for number in range(7):
        writer.put(make_record(number), small_router())
    assert sum(lost) == 2
    writer.flush()
    writer.put(make_record(7, "law " * 10_000), small_router())
    assert sum(lost) == 3
    writer.put(make_record(8), small_router())
    writer.close()
    with Journal.open(tmp_path) as journal:
        assert [row.id for row in journal.read()] == ["r0", "r1", "r2", "r3", "r4", "r8"]


def test_a_request_that_cannot_be_kept_does_not_hold_up_others(tmp_path: Path) -> None:
    lost: list[int] = []
    writer = JournalWriter(FeedbackConfig(folder=str(tmp_path), keep="text"), lost.append)
    broken = make_record(0)
    broken.decision = None
    writer.put(broken, small_router())
    writer.put(make_record(1), small_router())
    strange = make_record(2, "a lone \ud800 surrogate")
    writer.put(strange, small_router())
    writer.close()
    with Journal.open(tmp_path) as journal:
        found = {row.id: row.prompt.turns for row in journal.read() if row.prompt is not None}
    assert (sum(lost), found) == (1, {"r1": (QUESTIONS["law"],), "r2": ("a lone \ud800 surrogate",)})


def test_a_clock_that_jumps_deletes_nothing(tmp_path: Path) -> None:
    """Ahead by ten years, every request would be too old. After a day that runs evenly, the clock is believed."""
    now, steady = [1_770_000_000.0], [0.0]
    writer = JournalWriter(FeedbackConfig(folder=str(tmp_path)), lambda lost: None)
    writer._clock = ClockWatch(lambda: now[0], lambda: steady[0])
    with Journal.create(tmp_path) as journal:
        journal.append([TrafficRecord("old", 1.0, key="alice", served="law")])

    def wait(seconds: float, jump: float = 0.0) -> None:
        now[0] += seconds + jump
        steady[0] += seconds

    wait(60, jump=3e8)
    assert writer.delete_old() == 0
    wait(60)
    assert writer.delete_old() == 0
    wait(60, jump=-3e8)
    assert writer.delete_old() == 0
    wait(86_400)
    assert writer.delete_old() == 1
    writer.close()


def test_the_journal_of_litellms_plug_in_deletes_what_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(litellm_journal, "DELETE_INTERVAL_S", 0.01)
    with Journal.create(tmp_path) as kept:
        kept.append(
            [TrafficRecord("old", time() - 2 * 86_400, served="law"), TrafficRecord("new", time(), served="law")]
        )
    router = small_router()
    prompt = Prompt(QUESTIONS["law"], frozenset(), 0, False)
    verdict = Verdict("law", "law", "", router.route(QUESTIONS["law"]), "", 0.0, prompt)
    journal = LiteLLMJournal(FeedbackConfig(folder=str(tmp_path), days=1))
    journal.begin("call", verdict, router)
    with Journal.open(tmp_path) as kept:
        assert eventually(lambda: kept.find("old") is None)
        assert kept.find("new") is not None
    journal.close()
