"""Metrics: each request counted once, labels bounded, workers added up."""

import json
import os
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse
from starlette.applications import Starlette
from starlette.testclient import TestClient

import exchange_records as made
import tiny
from ir3de_gateway.experts.snapshot import LiveSnapshot
from ir3de_gateway.store.workers import (
    NOTES_FILE,
    VARIABLE,
    WorkerNotes,
    WorkerPlace,
    create_worker_folder,
    get_worker_folder,
)
from ir3de_gateway.telemetry.metrics import OUTCOMES, REASONS, Metrics
from ir3de_gateway.telemetry.observer import Observer

NAMES = st.sampled_from(["maths", "law", "", "gone", "none"]) | st.text(max_size=10)


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def value(text: str, name: str, **labels: str) -> float:
    return samples(text).get((name, tuple(sorted(labels.items()))), 0.0)


def read(metrics: Metrics) -> str:
    metrics.refresh({})
    return metrics.scrape()[0].decode()


def test_a_request_is_in_every_metric_once() -> None:
    metrics = Metrics(made.live())
    handed_on = [("maths", "law", "503")]
    metrics.observe(made.record(confidence=0.97, fallbacks=handed_on, decision=made.decided("")))  # of who answered
    text = read(metrics)
    assert value(text, "ir3de_requests_total", expert="law", outcome="ok") == 1
    assert value(text, "ir3de_route_seconds_bucket", le="5e-05") == 1
    assert value(text, "ir3de_route_seconds_bucket", le="2e-05") == 0
    assert value(text, "ir3de_confidence_bucket", le="0.1") == 1  # of the decision
    assert value(text, "ir3de_abstain_total") == 1  # an empty prompt
    assert value(text, "ir3de_fallback_total", reason="5xx", to="law", **{"from": "maths"}) == 1
    assert value(text, "ir3de_upstream_seconds_sum", expert="law") == 0.4
    assert value(text, "ir3de_ttft_seconds_sum", expert="law") == 0.1
    assert value(text, "ir3de_tokens_total", expert="law", direction="prompt") == 10
    assert value(text, "ir3de_tokens_total", expert="law", direction="completion") == 5
    assert value(text, "ir3de_cost_total", expert="law") == 20e-6
    assert value(text, "ir3de_http_responses_total", endpoint="chat", status="2xx") == 1
    assert value(text, "ir3de_queue_seconds_count", expert="law") == 0  # it did not wait
    assert value(text, "ir3de_concurrency_limit", expert="law") == 64
    assert 'ir3de_router_info{digest="' + "d" * 64 in text and 'ir3de_build_info{python="3.' in text


def test_requests_that_waited_and_those_that_got_no_answer_are_told_apart() -> None:
    metrics = Metrics(made.live())
    metrics.observe(made.record(queue_seconds=2e-6))
    metrics.observe(made.record(queue_seconds=0.3, status=0))
    metrics.count_response("page", 304)
    text = read(metrics)
    assert value(text, "ir3de_queue_seconds_sum", expert="law") == 0.3
    assert value(text, "ir3de_http_responses_total", endpoint="chat", status="none") == 1
    assert value(text, "ir3de_http_responses_total", endpoint="page", status="3xx") == 1


def test_a_process_is_described_as_prometheus_clients_do() -> None:
    text = read(Metrics(made.live()))
    assert time.time() - 3_600 < value(text, "process_start_time_seconds") <= time.time()
    assert 1e6 < value(text, "process_resident_memory_bytes") < 1e11
    assert value(text, "process_cpu_seconds_total") > 0 and value(text, "process_max_fds") > 0


def test_what_was_not_reached_is_not_counted() -> None:
    metrics = Metrics(made.live())
    nothing = {"decision": None, "route_seconds": None, "upstream_seconds": None, "first_seconds": None}
    metrics.observe(made.record(**nothing, expert="", outcome="client_error", prompt_tokens=None, cost=None))
    text = read(metrics)
    assert value(text, "ir3de_requests_total", expert="none", outcome="client_error") == 1
    for name in ("route_seconds", "confidence"):
        assert value(text, f"ir3de_{name}_count") == 0
    assert value(text, "ir3de_upstream_seconds_count", expert="none") == 0


