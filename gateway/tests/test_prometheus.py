"""A real Prometheus scrapes a real gateway: every panel shows something, every alert is evaluated, some are raised."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

import raw_sockets
from free_ports import find_free_port
from monitored_run import ALERTS, fill_in, make_traffic, monitored_gateway, read_alerts, read_panels

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("promtool") is None, reason="needs prometheus and promtool (apt install prometheus)"
    ),
]


def run_promtool(*arguments: str, given: bytes = b"") -> str:
    done = subprocess.run(["promtool", *arguments], input=given, capture_output=True, check=False)
    told = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, told
    return told


def test_the_rules_are_prometheus_rules_and_ring_when_they_must(tmp_path: Path) -> None:
    assert f"{len(read_alerts())} rules found" in run_promtool("check", "rules", str(ALERTS))
    shutil.copy(ALERTS, tmp_path / "alerts.yaml")
    shutil.copy(Path(__file__).with_name("alerts_test.yaml"), tmp_path)
    run_promtool("test", "rules", str(tmp_path / "alerts_test.yaml"))


def test_metrics_are_named_as_prometheus_advises(tmp_path: Path) -> None:
    with monitored_gateway(tmp_path) as gateway:
        make_traffic(gateway)
        run_promtool("check", "metrics", given=raw_sockets.ask(gateway.url, path="/metrics").body)


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Callable[[str], Any]]:
    """Prometheus with our alerts, which looks at the target four times a second: asks its API."""
    address = f"127.0.0.1:{find_free_port()}"
    config = {
        "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms", "evaluation_interval": "250ms"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [{"job_name": "ir3de", "static_configs": [{"targets": [target.removeprefix("http://")]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--web.listen-address={address}"]
    with (folder / "messages").open("wb") as messages:
        process = subprocess.Popen([*command, f"--storage.tsdb.path={folder / 'data'}"], stderr=messages)

    def ask(path: str, **query: str) -> Any:
        got = raw_sockets.ask(f"http://{address}", path=f"/api/v1/{path}?{urlencode(query)}")
        return got.json["data"] if got.status == 200 else pytest.fail(got.body.decode())

    def is_ready() -> bool:
        assert process.poll() is None, (folder / "messages").read_text()
        try:
            return raw_sockets.ask(f"http://{address}", path="/-/ready").status == 200
        except OSError:
            return False

    try:
        assert raw_sockets.eventually(is_ready)
        yield ask
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.nightly
def test_every_panel_shows_something_and_every_alert_is_evaluated(tmp_path: Path) -> None:
    ended = threading.Event()
    with monitored_gateway(tmp_path) as gateway, prometheus(tmp_path, gateway.url) as ask:

        def keep_busy() -> None:
            while not ended.wait(0.05):
                make_traffic(gateway)

        traffic = threading.Thread(target=keep_busy)
        traffic.start()
        empty = dict(read_panels())

        def is_all_shown() -> bool:
            for panel, expression in list(empty.items()):
                found = ask("query", query=fill_in(expression, "5s"))["result"]
                if found and not all(_is_nan(one) for one in found):
                    del empty[panel]
            return not empty

        def find_alerts() -> dict[str, Any]:
            return {rule["name"]: rule for group in ask("rules")["groups"] for rule in group["rules"]}

        def are_raised() -> bool:
            states = {name: rule["state"] for name, rule in find_alerts().items()}
            return states["IR3DEExpertUnavailable"] != "inactive" and states["IR3DEDown"] == "inactive"

        try:
            assert raw_sockets.eventually(is_all_shown), f"nothing to see in: {json.dumps(empty, indent=1)}"
            assert raw_sockets.eventually(are_raised)  # the expert for cooking fails
            rules = find_alerts()
            assert set(rules) == set(read_alerts())
            assert {rule["health"] for rule in rules.values()} == {"ok"}, rules
        finally:
            ended.set()
            traffic.join(60)


def _is_nan(sample: dict[str, Any]) -> bool:
    return bool(sample["value"][1] == "NaN")
