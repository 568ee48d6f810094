"""A router and a decision log: the router that decided changes nothing, and every prompt that moves is counted once."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

import exchange_records as made
import running_gateway
import tiny
from commands import complaint, run, run_json, wrong_call
from ir3de import Router
from ir3de.corpora import read_rows
from ir3de.embedding.normalisation import replace_lone_surrogates
from ir3de.errors import InputError
from ir3de.traffic import Comparison, compare
from ir3de.traffic.decision_log import DamagedLines, DecisionLog, parse_row
from ir3de.traffic.rerouting import find_logged_expert
from ir3de_gateway.telemetry.log_lines import format_decision_line

QUESTIONS = ["Solve 3x = 12.", "Is my contract void?", "What is 12 times 8?", "字 🙂", "contract + x"]
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "text": st.sampled_from([*QUESTIONS, None, "\ud800"]),
            "expert": st.sampled_from(["maths", "law", "cooking"]),
            "served": st.sampled_from(["maths", "law", "cooking", ""]),
            "confidence": st.sampled_from([None, 0.0, 0.5, 1.0]),
            "abstained": st.booleans(),
            "ranking": st.just([]),
        }
    ),
    max_size=30,
)


def logged(text: str, *, served: str = "") -> bytes:
    """The line that a gateway writes."""
    decision = made.router().route(text)
    confidence, margin = decision.confidence, decision.margin
    record = made.record(
        decision=decision, confidence=confidence, margin=margin, expert=served or decision.best, text=text
    )
    return format_decision_line(record, prompts=True)


def compare_log(router: Router, rows: Iterable[Mapping[str, object]], damage: DamagedLines | None = None) -> Comparison:
    return compare(None, router, DecisionLog(rows, damage or DamagedLines()))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(b"".join(map(logged, QUESTIONS)))
    return path


@pytest.fixture
def candidate(tmp_path: Path) -> Path:
    """A router with one expert less, so that everything moves to the other."""
    folder = made.router().save(tmp_path / "candidate")
    run("remove", folder, "maths")
    return folder


def test_the_router_that_decided_agrees_with_itself(log: Path) -> None:
    found = compare_log(made.router(), read_rows([log], on_damage=DamagedLines()))
    assert (found.agreement.value, found.as_served, found.requests) == (1.0, (1.0, 1.0), len(QUESTIONS))
    sure = found.confidence
    assert sure is not None and (sure.requests, sure.higher, sure.lower) == (len(QUESTIONS), 0, 0) and not found.moves
    assert sure.live == pytest.approx(sure.candidate, abs=1e-5)


@tiny.LAW
@given(ROWS)
def test_every_prompt_is_counted_once_and_every_move_is_a_loss_and_a_gain(rows: list[dict[str, Any]]) -> None:
    spoken = [row for row in rows if row["text"] is not None]
    if not spoken:
        with pytest.raises(InputError, match=r"logs\.prompts: true" if rows else "there are no requests"):
            compare_log(made.router(), rows)
        return
    found = compare_log(made.router(), rows)
    decisions = [made.router().route(replace_lone_surrogates(row["text"])) for row in spoken]
    now = [decision.expert or decision.best for decision in decisions]
    assert found.requests == len(spoken) == len(rows) - found.without_prompt
    for share in found.shares:
        lost = sum(move.requests for move in found.moves if move.live == share.expert)
        gained = sum(move.requests for move in found.moves if move.candidate == share.expert)
        assert share.live == share.both + lost == sum(row["expert"] == share.expert for row in spoken)
        assert share.candidate == share.both + gained == now.count(share.expert)
    served = [(row["served"] or row["expert"]) == expert for row, expert in zip(spoken, now, strict=True)]
    assert found.as_served[1] == pytest.approx(sum(served) / len(spoken))
    abstained = [row["abstained"] for row in spoken], [decision.abstained for decision in decisions]
    assert found.abstained == (*map(sum, abstained), sum(map(all, zip(*abstained, strict=True))))
    known = [
        (row["confidence"], decision.confidence)
        for row, decision in zip(spoken, decisions, strict=True)
        if row["confidence"] is not None
    ]
    assert (found.confidence is None) == (not known)
    if found.confidence is not None:
        assert found.confidence.higher == sum(after - before > 0.1 for before, after in known)
        assert found.confidence.lower == sum(after - before < -0.1 for before, after in known)
    json.dumps(found.to_dict())


def test_a_prompt_that_fitted_no_expert_counts_for_the_nearest_one(log: Path, tmp_path: Path) -> None:
    with log.open("ab") as file:
        file.writelines(map(logged, ("hi", "ok thanks")))
    unfit = [row for row in read_rows([log], on_damage=DamagedLines()) if row["expert"] is None]
    assert len(unfit) == 2 and all(row["abstained"] is True and row["in_domain"] is not None for row in unfit)
    nearest = [made.router().route(str(row["text"])).best for row in unfit]
    assert [find_logged_expert(parse_row(row)) for row in unfit] == nearest
    told = run_json("compare", made.router().save(tmp_path / "router"), "--from", log)
    assert (told["damaged"], told["agreement"]["value"], told["moved"]) == (0, 1.0, 0)
    assert len(set(told["abstained"])) == 1 and told["abstained"][0] >= len(unfit)
    for wrong in ({"ranking": [7], "served": ""}, {"ranking": None}, {"abstained": False}):
        with pytest.raises(InputError, match=r"no decision|no expert"):
            parse_row({**unfit[0], **wrong})


def test_damaged_lines_are_counted_and_passed_over_up_to_a_limit(log: Path, tmp_path: Path) -> None:
    broken = [b'{"expert": "law", "ranki', b"\xff\xfe", b"[1, 2]", b'{"expert": "law"}', b"7"]
    packed = tmp_path / "damaged.jsonl.gz"
    packed.write_bytes(gzip.compress(b"\n".join([*broken, log.read_bytes()])))
    damage = DamagedLines()
    found = compare_log(made.router(), read_rows([packed], on_damage=damage), damage)
    assert found.requests == len(QUESTIONS) and damage.lines == len(broken)
    assert "damaged.jsonl.gz:1: not valid JSON" in damage.first
    few = DamagedLines(most=2)
    with pytest.raises(InputError, match="more than 2 lines"):
        compare_log(made.router(), read_rows([packed], on_damage=few), few)


def test_a_log_of_version_0_1_is_read() -> None:
    row = {
        "text": "prove the theorem",
        "expert": "maths",
        "ranking": [{"expert": "maths", "share": 0.9}],
        "confidence": 0.9,
        "abstained": True,
        "reason": "unlike every domain",
        "unlike": True,
    }
    found = compare_log(Router.fit({"maths": ["prove it"], "law": ["sue him"]}, embedding=tiny.embedding()), [row])
    assert found.requests == found.abstained[0] == 1 and found.expectation is None
    assert found.confidence is not None and found.confidence.live == 0.9


def test_expected_scores_are_compared_with_expected_scores_alone() -> None:
    scored = [{"text": text, "scores": {"maths": 3.0, "law": 2.0}} for text in QUESTIONS]
    outcomes, domains = Router.fit_outcomes(scored, embedding=tiny.embedding()), made.router()
    decision = outcomes.route(QUESTIONS[0])
    record = made.record(
        decision=decision, expected_score=decision.expected_score, margin=decision.margin, text=QUESTIONS[0]
    )
    row = json.loads(format_decision_line(record, prompts=True))
    assert row["confidence"] is None and row["expected_score"] == row["ranking"][0]["expected_score"]
    same, other = compare_log(outcomes, [row]), compare_log(domains, [row])
    assert same.expectation is not None and same.confidence is None
    assert same.expectation.live == pytest.approx(same.expectation.candidate, abs=1e-5)
    assert other.expectation is None and other.confidence is None
    assert compare_log(outcomes, [json.loads(logged(QUESTIONS[0]))]).confidence is None


# the command ----------------------------------------------------------------------------------------------------


def test_the_command_shows_what_would_change(log: Path, candidate: Path) -> None:
    shown = run("compare", candidate, "--from", log).stdout
    lost = [made.router().route(text).expert for text in QUESTIONS].count("maths")
    for part in ("as served", "abstained", "confidence", "clearly higher", "maths → law", QUESTIONS[0]):
        assert part in shown, part
    found = run_json("compare", candidate, "--from", log)
    assert found["moved"] == lost
    assert run_json("compare", candidate, "--from", "-", stdin=log.read_text("utf-8")) == found


def test_eval_names_the_command_that_reads_logs(log: Path, candidate: Path) -> None:
    for more in ((), ("--errors", "3"), ("--outcomes", str(log)), (f"law={log}",)):
        said = " ".join(wrong_call("eval", candidate, "--replay", log, *more).split())
        assert "eval has no --replay any more" in said and f"ir3de compare ROUTER --from {log}" in said


def test_logs_that_are_missing_or_empty_are_errors(candidate: Path, tmp_path: Path) -> None:
    assert "no such file" in complaint("compare", candidate, "--from", tmp_path / "decision.jsonl")
    (tmp_path / "empty.jsonl").touch()
    assert "there are no requests" in complaint("compare", candidate, "--from", tmp_path / "empty.jsonl")


def test_what_a_gateway_logged_is_routed_again_to_the_letter(tmp_path: Path) -> None:
    async def ask(url: str) -> None:
        async with aiohttp.ClientSession() as session:
            for question in running_gateway.QUESTIONS.values():
                body = {"model": "auto", "messages": [{"role": "user", "content": question}]}
                async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
                    assert answer.status == 200

    log = tmp_path / "decisions.jsonl"
    price = {"law": {"price": {"input_per_1m": 2.0, "output_per_1m": 1.0}}}
    logs = {"access": None, "decisions": str(log), "prompts": True}
    with running_gateway.running(tmp_path, logs=logs, experts=price, routing={"shadow": "cooking"}) as running:
        asyncio.run(ask(running.url))
    found = run_json("compare", tmp_path / "router", "--from", log)
    assert found["requests"] == 3 and found["agreement"]["value"] == 1.0
    assert found["as_served"] == [pytest.approx(1 / 3)] * 2
    assert found["confidence"]["live"] == pytest.approx(found["confidence"]["candidate"], abs=1e-5)
