"""What was fetched from an address stays until another router serves: a start without the address needs it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import fsspec
import pytest
from starlette.testclient import TestClient

import tiny
from admin_client import admin, config, error, folder, token  # noqa: F401
from ir3de import Router
from ir3de.files.router_folder import read_header
from raw_sockets import eventually
from saved import edit
from test_follow import address, upload  # noqa: F401

REFUSALS = ["it cannot be loaded", "the candidate needs the one before", "a change that names it is refused"]
POETRY = {"poetry": ["Write a sonnet.", "Does this line rhyme?"]}


@pytest.fixture(autouse=True)
def candidate(folder: Path) -> None:  # noqa: F811
    """Nobody serves poetry: the candidate may know it as long as the live router does."""
    fit(["Please."], POETRY).save(folder / "candidate")


def fit(more: list[str], others: dict[str, list[str]] | None = None) -> Router:
    """A router of the configured experts, which differs from others by these texts."""
    known = {name: ["What is it?", name, *more] for name in tiny.DOMAINS}
    return Router.fit({**known, **(others or {})}, embedding=tiny.embedding())


@contextmanager
def following(folder: Path, address: str, follow: float = 0.05) -> Iterator[TestClient]:  # noqa: F811
    """A gateway that follows the address, and tries a candidate."""
    changes = {"routing": {"candidate": {"router": str(folder / "candidate")}}, "feedback": {"folder": str(folder)}}
    with admin(config(folder, router={"path": address, "follow": follow, "versions": 0}, **changes)) as client:
        yield client


def digest(client: TestClient) -> str:
    return str(client.get("/admin/router").json()["digest"])


def publish(folder: Path, address: str, router: Router, *, is_whole: bool = True) -> None:  # noqa: F811
    saved = router.save(folder / "published")
    if not is_whole:
        edit(saved, lambda header: header["scorer"].update(name="Unknown"))
    upload(saved, address)


def is_loaded(digest: str, caplog: pytest.LogCaptureFixture) -> bool:
    return f"loaded router {digest[:12]} from" in caplog.text


def count_fetched(folder: Path) -> int:  # noqa: F811
    """How many routers of the address are there; those of folders are mapped elsewhere."""
    return len(list((folder / "state" / "cache").glob("*/*/router.json")))


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_start_without_the_address_serves_what_was_in_force_although_another_router_came(
    folder: Path,  # noqa: F811
    address: str,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
    refusal: str,
) -> None:
    publish(folder, address, fit([], POETRY))
    with following(folder, address, 3_600 if refusal == REFUSALS[2] else 0.05) as client:
        before = digest(client)
        publish(folder, address, fit(["Why?"]), is_whole=refusal != REFUSALS[0])
        if refusal == REFUSALS[2]:
            status, message = error(client.put("/admin/router", json={"path": address}))
            assert status == 422 and "the candidate" in message
        else:
            assert eventually(lambda: "The current router stays" in caplog.text)
        assert digest(client) == before
    fsspec.filesystem("memory").store.clear()
    with following(folder, address) as client:
        assert digest(client) == before and "Serving the copy that was fetched before" in caplog.text


def test_of_routers_that_were_refused_only_the_last_one_stays_and_it_replaces_the_others_once_it_serves(
    folder: Path,  # noqa: F811
    address: str,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    publish(folder, address, fit([], POETRY))
    with following(folder, address) as client:
        before, version = digest(client), ""
        for place in range(3):
            publish(folder, address, fit([f"Why {place}?"]))
            version = str(read_header(folder / "published")["sha256"])
            assert eventually(partial(is_loaded, version, caplog))
            assert count_fetched(folder) == 2
        assert digest(client) == before
        assert client.delete("/admin/candidate").status_code == 200
        assert eventually(lambda: digest(client) == version and count_fetched(folder) == 1)
    fsspec.filesystem("memory").store.clear()
    with following(folder, address) as client:
        assert digest(client) == version


def test_a_candidate_at_the_address_of_the_live_router_keeps_its_own_copy(
    folder: Path,  # noqa: F811
    address: str,  # noqa: F811
) -> None:
    changes = {"routing": {"candidate": {"router": address}}, "feedback": {"folder": str(folder)}}
    values = config(folder, router={"path": address, "follow": 3_600, "versions": 0}, **changes)
    publish(folder, address, fit([]))
    with admin(values) as client:
        tried = digest(client)
        publish(folder, address, fit(["Why?"]))
        assert client.put("/admin/router", json={"path": address}).status_code == 200
        live = digest(client)
        assert live != tried and client.get("/admin/candidate").json()["digest"] == tried
        assert count_fetched(folder) == 2
    fsspec.filesystem("memory").store.clear()
    with admin(values) as client:
        assert digest(client) == live and client.get("/admin/candidate").json()["digest"] == tried
