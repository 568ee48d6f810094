"""Keys of a gateway that serves: added, changed, rotated and removed through /admin and by commands."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.testclient import TestClient

from admin_client import TOKEN, admin, config, error, folder, token  # noqa: F401
from client_keys import bearer, key, secret, write_keys
from commands import complaint, run, run_json
from ir3de.errors import InputError
from ir3de_gateway.admin import administration
from ir3de_gateway.gateway import Gateway
from ir3de_gateway.keys import registry
from ir3de_gateway.store.workers import create_worker_folder
from official_client import connect
from raw_sockets import ask, chat, eventually
from running_gateway import QUESTIONS, Running, running

HOUR = 3_600.0


@contextmanager
def keyed(folder: Path, *keys: dict[str, Any], **changes: Any) -> Iterator[TestClient]:
    file = folder / "keys.yaml"
    if not file.exists() or keys:
        write_keys(file, *keys)
    with admin(config(folder, server={"keys_file": str(file)}, **changes)) as client:
        yield client


def works(client: TestClient, secret: str) -> bool:
    """Whether a key is accepted."""
    status = client.get("/v1/models", headers={"authorization": f"Bearer {secret}"}).status_code
    assert status in (200, 401)
    return status == 200


def post(client: TestClient, **body: Any) -> Any:
    return client.post("/admin/keys", json=body)


def find(client: TestClient, name: str) -> dict[str, Any]:
    return next(row for row in client.get("/admin/keys").json()["data"] if row["name"] == name)


def test_a_key_is_added_used_and_removed_and_outlives_a_restart(folder: Path) -> None:
    with keyed(folder, key("old")) as client:
        made = post(client, name="research", experts=["law"], limits={"requests_per_minute": 2}, expires="2999-01-31")
        assert made.status_code == 201 and made.headers["cache-control"] == "no-store" and made.headers["etag"]
        assert made.json()["key"].startswith("sk-ir3de-") and made.json()["origin"] == "admin"
        listed = find(client, "research")
        assert listed["experts"] == ["law"] and listed["limits"]["requests_per_minute"] == 2 and "key" not in listed
        assert works(client, made.json()["key"]) and find(client, "old")["origin"] == "file"
        assert made.json()["key"] not in (folder / "state" / "state.json").read_text()
        assert error(post(client, name="research"))[0] == 409
    with keyed(folder) as client:
        assert works(client, made.json()["key"])
        assert client.delete("/admin/keys/research").json() == {"name": "research", "removed": True}
        assert not works(client, made.json()["key"]) and works(client, secret("old"))
        assert client.delete("/admin/keys/old").status_code == 200 and not works(client, secret("old"))
        assert error(client.delete("/admin/keys/old"))[0] == 404
    with keyed(folder) as client:
        assert not works(client, secret("old"))  # the file still has it
        actions = [(line["action"], line["key"]) for line in client.get("/admin/audit").json()["data"]]
        assert actions[-1] == ("add key", "research") and ("remove key", "old") in actions


def test_two_secrets_work_until_the_old_one_expires(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with keyed(folder, key("a", requests_per_minute=3)) as client:
        made = post(client, name="a", rotate=True, overlap=HOUR).json()
        second = made["key"]
        assert works(client, secret("a")) and works(client, second)
        assert made["previous_expires"] == find(client, "a")["previous_expires"]
        assert len(client.get("/admin/keys").json()["data"]) == 1
        third = post(client, name="a", rotate=True, overlap=HOUR).json()["key"]
        assert [works(client, one) for one in (secret("a"), second, third)] == [False, True, True]
        now = registry.time()
        monkeypatch.setattr("ir3de_gateway.keys.client_key.time", lambda: now + 2 * HOUR)
        refused = client.get("/v1/models", headers={"authorization": f"Bearer {second}"})
        assert error(refused) == (
            401,
            "the API key 'a' was replaced by a new one: contact the gateway's operator for a new one",
        )
        assert works(client, third)
        last = post(client, name="a", rotate=True, overlap=0).json()
        assert "previous_expires" not in last and not works(client, third) and works(client, last["key"])


def test_both_secrets_of_a_key_share_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", TOKEN)
    file = write_keys(tmp_path / "keys.yaml", key("a", requests_per_minute=2))
    with running(tmp_path, server={"keys_file": str(file)}) as gateway:
        made = ask(gateway.url, {"name": "a", "rotate": True}, "/admin/keys", authorization=f"Bearer {TOKEN}").json
        for key_in_use in (secret("a"), made["key"]):
            client = connect(gateway.url, key_in_use)
            assert client.chat.completions.create(**chat(QUESTIONS["law"])).choices  # type: ignore[call-overload]
        with pytest.raises(openai.RateLimitError):
            client.chat.completions.create(**chat(QUESTIONS["law"]))  # type: ignore[call-overload]


def test_fields_are_changed_without_a_new_secret(folder: Path) -> None:
    with keyed(folder, key("a", experts=["law"]), key("b")) as client:
        assert post(client, name="a", merge=True, disabled=True).json()["experts"] == ["law"]
        assert not works(client, secret("a"))
        changed = post(client, name="a", merge=True, disabled=False, limits={"concurrent": 1}).json()
        assert works(client, secret("a")) and changed["limits"]["concurrent"] == 1 and "key" not in changed
        etag = client.get("/admin/experts").headers["etag"]
        assert post(client, name="b", merge=True, scopes=["models"]).status_code == 200
        stale = client.post("/admin/keys", json={"name": "b", "rotate": True}, headers={"if-match": etag})
        assert stale.status_code == 412 and works(client, secret("b"))


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({"name": "x", "rotate": True}, 404, "no key 'x' to change"),
        ({"name": "x", "merge": True}, 404, "no key 'x' to change"),
        ({"name": "a", "merge": True, "hash": "sha256:" + "0" * 64}, 422, "hash: send rotate: true"),
        ({"name": "x", "hash": "sk-secret"}, 422, "must be sha256: and 64 hexadecimal digits, found 'sk-'"),
        ({"name": "x", "hash": key("a")["hash"]}, 422, "do not fit together: keys.1.hash: keys.0 has the same"),
        ({"name": "x", "experts": ["lwa"]}, 422, "experts: there is no expert 'lwa': there are"),
        ({"name": "x", "scopes": ["everything"]}, 422, "scopes"),
        ({"name": "x", "key_env": "HOME"}, 422, "key_env"),
        ({"name": "x", "expires": "soon"}, 422, "must look like 2027-01-31"),
        ({"name": "x", "limits": {"concurrent": -1}}, 422, "limits.concurrent"),
        ({"name": "a", "rotate": True, "overlap": -1}, 422, "overlap"),
        ({"name": ""}, 422, "name"),
        ({"name": "IR3DE_API_KEY"}, 409, "is in a variable of the gateway"),
    ],
)
def test_what_cannot_be_is_refused(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: dict[str, Any],
    status: int,
    told: str,
) -> None:
    monkeypatch.setenv("IR3DE_API_KEY", "sk-plain")
    with keyed(folder, key("a")) as client:
        found = error(client.post("/admin/keys", json=body))
        assert found[0] == status and told in found[1]
        assert [row["name"] for row in client.get("/admin/keys").json()["data"]] == ["IR3DE_API_KEY", "a"]


def test_a_gateway_without_a_keys_file_and_a_key_that_would_remove_itself(folder: Path) -> None:
    with admin(config(folder)) as client:
        assert error(post(client, name="x")) == (
            409,
            "this gateway has no keys file: name one in server.keys_file, `keys: []` is enough, and restart it",
        )
    with keyed(folder, key("chief", scopes=["admin"])) as client:
        refused = client.delete("/admin/keys/chief", headers=bearer("chief"))
        assert error(refused)[0] == 409 and "is the key of this request" in error(refused)[1]


def test_a_file_that_gets_the_secret_of_a_key_of_admin_changes_nothing(folder: Path) -> None:
    with keyed(folder, key("a")) as client:
        digest = key("new")["hash"]
        assert post(client, name="x", hash=digest).status_code == 201
        write_keys(folder / "keys.yaml", key("b"), {"name": "y", "hash": digest})
        assert eventually(lambda: bool(client.get("/admin/keys").json()["problem"]))
        assert works(client, secret("a")) and works(client, secret("new")) and not works(client, secret("b"))
    with pytest.raises(InputError, match="the keys file and the keys of /admin do not fit together"):
        Gateway.open(config(folder, server={"keys_file": str(folder / "keys.yaml")}))


def test_a_file_that_did_not_fit_is_in_force_once_the_key_of_admin_is_gone(folder: Path) -> None:
    """Its time is that of long ago, as after a copy that keeps it: only the change of /admin says that it fits now."""
    file = folder / "keys.yaml"
    with ExitStack() as stack, create_worker_folder():
        workers = [stack.enter_context(keyed(folder, key("a"))) for _ in range(2)]
        assert post(workers[0], name="x", hash=key("new")["hash"]).status_code == 201
        assert all(works(each, secret("new")) for each in workers)
        fresh = write_keys(folder / "fresh.yaml", key("b"), {"name": "y", "hash": key("new")["hash"]})
        os.utime(fresh, (HOUR, HOUR))
        fresh.replace(file)
        assert eventually(lambda: all(each.get("/admin/keys").json()["problem"] for each in workers))
        assert workers[0].delete("/admin/keys/x").status_code == 200
        assert eventually(lambda: all(works(each, secret("b")) for each in workers))
        for each in workers:
            assert each.get("/admin/keys").json()["problem"] is None
            assert find(each, "y")["origin"] == "file" and not works(each, secret("a"))
        stack.close()


def test_a_new_key_works_at_once_on_another_worker(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(administration, "STATE_CHECK_S", HOUR)
    router = {"path": str(folder / "router"), "versions": 0, "follow": HOUR}
    with ExitStack() as stack, create_worker_folder():
        one, other = (stack.enter_context(keyed(folder, key("a"), router=router)) for _ in range(2))
        made = post(one, name="x").json()
        assert made["pending"] == 1 and works(other, made["key"])
        other.delete("/admin/keys/x")
        assert [row["name"] for row in one.get("/admin/keys").json()["data"]] == ["a"] and not works(one, made["key"])
        stack.close()


# rotation in the file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["2999-01-31", "2999-01-31T12:00:00Z"])
def test_the_file_may_have_two_secrets(folder: Path, when: str) -> None:
    old = {"hash": key("old")["hash"], "expires": when}
    with keyed(folder, {**key("a"), "previous": old}) as client:
        assert works(client, secret("a")) and works(client, secret("old"))
        assert find(client, "a")["previous_expires"].startswith("2999-0")
    with keyed(folder, {**key("a"), "previous": {**old, "expires": "2001-01-01"}}) as client:
        assert works(client, secret("a")) and not works(client, secret("old"))


@pytest.mark.parametrize(
    ("previous", "told"),
    [
        ({"hash": key("old")["hash"]}, "keys.0.previous.expires: this field is missing"),
        ({"expires": "2999-01-01"}, "needs either hash or key_env"),
        ({"hash": key("b")["hash"], "expires": "2999-01-01"}, "keys.1.hash: keys.0 has the same: keep one of them"),
        ({"hash": "x", "expires": "2999-01-01"}, "must be sha256: and 64 hexadecimal digits"),
    ],
)
def test_a_wrong_second_secret_is_told(tmp_path: Path, previous: dict[str, str], told: str) -> None:
    from ir3de_gateway.keys.keys_file import read_keys_file

    file = write_keys(tmp_path / "keys.yaml", {**key("a"), "previous": previous}, key("b"))
    with pytest.raises(InputError) as caught:
        read_keys_file(file)
    assert told in str(caught.value)


# commands -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", TOKEN)
    file = write_keys(tmp_path / "keys.yaml", key("old"))
    with running(tmp_path, server={"keys_file": str(file)}) as found:
        monkeypatch.setenv("IR3DE_URL", found.url)
        yield found


@pytest.mark.usefixtures("plain_terminal")
def test_commands_change_the_keys_of_a_running_gateway(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    made = run_json(
        "keys", "add", "research", "--expert", "law", "--requests-per-minute", "60", "--expires", "2999-01-01"
    )
    assert made["experts"] == ["law"] and made["limits"]["requests_per_minute"] == 60
    printed = run("keys", "rotate", "research", "--overlap", "60", "--url", f"{gateway.url}/v1")
    _, rotated, until = printed.stdout.splitlines()
    assert rotated.startswith("sk-ir3de-") and until.startswith("the one before works until")
    for one in (made["key"], rotated):
        assert ask(gateway.url, chat(QUESTIONS["law"]), authorization=f"Bearer {one}").status == 200
    listed = run("keys", "list").stdout
    assert "research" in listed and "admin" in listed and "until 2999-01-02" in listed
    assert [row["name"] for row in run_json("keys", "list")["data"]] == ["old", "research"]
    assert "removed" in run("keys", "remove", "research").stdout
    assert "status 404: no key 'research'" in complaint("keys", "remove", "research")
    assert "status 409" in complaint("keys", "add", "old")
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", "wrong")
    assert "status 401" in complaint("keys", "list")
    monkeypatch.delenv("IR3DE_ADMIN_TOKEN")
    assert "put it into the environment variable IR3DE_ADMIN_TOKEN" in complaint("keys", "list")


@pytest.mark.usefixtures("plain_terminal")
def test_commands_name_a_wrong_address(gateway: Running) -> None:
    assert "no gateway answers at http://127.0.0.1:9" in complaint("keys", "list", "--url", "http://127.0.0.1:9")
    assert "must look like" in complaint("keys", "list", "--url", "gateway")
    assert "does not answer like a gateway" in complaint("keys", "list", "--url", f"{gateway.url}/page/app.js?")
    assert json.loads(run("keys", "new", "x", "--json").stdout)["entry"]["name"] == "x"
