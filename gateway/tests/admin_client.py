"""A client of /admin with its token, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import tiny
from ir3de_gateway.app import create_app
from ir3de_gateway.config.document import Config
from ir3de_gateway.gateway import Gateway
from saved import first_router

TOKEN = "let-me-in-3141592653"
ENDPOINT = {"base_url": "http://127.0.0.1:9/v1"}
HISTORY = ["When did Rome fall?", "Who was the first emperor?", "Why did the war begin in 1618?"]


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", TOKEN)
    monkeypatch.delenv("IR3DE_API_KEY", raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    first_router().save(tmp_path / "router")
    return tmp_path


def config(folder: Path, endpoint: str = ENDPOINT["base_url"], **changes: Any) -> Config:
    experts = [{"name": name, "base_url": endpoint} for name in tiny.DOMAINS]
    router = {"path": str(folder / "router"), "versions": 0}  # test_versions.py keeps some
    given = {"router": router, "state": str(folder / "state"), "logs": {"access": None}}
    return Config.model_validate({**given, "experts": experts, **changes})


@contextmanager
def admin(base: Config, reread: Any = None) -> Iterator[TestClient]:
    gateway = Gateway.open(base, reread=reread)
    with TestClient(
        create_app(gateway), base_url="http://127.0.0.1", headers={"authorization": f"Bearer {TOKEN}"}
    ) as client:
        client.gateway = gateway
        yield client


def names(client: TestClient) -> list[str]:
    return [row["name"] for row in client.get("/admin/experts").json()["data"]]


def error(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["message"]
