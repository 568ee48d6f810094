"""The dashboard and the alerts ask for nothing that the gateway does not tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families as parse

import raw_sockets
from ir3de_gateway.telemetry.metrics import OUTCOMES, REASONS
from monitored_run import ALERTS, MONITORING, fill_in, make_traffic, monitored_gateway, read_alerts, read_panels

promql = pytest.importorskip("promql_parser")

ADDED = {"job", "instance"}  # labels of Prometheus' own
VALUES: dict[str, set[str]] = {"outcome": set(OUTCOMES), "reason": set(REASONS), "job": {"ir3de", ".*"}}
VALUES_OF_METRICS = {"ir3de_hook_calls_total": {"failed", "timeout"}}
Labels = dict[str, dict[str, set[str]]]  # of each metric: its labels, and their values


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Labels:
    """What a gateway with traffic and faults tells Prometheus."""
    with monitored_gateway(tmp_path_factory.mktemp("monitoring")) as gateway:
        make_traffic(gateway)
        text = raw_sockets.ask(gateway.url, path="/metrics").body.decode()
    found: Labels = {"up": {}}
    for sample in (sample for family in parse(text) for sample in family.samples):
        labels = found.setdefault(sample.name, {})
        for name, value in sample.labels.items():
            labels.setdefault(name, set()).add(value)
    return found


def walk(expression: Any) -> Iterator[Any]:
    """The expression and everything inside it."""
    yield expression
    inside = [getattr(expression, name, None) for name in ("lhs", "rhs", "expr", "param", "vector_selector")]
    for one in (*inside, *(getattr(expression, "args", None) or ())):
        if one is not None and hasattr(one, "prettify"):
            yield from walk(one)


def list_selectors(expression: Any) -> list[Any]:
    return [one for one in walk(expression) if type(one).__name__ == "VectorSelector"]


def find_faults(expression: str, told: Labels) -> list[str]:
    """What the expression asks for that nobody tells."""
    tree, faults = promql.parse(expression), []
    for selector in list_selectors(tree):
        if (labels := told.get(selector.name)) is None:
            faults.append(f"no metric {selector.name}")
            continue
        for matcher in selector.matchers.matchers:
            if matcher.name not in {*labels, *ADDED}:
                faults.append(f"{selector.name} has no label {matcher.name}")
            known = VALUES.get(matcher.name, set()) | labels.get(matcher.name, set()) | {".*"}
            known |= VALUES_OF_METRICS.get(selector.name, set())
            faults += [f"{matcher.name} is never {one}" for one in matcher.value.split("|") if one not in known]
    for part in walk(tree):
        if type(part).__name__ == "AggregateExpr" and part.modifier is not None:
            inside = [set(told.get(one.name, {})) for one in list_selectors(part.expr)]
            faults += [f"nothing to group by {name}" for name in set(part.modifier.labels) - ADDED.union(*inside)]
    return faults


@pytest.mark.parametrize("alert", read_alerts())
def test_an_alert_asks_for_metrics_and_labels_that_there_are(alert: str, told: Labels) -> None:
    assert find_faults(read_alerts()[alert], told) == []


@pytest.mark.parametrize("panel", read_panels())
def test_a_panel_asks_for_metrics_and_labels_that_there_are(panel: str, told: Labels) -> None:
    assert find_faults(fill_in(read_panels()[panel]), told) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "rate(ir3de_request_total[5m])",
        "sum by (model) (ir3de_breaker_state)",
        'ir3de_requests_total{outcome="bad"}',
        'ir3de_abstain_total{expert="law"}',
    ],
)
def test_what_there_is_not_would_be_found(wrong: str, told: Labels) -> None:
    assert find_faults(wrong, told)


def test_the_operators_rules_are_those_of_prometheus() -> None:
    rule = yaml.safe_load((MONITORING / "prometheus-rule.yaml").read_text())
    assert rule["spec"] == yaml.safe_load(ALERTS.read_text())


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
            assert rule["annotations"]["summary"] and rule["annotations"]["description"].endswith("."), rule["alert"]


def test_budgets_and_a_broken_keys_file_are_told(tmp_path: Path) -> None:
    with monitored_gateway(tmp_path) as gateway:
        make_traffic(gateway)

        def tell() -> dict[str, float]:
            text = raw_sockets.ask(gateway.url, path="/metrics").body.decode()
            wanted = [line.rpartition(" ") for line in text.splitlines() if line.startswith("ir3de_key")]
            return {name: float(value) for name, _, value in wanted}

        told = tell()
        assert told['ir3de_key_budget{key="team",period="day"}'] == 1
        assert told['ir3de_key_budget{key="team",period="month"}'] == 20
        assert 0 < (used := told['ir3de_key_budget_used{key="team",period="day"}']) < 1
        assert used == round(used, 12)  # as /v1/usage tells it
        assert not any('budget{key="poor"' in name for name in told)  # it has none
        assert told["ir3de_keys_file_valid"] == 1
        (tmp_path / "keys.yaml").write_text("keys: [")
        assert raw_sockets.eventually(lambda: tell()["ir3de_keys_file_valid"] == 0)
