"""Feedback through any machine: it reaches the journal of the one that answered, or is clearly refused."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import time

import pytest

from client_keys import bearer, key
from ir3de.traffic import Feedback, Journal, TrafficRecord
from ir3de_gateway.config.document import FeedbackConfig
from ir3de_gateway.feedback import mailbox
from ir3de_gateway.feedback.mailbox import Mailbox, Pointer
from ir3de_gateway.feedback.writer import JournalWriter
from ir3de_gateway.store.shared.connection import StoreConnection
from raw_sockets import chat, eventually
from redis_process import needs_redis, running_redis
from running_gateway import QUESTIONS
from shared_fleet import fleet

pytestmark = [pytest.mark.slow, needs_redis]


def test_feedback_through_another_machine_is_kept_once_by_the_one_that_answered(tmp_path: Path) -> None:
    with (
        running_redis(tmp_path / "redis") as store,
        fleet(tmp_path, store, key("ada"), key("bea"), has_journals=True) as found,
    ):
        answered = found.ask(0, chat(QUESTIONS["law"], "auto"), **bearer("ada"))
        named = {"request_id": answered.headers["x-request-id"]}
        path = f"/v1/feedback/{named['request_id']}"
        assert eventually(lambda: found.ask(0, path=path, **bearer("ada")).status == 200)

        def read() -> list[float | None]:
            with Journal.create(tmp_path / "journal-0") as journal:
                row = journal.find(named["request_id"])
            return [] if row is None else [one.score for one in row.feedback]

        for place, score in ((1, 0.25), (2, 0.75)):
            given = found.ask(place, {**named, "score": score}, "/v1/feedback", **bearer("ada"))
            assert (given.status, given.json["pending"], given.json["served"]) == (202, True, "law")
            assert eventually(lambda score=score: read() == [score])  # type: ignore[misc]
        shown = found.ask(1, path=path, **bearer("ada"))
        assert (shown.status, shown.error["code"]) == (409, "other_machine")
        assert [row["score"] for row in found.ask(0, path=path, **bearer("ada")).json["data"]] == [0.75]
        for place in range(3):  # another key's request is unknown everywhere
            refused = found.ask(place, {**named, "score": 0}, "/v1/feedback", **bearer("bea"))
            assert (refused.status, refused.error["code"]) == (404, "request_not_found")
        assert found.ask(2, path=path, method="DELETE", **bearer("ada")).status == 202
        assert eventually(lambda: read() == [])
        store.kill()
        local = found.ask(0, {**named, "score": 1}, "/v1/feedback", **bearer("ada"))
        assert (local.status, local.json["score"]) == (200, 1.0)


# mail before its request --------------------------------------------------------------------------------------------


class Office:
    """The mailbox of this machine and its journal, which other workers write, too; and another machine that sends."""

    def __init__(self, folder: Path, link: StoreConnection) -> None:
        self.link, self.folder = link, folder / "journal"
        self.here, self._there = Mailbox(link, str(self.folder)), Mailbox(link, "elsewhere")
        self._writer = JournalWriter(FeedbackConfig(folder=str(self.folder)), lambda _: None)

    async def send(self, request: str, score: float | None, author: str = "key:ada") -> None:
        given = None if score is None else Feedback(author, time(), score=score)
        await self._there.send(Pointer(self.here.machine, request, "ada", "", "law"), given, author)

    async def deliver(self) -> None:
        await self.here.deliver(self._writer)

    def answer(self, *requests: str) -> None:
        """Another worker writes requests that it has answered."""
        with Journal.create(self.folder) as journal:
            journal.append([TrafficRecord(request, time(), "ada") for request in requests])

    def read(self, request: str) -> list[tuple[str, float | None]]:
        with Journal.create(self.folder) as journal:
            row = journal.find(request)
        return [] if row is None else [(one.author, one.score) for one in row.feedback]

    async def count_mails(self) -> int:
        return int(await self.link.do("LLEN", f"ir3de:feedback:{self.here.machine}"))


def use_office(folder: Path, use: Callable[[Office], Awaitable[None]]) -> None:
    async def run(address: str) -> None:
        link = StoreConnection(address, "ir3de", 5.0)
        try:
            await use(Office(folder, link))
        finally:
            await link.close()

    with running_redis(folder / "redis") as store:
        asyncio.run(run(store.url))


def test_feedback_that_arrives_before_its_request_is_written_is_kept_for_it(tmp_path: Path) -> None:
    async def use(office: Office) -> None:
        await office.send("late", 0.25)
        await office.deliver()
        assert await office.count_mails() == 1
        office.answer("late")
        await office.deliver()
        assert office.read("late") == [("key:ada", 0.25)] and await office.count_mails() == 0

    use_office(tmp_path, use)


def test_feedback_that_waits_holds_up_nobody_and_keeps_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "MAIL_AT_ONCE", 2)

    async def use(office: Office) -> None:
        office.answer("there")
        for request, score in (("late", 0.25), ("late", None), ("later", 1.0), ("late", 0.75), ("there", 0.5)):
            await office.send(request, score)
        await office.send("late", 0.5, "key:bea")
        for _ in range(3):
            await office.deliver()
        assert office.read("there") == [("key:ada", 0.5)] and await office.count_mails() == 5
        office.answer("late", "later")
        await office.send("late", 0.0)  # it is the last one of its author
        for _ in range(2):
            await office.deliver()
        assert sorted(office.read("late")) == [("key:ada", 0.0), ("key:bea", 0.5)]
        assert office.read("later") == [("key:ada", 1.0)] and await office.count_mails() == 0

    use_office(tmp_path, use)


def test_a_request_that_appears_between_two_mails_does_not_turn_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(office: Office) -> None:
        await office.send("late", 0.25)
        await office.send("late", None)
        write = mailbox._write

        def write_and_answer(*given: object) -> bool:
            done = write(*given)  # type: ignore[arg-type]
            if not done:
                office.answer("late")
            return done

        monkeypatch.setattr(mailbox, "_write", write_and_answer)
        await office.deliver()
        assert office.read("late") == [] and await office.count_mails() == 2
        await office.deliver()
        assert office.read("late") == [] and await office.count_mails() == 0

    use_office(tmp_path, use)


def test_feedback_on_a_request_that_never_appears_is_given_up_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [1_000.0]
    monkeypatch.setattr(mailbox, "monotonic", lambda: clock[0])

    async def use(office: Office) -> None:
        await office.send("never", 0.25)
        office.answer("there")
        await office.deliver()
        clock[0] += mailbox.ROW_WAIT_S - 1
        await office.send("there", 0.5)
        await office.deliver()
        assert office.read("there") == [("key:ada", 0.5)]
        assert await office.count_mails() == 1 and not caplog.records
        clock[0] += 2
        await office.deliver()
        assert await office.count_mails() == 0
        assert [one.getMessage() for one in caplog.records if "'never'" in one.getMessage()]

    with caplog.at_level(logging.WARNING, "ir3de.gateway"):
        use_office(tmp_path, use)


def test_mail_of_an_earlier_version_is_delivered(tmp_path: Path) -> None:
    async def use(office: Office) -> None:
        given = {"author": "key:ada", "time": 1.0, "expert": None, "score": 0.25, "comment": ""}
        mail = {"id": "late", "key": "ada", "author": "key:ada", "feedback": given}
        await office.link.do("RPUSH", f"ir3de:feedback:{office.here.machine}", json.dumps(mail))
        await office.deliver()
        office.answer("late")
        await office.deliver()
        assert office.read("late") == [("key:ada", 0.25)] and await office.count_mails() == 0

    use_office(tmp_path, use)
