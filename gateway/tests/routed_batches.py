"""Batch files whose lines are routed: experts that keep files and batches, and OpenAI's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from client_keys import key, write_keys
from object_servers import ObjectServer, serving_objects
from official_client import connect_as
from running_gateway import Running

CHATS = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}

Found = tuple[Running, ObjectServer]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    here = tmp_path_factory.mktemp("batches")
    file = write_keys(here / "keys.yaml", key("a"), key("b"), key("lawyer", experts=["law"]))
    aliases = {"gpt-4o": "auto", "claude": "maths"}
    with serving_objects(here, ("law", "maths"), server={"keys_file": str(file)}, aliases=aliases) as found:
        yield found


@pytest.fixture
def found(one: Found) -> Found:
    one[1].seen.clear()
    return one


def client(found: Found, name: str = "a") -> openai.OpenAI:
    return connect_as(found[0].url, name)


def line(number: int, question: str, model: str | None = "auto", **more: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": question}], **({} if model is None else {"model": model})}
    return {"custom_id": f"r{number}", "method": "POST", "url": "/v1/chat/completions", "body": body, **more}


def write(*lines: object) -> bytes:
    return b"\n".join(one if isinstance(one, bytes) else json.dumps(one).encode() for one in lines)


def put(found: Found, *lines: object, name: str = "a", **more: Any) -> Any:
    return client(found, name).files.create(file=("b.jsonl", write(*lines)), purpose="batch", **more)
