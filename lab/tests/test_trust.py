"""The programme that looks for faults sees them, and the same seed tries the same inputs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ir3de import Router
from ir3de.corpora import examples as demo
from ir3de_lab import files
from ir3de_lab.benchmarks.trust import answers, doors, parsers
from ir3de_lab.benchmarks.trust.kills import HOOK
from ir3de_lab.benchmarks.trust.mutation import dice_for, mutate_bytes, mutate_json
from ir3de_lab.benchmarks.trust.parsers import Parser
from ir3de_lab.benchmarks.trust.sealed import change_router, seal
from ir3de_lab.benchmarks.trust.traffic import Fault

EXAMPLES = [b'{"a": [1, 2, 3]}', b"name: x\n"]


def test_a_seed_gives_the_same_inputs_and_another_seed_others() -> None:
    def inputs(seed: int) -> list[bytes]:
        return [mutate_bytes(EXAMPLES, dice_for(seed, "x", n)) for n in range(200)]

    assert inputs(1) == inputs(1) != inputs(2)
    assert len(set(inputs(1))) > 100
    for make in doors.MAKERS.values():
        assert [make(3, n) for n in range(50)] == [make(3, n) for n in range(50)]
    assert answers.changed_answer(3, 7) == answers.changed_answer(3, 7) != answers.changed_answer(3, 8)


def test_json_is_changed_and_its_source_is_not() -> None:
    document = {"model": "auto", "messages": [{"role": "user", "content": "x"}], "n": 1}
    before = json.dumps(document)
    changed = [json.dumps(mutate_json(document, dice_for(0, "y", n))) for n in range(300)]
    assert json.dumps(document) == before
    assert sum(text != before for text in changed) > 250 and len(set(changed)) > 150


def test_lists_do_not_grow_without_end() -> None:
    """This input repeated a list of repeated lists, and took as long as the time limits of the gateway."""
    assert max(len(doors.json_request(0, n)) for n in (*range(300), 13_208)) < 5_000_000


def test_an_exception_of_others_is_a_finding_and_one_of_ours_is_not(tmp_path: Path) -> None:
    def read(path: Path) -> bool:
        data = path.read_bytes()
        if data == b"crash":
            raise KeyError("x")
        if data == b"refuse":
            Router.load(tmp_path / "nowhere")
        return data == b"good"

    outcomes = []
    for data in (b"crash", b"refuse", b"good", b"bad"):
        (tmp_path / "input").write_bytes(data)
        outcomes.append(parsers._try(Parser({}, read), tmp_path / "input")["outcome"])
    assert outcomes == ["finding", "refused", "accepted", "refused"]


@pytest.mark.parametrize(
    ("received", "outcome"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "accepted"),
        (b'HTTP/1.1 400 Bad\r\ncontent-length: 15\r\n\r\n{"error": "no"}', "refused"),
        (b"HTTP/1.1 400 Bad\r\ncontent-length: 2\r\n\r\n{}", "finding"),
        (b'HTTP/1.1 500 X\r\ncontent-length: 15\r\n\r\n{"error": "no"}', "finding"),
        (b"", "finding"),
        (b"rubbish\r\n\r\n", "finding"),
    ],
)
def test_answers_are_judged(received: bytes, outcome: str) -> None:
    assert doors.judge("JSON bodies", received)[0] == outcome


def test_findings_are_told_once() -> None:
    campaign = doors.Campaign("JSON bodies", 0)
    for number in range(5):
        campaign.report(number, "500: the same")
    campaign.report(9, "another")
    assert [finding["number"] for finding in campaign.findings] == [0, 9]


def test_a_finding_is_kept_whatever_its_request_holds(tmp_path: Path) -> None:
    campaign = doors.Campaign("x", 0)
    campaign.report(3, "one", request={"input": "half a pair: \ud83d"})
    files.write_json(tmp_path / "found.json", {"campaigns": campaign.findings})
    (found,) = json.loads((tmp_path / "found.json").read_bytes())["campaigns"]
    assert found["request"] == {"input": "half a pair: \ud83d"}


def test_requests_lost_and_wrong_are_counted() -> None:
    fault = Fault("x")
    fault.add(Counter(answered=5, refused=1, lost=2, cut=1, wrong=1))
    fault.expect(False, "a problem")
    assert (fault.served, fault.refused, fault.lost, fault.wrong) == (5, 1, 3, 1)
    assert fault.problems == ["a problem"]


@pytest.mark.slow
def test_a_changed_router_is_sealed_as_the_product_seals_it(tmp_path: Path) -> None:
    Router.fit({name: texts[:3] for name, texts in demo.prompts().items()}).save(tmp_path / "router")
    files = {path.name: path.read_bytes() for path in (tmp_path / "router").iterdir()}
    header = json.loads(files["router.json"])
    assert seal(header) == header
    assert any(change_router(files, dice_for(0, "z", n)) != files for n in range(3))


@pytest.mark.slow
def test_a_process_is_killed_at_the_step_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    place, armed = tmp_path / "place", tmp_path / "armed"
    place.mkdir()
    armed.touch()
    code = f"for n in range(3): open({str(place)!r} + '/' + str(n), 'w').close()"
    found = []
    for step in (1, 2, 3, 4):
        for path in place.iterdir():
            path.unlink()
        env = {
            "PYTHONPATH": str(tmp_path),
            "TRUST_FOLDER": str(place),
            "TRUST_STEP": str(step),
            "TRUST_ARMED": str(armed),
        }
        ended = subprocess.run([sys.executable, "-c", code], env=env, check=False)
        found.append((ended.returncode, len(list(place.iterdir()))))
    assert found == [(-9, 0), (-9, 1), (-9, 2), (0, 3)]


@pytest.mark.slow
def test_a_parser_of_files_is_fuzzed_in_a_process_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ir3de_lab.benchmarks.trust.parsers", "--parser=corpus csv", "--seconds=30"]
    told = subprocess.run([*command, "--count=40", f"--keep={tmp_path}"], capture_output=True, text=True, check=True)
    found = json.loads(told.stdout)
    assert found["inputs"] == 40 == found["accepted"] + found["refused"] and not found["findings"]


@pytest.mark.slow
@pytest.mark.nightly
def test_a_door_of_a_gateway_holds() -> None:
    campaign = doors.fuzz_door("JSON bodies", seed=11, seconds=30, count=60)
    assert campaign.inputs == 60 and not campaign.findings