@tiny.LAW
@given(st.lists(st.tuples(NAMES, NAMES, NAMES), min_size=1, max_size=8), st.sampled_from(OUTCOMES))
def test_labels_are_bounded_whatever_is_counted(handed_on: list[tuple[str, str, str]], outcome: str) -> None:
    metrics = Metrics(made.live())
    for expert, _, _ in handed_on:
        metrics.observe(made.record(expert=expert, fallbacks=handed_on, outcome=outcome))
    found = samples(read(metrics))
    labels = {(name, label) for _, pairs in found for name, label in pairs}
    experts = {label for name, label in labels if name in ("expert", "from", "to")}
    assert experts <= {*made.EXPERTS, "none"}
    assert {label for name, label in labels if name == "reason"} <= set(REASONS)
    counted = sum(count for (name, _), count in found.items() if name == "ir3de_requests_total")
    assert counted == len(handed_on)


def test_a_new_expert_has_its_own_label_at_once() -> None:
    live = made.live()
    metrics = Metrics(live)
    metrics.observe(made.record(expert="cooking"))
    snapshot = live.snapshot
    cooking = snapshot.config.experts[0].model_copy(update={"name": "cooking"})
    config = snapshot.config.model_copy(update={"experts": (*snapshot.config.experts, cooking)})
    live.swap(type(snapshot).from_config(config, snapshot.router, "e" * 64, snapshot))
    metrics.observe(made.record(expert="cooking"))
    text = read(metrics)
    assert value(text, "ir3de_requests_total", expert="none", outcome="ok") == 1
    assert value(text, "ir3de_requests_total", expert="cooking", outcome="ok") == 1
    assert 'digest="' + "e" * 64 in text and "d" * 64 not in text


def test_two_gateways_in_one_process_count_apart() -> None:
    one, other = Metrics(made.live()), Metrics(made.live())
    one.observe(made.record())
    assert value(read(one), "ir3de_requests_total", expert="law", outcome="ok") == 1
    assert value(read(other), "ir3de_requests_total", expert="law", outcome="ok") == 0


@pytest.fixture
def client() -> TestClient:
    live: LiveSnapshot = made.live()
    observer = Observer(live)
    observer.request_started("law")
    observer.request_started("law")
    observer.request_ended("law")
    for _ in range(5):
        live.snapshot.experts["law"].breaker.record_failure()
    return TestClient(Starlette(routes=observer.routes))


def test_states_are_as_they_are_when_asked(client: TestClient) -> None:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert value(answer.text, "ir3de_in_flight", expert="law") == 1
    assert value(answer.text, "ir3de_waiting", expert="law") == 0
    assert value(answer.text, "ir3de_breaker_state", expert="law") == 2
    assert value(answer.text, "ir3de_breaker_state", expert="maths") == 0


def test_openmetrics_where_the_client_prefers_it(client: TestClient) -> None:
    answer = client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = {family.name: family.type for family in parse_open(answer.text)}
    assert families["ir3de_requests"] == "counter" and families["ir3de_router"] == "info"


# several workers ------------------------------------------------------------------------------------------------

