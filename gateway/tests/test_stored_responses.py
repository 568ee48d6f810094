"""Stored responses go back to the expert that gave them, and only for the key that asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from api_answers import RESPONSE_EVENTS, SAID
from client_keys import key, secret, write_keys
from ir3de_gateway.store.embedded import EmbeddedPins
from ir3de_gateway.store.pins import StoredObjects, StoredPins
from object_servers import ObjectServer, serving_objects
from running_gateway import QUESTIONS, Running, running, served

Served = tuple[Running, ObjectServer]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("stored")
    file = write_keys(folder / "keys.yaml", key("alice"), key("bob"), key("carol", experts=["maths"]))
    with serving_objects(folder, server={"keys_file": str(file)}) as found:
        yield found


@pytest.fixture(scope="module")
def open_to_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving_objects(tmp_path_factory.mktemp("open")) as found:
        yield found


def connect(found: Served, name: str = "nobody") -> Any:
    found[1].seen.clear()
    return openai.OpenAI(base_url=f"{found[0].url}/v1", api_key=secret(name), max_retries=0)


@pytest.mark.parametrize("which", ["found", "open_to_all"])
@pytest.mark.parametrize("stream", [False, True])
def test_whoever_answered_is_asked_again(request: pytest.FixtureRequest, which: str, stream: bool) -> None:
    found: Served = request.getfixturevalue(which)
    with connect(found, "alice") as client:
        for expert, question in QUESTIONS.items():
            made = client.responses.create(model="auto", input=question, stream=stream)
            response = next(iter(made)).response if stream else made
            if stream:
                made.close()  # the id is known from the first event on
            assert client.responses.retrieve(response.id).output_text == SAID
            assert list(client.responses.input_items.list(response.id)) == []
            events = list(client.responses.retrieve(response.id, stream=True))
            assert len(events) == len(RESPONSE_EVENTS)
            assert events[-1].response.id == response.id
            more = client.responses.create(model="auto", input="Prove it.", previous_response_id=response.id)
            assert more.ir3de["expert"] == expert
            client.responses.delete(response.id)
            with pytest.raises(openai.NotFoundError, match=f"{expert} has no"):  # the expert says so itself
                client.responses.retrieve(response.id)
            assert {name for name, _ in found[1].asked} == {expert}
            found[1].seen.clear()


def test_a_response_in_the_background_can_be_cancelled(found: Served) -> None:
    with connect(found, "alice") as client:
        made = client.responses.create(model="auto", input=QUESTIONS["cooking"], background=True)
        assert made.status == "queued"
        assert client.responses.cancel(made.id).status == "cancelled"
        raw = client.responses.with_raw_response.retrieve(made.id)
    assert found[1].asked[1:] == [
        ("cooking", f"POST responses/{made.id}/cancel"),
        ("cooking", f"GET responses/{made.id}"),
    ]
    assert raw.headers["x-ir3de-expert"] == "cooking"
    assert raw.headers["x-ir3de-why"] == "pinned"


def test_another_key_learns_nothing(found: Served) -> None:
    with connect(found, "alice") as alice:
        mine = alice.responses.create(model="auto", input=QUESTIONS["law"]).id
        file = alice.files.create(file=("x", b"{}"), purpose="batch").id
        made = alice.batches.create(input_file_id=file, endpoint="/v1/responses", completion_window="24h")
        batch, output = made.id, made.output_file_id
        assert alice.files.retrieve(file).id == file
    for name in ("bob", "carol"):
        with connect(found, name) as other:
            for ask in (other.responses.retrieve, other.responses.delete, other.responses.cancel):
                told = []
                for response_id in (mine, "resp_of_nobody"):
                    with pytest.raises(openai.NotFoundError) as problem:
                        ask(response_id)
                    told.append((problem.value.body, response_id))
                (one, its_id), (another, other_id) = told
                assert str(one).replace(its_id, other_id) == str(another)
    with connect(found, "bob") as bob:
        for ask, name in (
            (bob.files.retrieve, file),
            (bob.files.content, file),
            (bob.files.delete, file),
            (bob.batches.retrieve, batch),
            (bob.batches.cancel, batch),
        ):
            with pytest.raises(openai.NotFoundError):
                ask(name)
        with pytest.raises(openai.NotFoundError):
            bob.batches.create(input_file_id=file, endpoint="/v1/responses", completion_window="24h")
        with pytest.raises(openai.BadRequestError) as problem:
            bob.responses.create(model="auto", input=QUESTIONS["law"], previous_response_id=mine)
        assert problem.value.code == "previous_response_not_found"
        assert found[1].seen == []
        assert list(bob.files.list()) == list(bob.batches.list()) == []
    with connect(found, "alice") as alice:
        assert [one.id for one in alice.files.list()] == [file, output]
        assert [one.id for one in alice.batches.list()] == [batch]


@pytest.mark.parametrize("conversation", ["conv_1", {"id": "conv_1"}, {"id": 5}, ["conv_1"]])
def test_a_conversation_is_no_way_to_what_others_have_said(
    found: Served, open_to_all: Served, conversation: Any
) -> None:
    with connect(found, "alice") as alice:
        with pytest.raises(openai.BadRequestError) as problem:
            alice.responses.create(model="auto", input=QUESTIONS["law"], conversation=conversation)
        assert (problem.value.code, problem.value.param) == ("conversation_not_found", "conversation")
        assert found[1].seen == []
        alice.responses.create(model="auto", input=QUESTIONS["law"], conversation=None)
    with connect(open_to_all) as anybody:  # all clients share all objects
        anybody.responses.create(model="auto", input=QUESTIONS["law"], conversation=conversation)
        assert len(open_to_all[1].seen) == 1


def test_a_session_is_no_way_to_the_objects_of_others(found: Served) -> None:
    """Sessions and stored objects are pins alike, and a client may call its session as it likes."""
    with connect(found, "alice") as alice:
        made = alice.responses.create(model="auto", input=QUESTIONS["cooking"])
    with connect(found, "bob") as bob:
        for owner in ("bob", "alice"):
            session = {"ir3de": {"session": f"response {owner}\n{made.id}"}}
            bob.responses.create(model="auto", input=QUESTIONS["cooking"], extra_body=session)
        with pytest.raises(openai.NotFoundError, match="it was not made here"):
            bob.responses.retrieve(made.id)


def test_sessions_belong_to_their_key(found: Served) -> None:
    session = {"x-ir3de-session": "monday"}
    with connect(found, "alice") as alice, connect(found, "bob") as bob:
        for client, question in ((alice, QUESTIONS["cooking"]), (bob, QUESTIONS["law"])):
            client.responses.create(model="auto", input=question, extra_headers=session)
        for client, expert in ((alice, "cooking"), (bob, "law")):
            more = client.responses.create(model="auto", input="ok", extra_headers=session)
            assert (more.ir3de["expert"], more.ir3de["why"]) == (expert, "pinned")


def test_stored_responses_survive_a_restart(tmp_path: Path) -> None:
    """With a state folder, even if pinning is off and the expert was asked by name."""
    routing = {"pinning": {"ttl": 0}}
    server = {"keys_file": str(write_keys(tmp_path / "keys.yaml", key("alice")))}
    kept: dict[str, Any] = {}
    for start in range(2):
        with serving_objects(tmp_path, state=str(tmp_path / "state"), routing=routing, server=server) as found:
            if start == 0:
                with connect(found, "alice") as client:
                    kept["id"] = client.responses.create(model="maths", input="x").id
                kept["objects"] = found[1].objects
            else:
                found[1].objects = kept["objects"]
                with connect(found, "alice") as client:
                    assert client.responses.retrieve(kept["id"]).output_text == SAID
                assert found[1].asked == [("maths", f"GET responses/{kept['id']}")]


def test_a_key_asks_its_own_experts_only(found: Served) -> None:
    """Neither by name, nor by what it has."""
    with connect(found, "carol") as carol:
        for ask in (
            lambda: carol.images.generate(model="law", prompt="x"),
            lambda: carol.files.list(),
            lambda: carol.moderations.create(input="x"),
        ):
            with pytest.raises(openai.APIStatusError) as problem:
                ask()
            assert problem.value.status_code in (400, 403)
        assert found[1].seen == []


@pytest.mark.parametrize("affinity", [0, 2])
def test_the_replica_that_has_it_is_asked(tmp_path: Path, affinity: float) -> None:
    """Replicas do not share what they store, so the beginning of a conversation does not matter where it continues."""
    servers = ObjectServer(), ObjectServer(made=100)
    with served(servers[0].app()) as one, served(servers[1].app()) as other:
        addresses = [f"{one}/law/v1", f"{other}/law/v1"]
        law = {"base_url": addresses[0], "replicas": addresses, "capabilities": ["responses"], "affinity": affinity}
        experts = {"law": {**law, "health": {"active": False}}}
        with running(tmp_path, experts=experts) as gateway, connect((gateway, servers[0])) as client:
            made = [client.responses.create(model="law", input=f"x {number}").id for number in range(16)]
            for response_id in made:
                assert client.responses.retrieve(response_id).id == response_id
                follow = client.responses.create(model="auto", input="x", previous_response_id=response_id)
                client.responses.delete(follow.id)
    counts = [len(server.objects) for server in servers]
    assert sum(counts) == 16 and 0 not in counts and (affinity or counts == [8, 8])
    for server, count in zip(servers, counts, strict=True):
        assert sum(method == "POST" for _, method, _, _ in server.seen) == 2 * count  # each was continued where it is


def test_a_list_keeps_its_form() -> None:
    objects = StoredObjects(EmbeddedPins(StoredPins(60)), "alice", 60)
    asyncio.run(objects.remember("file", "f2", "law"))
    rows = [{"id": "f1"}, {"id": "f2"}, "odd"]
    answer = {"object": "list", "data": rows, "first_id": "f1", "last_id": "f3", "has_more": True}
    assert asyncio.run(objects.keep_own("file", answer)) == {
        "object": "list",
        "data": [{"id": "f2"}],
        "first_id": "f2",
        "last_id": "f2",
        "has_more": True,
    }
    assert asyncio.run(objects.keep_own("file", {"data": []})) == {"data": []}
