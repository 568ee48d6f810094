"""A gateway with all that monitoring is about: traffic, faults, queues, costs; and what is asked of its metrics."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import yaml
from starlette.requests import Request
from starlette.responses import Response

import raw_sockets
from running_gateway import QUESTIONS, Running, Upstream, answer, failing, running, served

MONITORING = Path(__file__).parents[2] / "examples" / "deploy" / "monitoring"
DASHBOARD = MONITORING / "grafana" / "dashboards" / "ir3de.json"
ALERTS = MONITORING / "alerts.yaml"


KEY, POOR_KEY = "sk-team", "sk-poor"
_numbers = count()  # so that no two requests are equal, for the cache


def _write_keys(path: Path) -> None:
    """One key with a budget, and one that may ask nothing."""
    limits = {"team": {"budget_per_day": 1, "budget_per_month": 20}, "poor": {"requests_per_minute": 0}}
    secrets = {"team": KEY, "poor": POOR_KEY}
    keys = [
        {"name": name, "hash": f"sha256:{hashlib.sha256(secrets[name].encode()).hexdigest()}", "limits": limits[name]}
        for name in secrets
    ]
    path.write_text(yaml.safe_dump({"version": 1, "keys": keys}))


@contextmanager
def monitored_gateway(folder: Path) -> Iterator[Running]:
    """One expert has replicas, of which one fails and one is slow; one takes one request at once; and one fails."""
    behind = Upstream()
    _write_keys(folder / "keys.yaml")
    with served(behind.app()) as address:
        replicas = [{"name": name, "base_url": f"{address}/{name}/v1"} for name in ("good", "bad", "slow")]
        experts = {
            "law": {
                "price": {"input_per_1m": 1, "output_per_1m": 2},
                "base_url": replicas[0]["base_url"],
                "replicas": replicas,
                "affinity": 0,
                "retries": {"backoff": 0},
                "slow_start": 0,
                "hedge_after": 0.01,
                "health": {"interval": 0.2},
            },
            "maths": {"concurrency": {"limit": 1, "queue": 8}},
            "cooking": {"breaker": {"failures": 1, "rest": 600}},
        }
        (folder / "hooks.py").write_text(
            "def check(request):\n    return None\n\n\ndef fail(request):\n    raise ValueError\n"
        )
        hooks = [
            {"call": f"{folder}/hooks.py:{name}", "name": name, "on_failure": "continue"} for name in ("check", "fail")
        ]
        more = {"server": {"keys_file": str(folder / "keys.yaml")}, "cache": {"ttl": 60}, "hooks": {"before": hooks}}
        with running(folder, experts=experts, routing={"default": "law"}, **more) as gateway:
            behind.behaviour |= {"bad": failing(500), "slow": _answer_slowly}
            gateway.upstream.behaviour |= {"maths": _answer_slowly, "cooking": failing(500)}
            yield gateway


async def _answer_slowly(request: Request, asked: dict[str, Any]) -> Response:
    await asyncio.sleep(0.05)
    return await answer(request, asked)


def make_traffic(gateway: Running) -> None:
    """One round of requests of all kinds."""

    def ask(question: str, model: str = "auto", key: str = KEY, **more: Any) -> int:
        body = raw_sockets.chat(question, model, **{"user": f"user {next(_numbers)}", **more})
        return raw_sockets.ask(gateway.url, body, authorization=f"Bearer {key}").status

    for _ in range(4):  # every replica has its turn
        assert ask(QUESTIONS["law"]) == ask(QUESTIONS["law"], stream=True) == 200
    assert ask(QUESTIONS["law"], user="same") == ask(QUESTIONS["law"], user="same") == 200  # from the cache
    assert ask(QUESTIONS["law"], key=POOR_KEY) == 429
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
