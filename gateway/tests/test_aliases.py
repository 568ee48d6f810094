"""Aliases: other names for `auto` and experts, in requests, in /v1/models, with keys and through /admin."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from admin_client import admin, config, error, folder, token  # noqa: F401
from client_keys import bearer, key, write_keys
from configurations import GOOD, parsed
from ir3de.errors import InputError
from official_client import connect_as
from raw_sockets import ask, chat, eventually
from running_gateway import QUESTIONS, Running, running

ALIASES = {"gpt-4o": "auto", "gpt-4o-mini": "gpt-4o", "claude-sonnet": "law", "text-embedding-3-small": "cooking"}
KEYS = (key("free"), key("lawyer", experts=["law"]))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    here = tmp_path_factory.mktemp("aliases")
    file = write_keys(here / "keys.yaml", *KEYS)
    both = ["chat", "messages", "moderations"]
    experts = {"cooking": {"capabilities": ["embeddings"]}, "law": {"capabilities": both, "model": "llama-law"}}
    logs = {"access": str(here / "access.log")}
    with running(here, server={"keys_file": str(file)}, experts=experts, aliases=ALIASES, logs=logs) as found:
        yield found


def client(gateway: Running, name: str = "free") -> openai.OpenAI:
    return connect_as(gateway.url, name)


@pytest.mark.parametrize("alias", ["gpt-4o", "gpt-4o-mini"])
def test_an_alias_of_auto_is_routed(gateway: Running, alias: str) -> None:
    for expert in ("law", "maths"):
        got = client(gateway).chat.completions.create(**chat(QUESTIONS[expert], alias))  # type: ignore[call-overload]
        assert got.ir3de["expert"] == expert and got.ir3de["alias"] == alias and got.ir3de["why"] == "routed"


def test_an_alias_of_an_expert_is_that_expert_by_name(gateway: Running) -> None:
    got = ask(gateway.url, chat(QUESTIONS["maths"], "claude-sonnet"), **bearer("free"))
    assert got.headers["x-ir3de-expert"] == "law" and got.headers["x-ir3de-why"] == "asked by name"
    assert got.headers["x-ir3de-alias"] == "claude-sonnet" and got.headers["x-ir3de-decided"] == "law"
    assert b'"llama-law"' in gateway.upstream.bodies[-1] and b"claude-sonnet" not in gateway.upstream.bodies[-1]


def test_streams_messages_embeddings_and_what_is_passed_through_know_aliases(gateway: Running) -> None:
    stream = client(gateway).chat.completions.create(
        model="gpt-4o", messages=[{"role": "user", "content": QUESTIONS["law"]}], stream=True
    )
    assert next(iter(stream)).ir3de["alias"] == "gpt-4o"  # type: ignore[attr-defined]
    made = client(gateway).embeddings.create(model="text-embedding-3-small", input="x")
    assert made.ir3de["expert"] == "cooking"  # type: ignore[attr-defined]
    body = {"model": "claude-sonnet", "max_tokens": 9, "messages": chat(QUESTIONS["maths"])["messages"]}
    assert ask(gateway.url, body, path="/v1/messages", **bearer("free")).headers["x-ir3de-expert"] == "law"
    moderated = ask(gateway.url, {"model": "claude-sonnet", "input": "x"}, path="/v1/moderations", **bearer("free"))
    assert moderated.headers["x-ir3de-alias"] == "claude-sonnet" and b'"llama-law"' in gateway.upstream.bodies[-1]


def test_models_lists_the_aliases_that_a_key_may_use(gateway: Running) -> None:
    assert [one.id for one in client(gateway).models.list()][-4:] == list(ALIASES)
    listed = [one.id for one in client(gateway, "lawyer").models.list()]
    assert listed == ["auto", "ir3de/auto", "law", "gpt-4o", "gpt-4o-mini", "claude-sonnet"]
    assert client(gateway, "lawyer").models.retrieve("gpt-4o").id == "gpt-4o"
    with pytest.raises(openai.NotFoundError):
        client(gateway, "lawyer").models.retrieve("text-embedding-3-small")


def test_a_key_may_use_an_alias_of_its_experts_only(gateway: Running) -> None:
    allowed = ask(gateway.url, chat(QUESTIONS["law"], "claude-sonnet"), **bearer("lawyer"))
    body = {"model": "text-embedding-3-small", "input": "x"}
    refused = ask(gateway.url, body, path="/v1/embeddings", **bearer("lawyer"))
    assert allowed.status == 200 and refused.status == 403
    assert "may not use 'text-embedding-3-small'" in refused.json["error"]["message"]
    unknown = ask(gateway.url, chat("x", "gpt-5"), **bearer("free"))
    assert unknown.status == 404 and "gpt-4o" in unknown.json["error"]["message"]


def test_metrics_count_experts_and_the_log_has_the_alias(gateway: Running) -> None:
    ask(gateway.url, chat(QUESTIONS["law"], "gpt-4o"), **bearer("free"))
    metrics = ask(gateway.url, path="/metrics").body.decode()
    assert 'ir3de_requests_total{expert="law"' in metrics and "gpt-4o" not in metrics
    log = Path(gateway.gateway.live.snapshot.config.logs.access or os.devnull)
    assert eventually(lambda: any(json.loads(line)["asked"] == "gpt-4o" for line in log.read_text().splitlines()))


@pytest.mark.parametrize(
    ("aliases", "told"),
    [
        (
            "{gpt-4o: lwa}",
            "aliases: 'gpt-4o' stands for 'lwa', which is unknown: did you mean law? there are auto, law",
        ),
        ("{law: auto}", "aliases: 'law' is the name of an expert: choose another name for the alias"),
        ("{auto: law}", "aliases: 'auto' is the model that requests routing: choose another name"),
        ("{a: b, b: c, c: a}", "aliases: 'a' leads back to itself: let it stand for auto or an expert"),
        ("{a: a}", "aliases: 'a' leads back to itself"),
        ("{'': law}", "aliases: an alias needs a printable name of 1 to 200 characters, found ''"),
        ("[gpt-4o]", "aliases: should be an object, found"),
        ("{gpt-4o: 4}", "aliases.gpt-4o: should be a valid string, found 4: put it in quotes"),
    ],
)
def test_what_is_wrong_with_aliases_is_told_when_the_configuration_is_read(aliases: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        parsed(GOOD + f"aliases: {aliases}\n")
    assert told in str(caught.value) and str(caught.value).startswith("f.yaml: ")


def test_admin_keeps_aliases_and_experts_apart(folder: Path) -> None:  # noqa: F811
    names = [expert.name for expert in config(folder).experts]
    with admin(config(folder, aliases={"gpt-4o": names[0], "history": "auto"})) as client:
        assert error(client.delete(f"/admin/experts/{names[0]}")) == (
            409,
            f"'{names[0]}' is named as the target of the alias gpt-4o: change that first, then remove it",
        )
        added = client.post(
            "/admin/experts", json={"name": "history", "upstream": {"base_url": "http://127.0.0.1:9/v1"}}
        )
        assert error(added)[0] == 422 and "'history' is the name of an expert" in error(added)[1]


def test_a_reload_brings_other_aliases(folder: Path) -> None:  # noqa: F811
    def now(**changes: Any) -> Any:
        return config(folder, **changes)

    found = [now(aliases={"gpt-4o": "auto"})]
    with admin(found[0], reread=lambda: found[-1]) as client:
        found.append(now(aliases={"gpt-5": "auto"}))
        assert client.post("/admin/reload").status_code == 200
        assert [one["id"] for one in client.get("/v1/models").json()["data"]][-1] == "gpt-5"
