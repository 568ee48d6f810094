"""Feedback through any machine: it reaches the journal of the one that answered, or is clearly refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from client_keys import bearer, key
from ir3de.traffic import Journal
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