WORKER = """
import asyncio, json, os, signal, sys
from contextlib import closing
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import exchange_records as made
from ir3de_gateway.store.workers import WorkerPlace, get_worker_folder
from ir3de_gateway.telemetry.observer import Observer
from starlette.requests import Request

async def main():
    observer = Observer(made.live(made.log_paths(Path(sys.argv[2]))), WorkerPlace(get_worker_folder()))
    observer.handle_sighup()
    for line in sys.stdin:
        asked = line.split()
        if asked[0] == "serve":
            observer.request_started("law")
            observer.observe(made.record(upstream_seconds=float(asked[1])))
            observer._publish()
            print("served", flush=True)
        elif asked[0] == "hangup":
            os.kill(os.getpid(), signal.SIGHUP)
            while os.path.exists(asked[1]) is False:
                await asyncio.sleep(0.01)
            print("heard", flush=True)
        else:
            scope = {"type": "http", "headers": []}
            metrics = await observer._get_metrics(Request(scope))
            print(json.dumps(metrics.body.decode()), flush=True)

asyncio.run(main())
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_workers_answer_for_all_of_them_and_for_those_that_died(tmp_path: Path) -> None:
    def ask(worker: subprocess.Popen[str], line: str) -> str:
        assert worker.stdin is not None and worker.stdout is not None
        worker.stdin.write(line + "\n")
        worker.stdin.flush()
        return worker.stdout.readline()

    with create_worker_folder() as folder:
        assert get_worker_folder() == folder
        command, environment = tiny.python_command(WORKER, Path(__file__).parent, tmp_path)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        workers = [
            subprocess.Popen(command, env={**environment, VARIABLE: str(folder)}, **pipes)  # type: ignore[call-overload]
            for _ in range(2)
        ]
        try:
            for _ in range(3):
                assert ask(workers[0], "serve 0.001") == "served\n"
            assert ask(workers[1], "serve 1.0") == "served\n"
            for worker in workers:
                text = json.loads(ask(worker, "tell"))
                assert value(text, "ir3de_requests_total", expert="law", outcome="ok") == 4
                assert value(text, "ir3de_in_flight", expert="law") == 4
                assert text.count("ir3de_router_info{") == 1
                assert value(text, "ir3de_upstream_seconds_bucket", expert="law", le="0.005") == 3
                assert value(text, "ir3de_upstream_seconds_bucket", expert="law", le="1.0") == 4
            access = tmp_path / "access.jsonl"
            for worker in workers:
                access.rename(tmp_path / f"{worker.pid}.jsonl")
                assert ask(worker, f"hangup {access}") == "heard\n"
            assert len((tmp_path / f"{workers[0].pid}.jsonl").read_text().splitlines()) == 4
            workers[0].kill()
            workers[0].wait()
            text = json.loads(ask(workers[1], "tell"))
            assert value(text, "ir3de_requests_total", expert="law", outcome="ok") == 4  # counted is counted
            assert value(text, "ir3de_in_flight", expert="law") == 1
        finally:
            for worker in workers:
                worker.kill()
                worker.communicate()
    assert not folder.exists() and VARIABLE not in os.environ


def test_a_place_is_free_when_its_worker_ends_however_it_ends(tmp_path: Path) -> None:
    script = "import sys; from pathlib import Path; from ir3de_gateway.store.workers import WorkerPlace\n"
    script += "place = WorkerPlace(Path(sys.argv[1])); print(place.number, flush=True); sys.stdin.read()"
    command, environment = tiny.python_command(script, tmp_path)
    place = WorkerPlace(tmp_path)
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None and worker.stdout.readline() == b"1\n"
        assert [place.is_alive(number) for number in range(3)] == [True, True, False]
        worker.kill()
        worker.wait()
        assert [place.is_alive(number) for number in range(3)] == [True, False, False]
    assert WorkerPlace(tmp_path).number == 1
    place.close()
    assert WorkerPlace(tmp_path).number == 0


def test_a_new_worker_counts_on_where_the_one_before_it_ended(tmp_path: Path) -> None:
    for number in (1, 2):
        place = WorkerPlace(tmp_path)
        metrics = Metrics(made.live(), place)
        metrics.observe(made.record(upstream_seconds=0.4))
        metrics.resends["law"] += 1
        metrics.refresh({"law": 5})
        text = metrics.scrape()[0].decode()
        assert value(text, "ir3de_requests_total", expert="law", outcome="ok") == number
        assert value(text, "ir3de_resends_total", expert="law") == number
        assert value(text, "ir3de_upstream_seconds_bucket", expert="law", le="0.5") == number
        assert value(text, "ir3de_upstream_seconds_sum", expert="law") == pytest.approx(0.4 * number)
        assert value(text, "ir3de_in_flight", expert="law") == 5
        place.close()


def test_metrics_of_a_worker_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    metrics = Metrics(made.live(), WorkerPlace(tmp_path))
    WorkerNotes(tmp_path).write("worker 7", "{")
    metrics.observe(made.record())
    assert value(read(metrics), "ir3de_requests_total", expert="law", outcome="ok") == 1


def test_metrics_are_shown_even_if_they_cannot_be_published(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = WorkerPlace(tmp_path)
    metrics = Metrics(made.live(), place)
    with closing(sqlite3.connect(tmp_path / NOTES_FILE)) as database:
        database.execute("DROP TABLE notes")  # so it cannot be written
    metrics.observe(made.record())
    for _ in range(3):
        assert value(read(metrics), "ir3de_requests_total", expert="law", outcome="ok") == 1
    assert caplog.text.count("other workers do not see this one's metrics") == 1
