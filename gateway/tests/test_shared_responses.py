"""Responses that the gateway stores itself, on one store of several machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from client_keys import bearer, key
from raw_sockets import eventually
from redis_process import needs_redis, running_redis
from running_gateway import QUESTIONS
from shared_fleet import fleet

pytestmark = [pytest.mark.slow, needs_redis]
PATH = "/v1/responses"


def test_a_response_is_continued_shown_and_deleted_on_any_machine(tmp_path: Path) -> None:
    with running_redis(tmp_path / "redis") as store, fleet(tmp_path, store, key("ada"), key("bea")) as found:
        first = found.ask(0, {"input": QUESTIONS["law"]}, PATH, **bearer("ada"))
        assert first.status == 200 and first.json["store"], first.body
        for machine in range(3):
            body = {"input": "Why?", "previous_response_id": first.json["id"]}
            second = found.ask(machine, body, PATH, **bearer("ada"))
            assert second.status == 200 and second.json["previous_response_id"] == first.json["id"]
            assert QUESTIONS["law"].encode() in found.upstream.bodies[-1]
            assert found.ask(machine, body, PATH, **bearer("bea")).status == 400
            shown = found.ask(machine, path=f"{PATH}/{first.json['id']}", **bearer("ada"))
            assert shown.json["output"] == first.json["output"]
        assert found.ask(1, path=f"{PATH}/{first.json['id']}", method="DELETE", **bearer("ada")).status == 200
        for machine in range(3):
            assert found.ask(machine, path=f"{PATH}/{first.json['id']}", **bearer("ada")).status == 404


def test_while_the_store_is_away_nobody_is_told_that_a_response_does_not_exist(tmp_path: Path) -> None:
    opened = {"on_failure": "open"}
    with running_redis(tmp_path / "redis") as store, fleet(tmp_path, store, key("ada"), state=opened) as found:
        question = QUESTIONS["law"] + " Please." * 200  # so long that no machine remembers the response itself
        first = found.ask(0, {"input": question}, PATH, **bearer("ada")).json["id"]
        path, more = f"{PATH}/{first}", {"input": "Why?", "previous_response_id": first}
        store.kill()
        asked = len(found.upstream.asked)
        for machine in range(3):
            refused = [
                found.ask(machine, more, PATH, **bearer("ada")),
                found.ask(machine, path=path, **bearer("ada")),
                found.ask(machine, path=f"{path}/input_items", **bearer("ada")),
                found.ask(machine, path=path, method="DELETE", **bearer("ada")),
            ]
            for got in refused:
                assert (got.status, got.error["code"]) == (503, "state_unavailable"), got.body
                assert got.headers["retry-after"] == "1" and first in got.error["message"]
        assert len(found.upstream.asked) == asked
        store.start()
        assert eventually(lambda: found.ask(0, path=path, **bearer("ada")).status == 200)
        assert found.ask(0, more, PATH, **bearer("ada")).status == 200
