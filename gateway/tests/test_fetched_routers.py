"""What was fetched from an address stays until another router serves: a start without the address needs it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import fsspec
import pytest
from starlette.testclient import TestClient

import tiny
from admin_client import admin, config, error, folder, token  # noqa: F401
from candidate_routers import other_router
from ir3de import Router
from ir3de.files.router_folder import read_header
from ir3de.serving import holds_statistics
from ir3de_gateway.admin.changes import is_changeable
from ir3de_gateway.admin.router_source import RouterFollower
from ir3de_gateway.validation import apply_admin_state, read_router_facts
from raw_sockets import eventually
from running_gateway import TEXTS
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


@pytest.mark.parametrize("serving", [False, True])
def test_a_candidate_of_an_address_is_promoted_survives_a_restart_and_can_be_rolled_back(
    folder: Path,  # noqa: F811
    address: str,  # noqa: F811
    serving: bool,
) -> None:
    changes = {"routing": {"candidate": {"router": address}}, "feedback": {"folder": str(folder)}}
    values = config(folder, router={"path": str(folder / "router"), "versions": 5}, **changes)
    upload(fit(["Why?"]).save(folder / "published", serving=serving), address)
    with admin(values) as client:
        before, tried = digest(client), client.get("/admin/candidate").json()["digest"]
        made = client.post("/admin/candidate/promote", json={"why": "better"})
        assert made.status_code == 200, made.text
        assert digest(client) == tried != before
        assert client.get("/admin/candidate").json()["state"] == "promoted"
    fsspec.filesystem("memory").store.clear()
    shutil.rmtree(folder / "state" / "cache")  # it serves from a copy of its own
    values = config(folder, router={"path": str(folder / "router"), "versions": 5})
    served, _ = apply_admin_state(values, None)  # as `ir3de serve` checks it before it starts
    facts = read_router_facts(served.router.path)
    assert facts is not None and facts.digest == tried
    with admin(values) as client:
        assert digest(client) == tried
        for wanted in (before, tried):
            assert client.post("/admin/router/rollback", json={}).status_code == 200
            assert digest(client) == wanted
        found = client.get("/admin/router").json()
        assert not found["changeable"] and found["serving_copy"] == serving
        status, message = error(client.post("/admin/experts", json={"name": "law", "texts": ["Sue!"], "merge": True}))
        assert status == 409 and "can route, but not change" in message


def test_a_router_that_was_saved_again_in_place_can_be_changed_at_once(folder: Path) -> None:  # noqa: F811
    path = Router.fit(TEXTS).save(folder / "again")
    loaded = RouterFollower(str(path), folder / "cache").load()
    more = Router.fit({name: [*texts, f"One more of {name}?"] for name, texts in TEXTS.items()})
    more.save(path)  # the statistics that the loaded header names are gone
    assert not holds_statistics(path, loaded.header) and is_changeable(loaded)
    shutil.rmtree(path)
    more.save(path, serving=True)
    assert not is_changeable(loaded)


def test_everything_that_routing_needs_is_fetched(folder: Path, address: str) -> None:  # noqa: F811
    saved = Router.fit(TEXTS).save(folder / "published")
    subjects = read_header(saved)["membership"]["subjects"]["name"]
    upload(saved, address)
    found = RouterFollower(address, folder / "cache").load()
    assert (found.folder / subjects).is_file() and not holds_statistics(found.folder, found.header)
    assert found.router.route_batch(["Who must pay?"]) == Router.load(saved).route_batch(["Who must pay?"])


def test_a_router_in_place_of_another_leaves_no_file_of_it(folder: Path) -> None:  # noqa: F811
    Router.fit(TEXTS).save(folder / "published")
    other_router().save(folder / "published")
    assert len(list((folder / "published").glob("subjects-*"))) == 1


def test_a_live_router_of_an_address_is_kept_as_a_version(folder: Path, address: str) -> None:  # noqa: F811
    publish(folder, address, fit([]))
    with admin(config(folder, router={"path": address, "follow": 3_600, "versions": 5})) as client:
        before = digest(client)
        assert client.put("/admin/router", json={"path": str(folder / "router")}).status_code == 200
        assert client.post("/admin/router/rollback", json={}).json()["digest"] == digest(client) == before
