"""A gateway with all that monitoring is about: traffic, faults, queues, costs; and what is asked of its metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import raw_sockets
import yaml
from running_gateway import QUESTIONS, Running, answer, failing, running
from starlette.requests import Request
from starlette.responses import Response

MONITORING = Path(__file__).parents[2] / "examples" / "deploy" / "monitoring"
DASHBOARD = MONITORING / "grafana" / "dashboards" / "ir3de.json"
ALERTS = MONITORING / "alerts.yaml"


@contextmanager
def monitored_gateway(folder: Path) -> Iterator[Running]:
    """One expert answers, one takes only one request at once, and one fails."""
    experts = {
        "law": {"price": {"input_per_1m": 1, "output_per_1m": 2}},
        "maths": {"concurrency": {"limit": 1, "queue": 8}},
        "cooking": {"breaker": {"failures": 1, "rest": 600}},
    }
    with running(folder, experts=experts) as gateway:

        async def answer_slowly(request: Request, asked: dict[str, Any]) -> Response:
            await asyncio.sleep(0.01)
            return await answer(request, asked)

        gateway.upstream.behaviour["maths"] = answer_slowly
        gateway.upstream.behaviour["cooking"] = failing(500)
        yield gateway


def make_traffic(gateway: Running) -> None:
    """One round of requests of all kinds."""

    def ask(question: str, model: str = "auto", **more: Any) -> int:
        return raw_sockets.ask(gateway.url, raw_sockets.chat(question, model, **more)).status

    assert ask(QUESTIONS["law"]) == ask(QUESTIONS["law"], stream=True) == 200
    assert ask(QUESTIONS["cooking"]) == 200  # another expert answered
    assert ask(QUESTIONS["cooking"], "cooking") in (500, 503)
    assert ask(" ") == 200  # the router abstains
    assert ask(QUESTIONS["law"], "nobody") == 404
    with ThreadPoolExecutor(3) as clients:
        assert set(clients.map(lambda _: ask(QUESTIONS["maths"]), range(3))) == {200}
    assert raw_sockets.ask(gateway.url, path="/").status == 200


def read_alerts() -> dict[str, str]:
    """The expression of each alert."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def read_panels() -> dict[str, str]:
    """Each expression of the dashboard, by its panel and letter."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return {
        f"{panel['title']} {target['refId']}": target["expr"] for panel in panels for target in panel.get("targets", ())
    }


def fill_in(expression: str, interval: str = "5m") -> str:
    """An expression of the dashboard as Grafana sends it, with everything selected."""
    for name in ("job", "instance", "expert", "key"):
        expression = expression.replace(f"${name}", ".*")
    return expression.replace("$__rate_interval", interval)
