"""Prompts that no expert is for: the router says so of every one."""

from __future__ import annotations

from typing import Any

import pytest

from ir3de import Router
from ir3de.routing.decision import Decision


@pytest.fixture
def strange(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is out of domain from now on."""
    route = Router.route

    def route_strange(router: Router, text: str, **more: Any) -> Decision:
        found = route(router, text, **more)
        found._reason = "out of domain"
        return found

    monkeypatch.setattr(Router, "route", route_strange)
