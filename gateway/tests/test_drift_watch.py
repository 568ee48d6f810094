"""Drift in the gateway: found in the journal by one worker, told in words, kept over a restart, gone with the data."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ir3de.traffic import DriftMonitor, Journal, JournalPrompt, Selection, TrafficRecord
from ir3de_gateway.feedback import drift_watch
from ir3de_gateway.feedback.drift_watch import DriftWatch, read_report
from ir3de_gateway.store.workers import create_worker_folder
from ir3de_gateway.telemetry.counts import Counts, DriftMetrics
from raw_sockets import ask
from running_gateway import TEXTS, Running, running, small_router

TOKEN = {"authorization": "Bearer root"}


def make_records(seed: int, many: int, word: str = "", key: str = "alice") -> list[TrafficRecord]:
    """Requests to two experts; with a word, every tenth prompt has it."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(many):
        name = ("maths", "law")[int(random.integers(2))]
        text = TEXTS[name][int(random.integers(3))] + (f" {word}" if word and number % 10 == 0 else "")
        prompt = JournalPrompt.from_text([text])
        record = TrafficRecord(f"{seed}-{number}", 1.79e9 + number, key=key, router="r", decided=name, prompt=prompt)
        found.append(record)
    return found


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference of 300 requests, and all requests at once."""
    monkeypatch.setattr(
        DriftMonitor.__init__, "__kwdefaults__", {**DriftMonitor.__init__.__kwdefaults__, "reference_prompts": 300}
    )
    monkeypatch.setattr(drift_watch, "MOST_REQUESTS", 10_000)


def watch(folder: Path) -> tuple[DriftWatch, Counts]:
    counts = Counts()
    return DriftWatch(folder, DriftMetrics(counts)), counts


def append(folder: Path, records: list[TrafficRecord]) -> None:
    with Journal.create(folder) as journal:
        journal.append(records)


@pytest.mark.usefixtures("short")
def test_a_change_is_found_after_a_restart_and_told_in_words(tmp_path: Path) -> None:
    append(tmp_path, make_records(0, 400))
    first, _ = watch(tmp_path)
    first.look(small_router(), "r")
    first.save()
    append(tmp_path, make_records(1, 300, "invoice"))
    second, counts = watch(tmp_path)  # another process
    second.look(small_router(), "r")
    report = read_report(tmp_path)
    assert report is not None and report["prompts"] == 700 and report["reference_prompts"] == 300
    (change,) = report["changes"]
    assert "'invoice'" in change["summary"] and "none in the fit did" in change["summary"]
    assert sum(window["prompts"] for window in report["windows"]) == 700
    assert counts._numbers["ir3de_drift_alarms"]["word"] == 1


@pytest.mark.usefixtures("short")
def test_what_was_found_goes_with_the_requests_of_a_person(tmp_path: Path) -> None:
    append(tmp_path, make_records(0, 400) + make_records(1, 300, "invoice", key="bob"))
    one, _ = watch(tmp_path)
    one.look(small_router(), "r")
    with Journal.create(tmp_path) as journal:
        journal.delete(Selection(key="bob"))
        assert journal.read_note(drift_watch.STATE) is None
    assert read_report(tmp_path) is None
    one.save()  # brings nothing back
    one.look(small_router(), "r")
    report = read_report(tmp_path)
    assert report is not None and report["prompts"] == 400 and report["changes"] == []
    assert b"invoice" not in (tmp_path / "journal.sqlite").read_bytes()


@pytest.mark.usefixtures("short")
def test_requests_of_another_router_are_left_out(tmp_path: Path) -> None:
    append(tmp_path, make_records(0, 50))
    one, _ = watch(tmp_path)
    one.look(small_router(), "another")
    report = read_report(tmp_path)
    assert report is not None and report["prompts"] == 0


def test_of_many_requests_evenly_spread_ones_are_looked_at(tmp_path: Path) -> None:
    append(tmp_path, make_records(0, 1_000))
    with Journal.create(tmp_path) as journal:
        last, found = journal.read_after(0, 100)
        assert last == 1_000 and len(found) == 100
        assert journal.read_after(last, 100) == (1_000, [])
        journal.delete(Selection(), keeps_notes=True)
        journal.append(make_records(1, 3))
        assert len(journal.read_after(last, 100)[1]) == 3


def test_a_damaged_state_begins_anew(tmp_path: Path) -> None:
    append(tmp_path, make_records(0, 20))
    with Journal.create(tmp_path) as journal:
        journal.write_notes({drift_watch.STATE: b"nonsense"})
    one, _ = watch(tmp_path)
    one.look(small_router(), "r")
    report = read_report(tmp_path)
    assert report is not None and report["prompts"] == 20


def test_the_endpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drift, prompts to label, labels and new domains, for admins alone."""
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", "root")
    monkeypatch.delenv("IR3DE_API_KEY", raising=False)
    kept = tmp_path / "kept"
    append(kept, make_records(0, 30))

    def get(path: str, body: Any = None, **options: Any) -> Any:
        return ask(gateway.url, body, path, **TOKEN, **options)

    with running(tmp_path, feedback={"folder": str(kept), "keep": "text"}) as gateway:
        assert get("/admin/drift").json["prompts"] == 0
        assert ask(gateway.url, path="/admin/drift").status in (401, 403)
        listed = get("/admin/labels/next?n=3").json
        assert 1 <= len(listed["data"]) <= 3 and set(listed["experts"]) == set(TEXTS)
        assert get("/admin/labels/next?n=x").status == 422
        request = listed["data"][0]["request"]
        assert get("/admin/labels", {"request_id": request, "expert": "physics"}).status == 400
        assert get("/admin/labels", {"request_id": "nowhere", "expert": "law"}).status == 404
        assert get("/admin/labels", {"request_id": request, "expert": "law"}).json["author"] == "label:admin"
        assert get("/admin/labels/domains").json["data"] == []
        with Journal.open(kept) as journal:
            found = journal.find(request)
            assert found is not None and [one.expert for one in found.feedback] == ["law"]
        assert get(f"/admin/labels/{request}", method="DELETE").json["deleted"] is True
    with running(tmp_path / "off") as gateway:
        assert get("/admin/drift").json["error"]["code"] == "feedback_off"


@pytest.mark.skipif(os.name != "posix", reason="workers share no numbers on Windows")
def test_of_two_workers_one_looks_and_after_its_end_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request is counted once, and both workers report the same."""
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", "root")
    monkeypatch.setattr("ir3de_gateway.gateway.LOOK_INTERVAL_S", 1e6)  # they look when the test says so
    options: Any = {"server": {"workers": 2}, "feedback": {"folder": str(tmp_path / "kept")}}

    def look(*workers: Running) -> list[tuple[int, bool]]:
        """What each worker reports after all have looked twice, and whether it has a monitor."""
        for one in (*workers, *workers):
            asyncio.run(one.gateway.look_for_drift())
        counts = [ask(one.url, path="/admin/drift", **TOKEN).json["prompts"] for one in workers]
        return [(count, one.gateway._drift is not None) for count, one in zip(counts, workers, strict=True)]

    with create_worker_folder(), ExitStack() as ends:
        first = ends.enter_context(running(tmp_path / "first", **options))
        with running(tmp_path / "second", **options) as second:
            digest = second.gateway.live.snapshot.digest
            append(tmp_path / "kept", [replace(one, router=digest) for one in make_records(0, 30)])
            assert look(second, first) == [(30, False), (30, True)]
            ends.close()
            append(tmp_path / "kept", [replace(one, router=digest) for one in make_records(1, 10)])
            assert look(second) == [(40, True)]  # it goes on where the first one was
