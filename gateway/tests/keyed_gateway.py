"""A gateway with named keys, for the tests of what a key may do and of what streams are charged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_keys import bearer, key, write_keys
from raw_sockets import chat
from running_gateway import QUESTIONS, Running, running

LAW = chat(QUESTIONS["law"])
MESSAGES = {"model": "auto", "max_tokens": 9, "messages": LAW["messages"]}
PRICE = {"input_per_1m": 1_000.0, "output_per_1m": 2_000.0}  # an answer of the tests costs 10 and 5 tokens: 0.02


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[Running]:
    """A gateway with keys; tests that use up a limit have a key of their own."""
    file = write_keys(
        folder / "keys.yaml",
        key("free"),
        key("lawyer", experts=["law"]),
        key("watcher", scopes=["models"]),
        key("chief", scopes=["admin"]),
        key("old", expires="2001-01-31"),
        key("off", disabled=True),
        key("three", requests_per_minute=3),
        key("anthropic", requests_per_minute=2, tokens_per_minute=1_000),
        key("words", tokens_per_minute=20),
        key("single", concurrent=1),
        key("poor", budget_per_day=0.03, budget_per_month=10),
        key("streams", tokens_per_minute=1_000_000),
        key("leaver", budget_per_day=10),
        key("impatient"),
        key("decides", requests_per_minute=2),
        key("broke", budget_per_day=0),
        key("counted"),
        key("plain"),
        key("breaks"),
        key("falls"),
        key("translated"),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IR3DE_API_KEY", "sk-plain-old, sk-second")
        patch.setenv("IR3DE_ADMIN_TOKEN", "root")
        experts = {
            "law": {"price": PRICE, "capabilities": ["chat", "completions", "messages", "responses", "tools"]},
            "maths": {"stream_usage": False, "fallbacks": ["cooking"]},
            "cooking": {"capabilities": ["messages"]},
        }
        logs = {"access": str(folder / "access.log"), "decisions": str(folder / "decisions.log")}
        with running(folder, server={"keys_file": str(file)}, experts=experts, logs=logs) as found:
            yield found


def as_law(name: str, **fields: Any) -> tuple[dict[str, Any], dict[str, str]]:
    return chat(QUESTIONS["law"], "law", **fields), bearer(name)
