"""The page's traffic view computes from the Prometheus metrics what the gateway counted."""

import json
import math
import shutil
import subprocess
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

import exchange_records as made
from ir3de_gateway.http.service import PAGE_FOLDER
from ir3de_gateway.telemetry.metrics import Metrics

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")


def run(script: str, given: object) -> Any:
    """What a script with the page's metrics module writes, as JSON; `given` is its input."""
    source = f"""
    import {{ readFileSync }} from "node:fs";
    import * as metrics from {json.dumps((PAGE_FOLDER / "metrics.js").as_uri())};
    const given = JSON.parse(readFileSync(0, "utf8"));
    {script}
    """
    command = ["node", "--input-type=module", "-e", source]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def scrape(metrics: Metrics, in_flight: dict[str, int] | None = None) -> str:
    metrics.refresh(in_flight or {})
    return metrics.scrape()[0].decode()


def summarise(now: str, before: str = "") -> Any:
    script = """
    const [now, before] = given.map(metrics.parseMetrics);
    console.log(JSON.stringify(metrics.summarise(metrics.subtractMetrics(now, before), now)));
    """
    return run(script, [now, before])


def row(summary: dict[str, Any], expert: str) -> dict[str, Any]:
    return next(row for row in summary["experts"] if row["name"] == expert)


def test_the_page_reads_every_sample_as_prometheus_does() -> None:
    metrics = Metrics(made.live())
    metrics.observe(made.record(confidence=0.97))
    text = scrape(metrics, {"law": 2}) + 'odd{expert="a\\"b\\\\n\\n, {c=\\"1\\"}",other=""} 3e-05\nplain 7 1700000000\n'
    found = run("console.log(JSON.stringify(metrics.parseMetrics(given)))", text)
    wanted = [(s.name, s.labels, s.value) for family in parse(text) for s in family.samples]
    assert sorted((s["name"], sorted(s["labels"].items()), s["value"]) for s in found) == sorted(
        (name, sorted(labels.items()), value) for name, labels, value in wanted
    )
    assert len({sample["key"] for sample in found}) == len(found)


def test_each_kind_of_end_is_counted_where_it_belongs() -> None:
    metrics = Metrics(made.live())
    metrics.observe(made.record(outcome="ok", confidence=0.95))
    metrics.observe(made.record(outcome="cancelled", confidence=1.0))
    metrics.observe(made.record(outcome="client_error", expert="", decision=None))
    failed = {"outcome": "upstream_error", "fallbacks": [("maths", "law", "5xx")], "decision": made.decided("")}
    metrics.observe(made.record(**failed, confidence=0.05))
    summary = summarise(scrape(metrics, {"law": 1}))
    assert summary["totals"] == {"requests": 4, "errors": 1, "cancelled": 1, "abstained": 1, "inFlight": 1}
    usual = int(10 * (made.decided().confidence or 0.0))
    assert summary["confidence"]["counts"] == [1 if place == 0 else 2 if place == usual else 0 for place in range(10)]
    assert summary["confidence"]["edges"] == pytest.approx([place / 10 for place in range(11)])
    assert [found["name"] for found in summary["experts"]] == ["maths", "law", "none"]
    law, maths = row(summary, "law"), row(summary, "maths")
    assert (law["requests"], law["share"]) == (3, 0.75)
    assert (law["errors"], law["fallbacksTo"], maths["fallbacksFrom"]) == (1, 1, 1)
    assert law["tokens"] == 45 and law["cost"] == pytest.approx(60e-6)
    assert 250 < law["p50"] <= 500 and 250 < law["p99"] <= 500  # the bucket that 0.4 s falls into
    assert 50 < law["firstToken"] <= 100
    assert maths["requests"] == 0 and maths["p50"] is None


def test_a_window_shows_only_what_was_counted_in_it() -> None:
    metrics = Metrics(made.live())
    for _ in range(5):
        metrics.observe(made.record(upstream_seconds=20.0))
    before = scrape(metrics, {"law": 1})
    metrics.observe(made.record(upstream_seconds=0.02, confidence=0.5))
    metrics.observe(made.record(expert="maths"))
    summary = summarise(scrape(metrics, {"law": 3}), before)
    assert (summary["totals"]["requests"], summary["totals"]["inFlight"]) == (2, 3)
    assert row(summary, "law")["requests"] == row(summary, "maths")["requests"] == 1
    assert 10 < row(summary, "law")["p99"] <= 25


QUANTILES: list[tuple[list[list[float]], float, float | None]] = [  # buckets, share, and the quantile
    ([[1, 0], [2, 10], [math.inf, 10]], 0.5, 1.5),
    ([[1, 10], [2, 10], [math.inf, 10]], 0.5, 0.5),
    ([[1, 1], [2, 1], [4, 2], [math.inf, 2]], 0.99, 3.96),
    ([[1, 0], [2, 0], [math.inf, 5]], 0.5, 2),  # beyond the last bound nothing more is known
    ([[1, 0], [math.inf, 0]], 0.5, None),
    ([], 0.5, None),
]


def test_quantiles_are_prometheus_own() -> None:
    given = [
        [[[str(bound) if bound != math.inf else "Infinity", count] for bound, count in buckets], share]
        for buckets, share, _ in QUANTILES
    ]
    quantile = "metrics.quantile(buckets.map(([b, n]) => [Number(b), n]), share)"
    found = run(f"console.log(JSON.stringify(given.map(([buckets, share]) => {quantile})))", given)
    for one, (_, _, wanted) in zip(found, QUANTILES, strict=True):
        assert one == (wanted if wanted is None else pytest.approx(wanted))
