"""Replaying a decisions log: the same router changes nothing, and every prompt that moves is counted once."""

import asyncio
import gzip
import json
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
from ir3de.errors import InputError
from ir3de.evaluation.replay import DamagedLines, LoggedDecision, replay_log
from ir3de_gateway.config.experts import Price
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


def logged(text: str, *, served: str = "", price: Price | None = None) -> bytes:
    """The line that a gateway writes."""
    decision = made.router().route(text)
    confidence, margin = decision.confidence, decision.margin
    record = made.record(
        decision=decision, confidence=confidence, margin=margin, expert=served or decision.best, text=text
    )
    return format_decision_line(record, prompts=True, price=price)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(b"".join(map(logged, QUESTIONS)))
    return path


@pytest.fixture
def candidate(tmp_path: Path) -> Path:
    """A router with one expert less, so that everything moves to the other."""
    router = made.router()
    folder = tmp_path / "candidate"
    router.save(folder)
    run("remove", folder, "maths")
    return folder


def test_the_router_that_decided_agrees_with_itself(log: Path) -> None:
    moved: list[object] = []
    report = replay_log(
        made.router(), read_rows([log], on_damage=DamagedLines()), on_move=lambda *move: moved.append(move)
    )
    assert (report.agreement, report.served_agreement, report.prompts) == (1.0, 1.0, len(QUESTIONS))
    assert moved == [] and report.more_confident == report.less_confident == 0
    assert report.confidence_before == pytest.approx(report.confidence_after, abs=1e-6)


@tiny.LAW
@given(ROWS)
def test_every_prompt_is_counted_once_and_every_move_is_a_loss_and_a_gain(rows: list[dict[str, Any]]) -> None:
    texts = [row["text"] for row in rows if row["text"] is not None]
    if not texts:
        with pytest.raises(InputError, match=r"logs\.prompts: true"):
            replay_log(made.router(), rows)
        return
    moved: list[str] = []
    report = replay_log(made.router(), rows, on_move=lambda row, decision: moved.append(row.expert))
    assert report.prompts == len(texts) == len(rows) - report.without_text == sum(map(sum, report.matrix))
    for index, name in enumerate(report.experts):
        change = report.changes[name]
        assert change.before == change.kept + change.lost == sum(report.matrix[index])
        assert change.after == change.kept + change.gained == sum(row[index] for row in report.matrix)
        assert change.lost == moved.count(name)
    assert report.agreement == pytest.approx(1 - len(moved) / len(texts))
    assert report.abstained_both <= min(report.abstained_before, report.abstained_after)
    decisions = [made.router().route(text.replace("\ud800", "?")) for text in texts]
    experts = [decision.expert or decision.best for decision in decisions]
    spoken = [row for row in rows if row["text"] is not None]
    served = [(row["served"] or row["expert"]) == expert for row, expert in zip(spoken, experts, strict=True)]
    assert report.served_agreement == pytest.approx(sum(served) / len(texts))
    json.dumps(report.to_dict())


def test_a_prompt_that_fitted_nobody_counts_for_the_nearest_expert(log: Path, tmp_path: Path) -> None:
    with log.open("ab") as file:
        file.writelines(map(logged, ("hi", "ok thanks")))
    rows = list(read_rows([log], on_damage=DamagedLines()))
    unfit = [row for row in rows if row["expert"] is None]
    assert len(unfit) == 2 and all(row["abstained"] is True and row["in_domain"] is not None for row in unfit)
    nearest = [LoggedDecision.read(row) for row in unfit]
    assert [row.expert for row in nearest if row] == [made.router().route(str(row["text"])).best for row in unfit]
    folder = made.router().save(tmp_path / "router")
    told = run_json("eval", folder, "--replay", log, "--errors", "9")
    assert (told["damaged"], told["agreement"], told["moved"]) == (0, 1.0, [])
    assert told["abstained_before"] == told["abstained_after"] == told["abstained_both"] >= len(unfit)
    for wrong in ({"ranking": []}, {"ranking": [7]}, {"ranking": None}, {"abstained": False}):
        with pytest.raises(InputError, match="no decision"):
            LoggedDecision.read({**unfit[0], **wrong})


def test_costs_are_the_same_where_nothing_moves_and_follow_the_prices_where_it_does() -> None:
    dear, cheap = Price(input_per_1m=100, output_per_1m=200), Price(input_per_1m=1, output_per_1m=2)
    spent = {"law": 10 * 100e-6 + 5 * 200e-6, "maths": 10 * 1e-6 + 5 * 2e-6}
    rows = [json.loads(logged("Is my contract void?", price=dear)), json.loads(logged("Solve 3x = 12.", price=cheap))]
    rows[0]["cost"], rows[1]["cost"] = spent["law"], spent["maths"]
    same = replay_log(made.router(), rows).costs
    assert same is not None and same.prompts == 2
    assert same.candidate == pytest.approx(same.served) == pytest.approx(sum(spent.values()))
    rows[1] |= {"expert": "law", "served": "law", "cost": spent["law"], "price": rows[0]["price"]}
    rows.append(json.loads(logged("What is 12 times 8?", price=cheap)) | {"cost": spent["maths"]})
    moved = replay_log(made.router(), rows).costs
    assert moved is not None and moved.served - moved.candidate == pytest.approx(spent["law"] - spent["maths"])
    free = [json.loads(logged("Solve 3x = 12.", price=Price()))]
    assert replay_log(made.router(), free).costs is None


def test_damaged_lines_are_counted_and_passed_over_up_to_a_limit(log: Path, tmp_path: Path) -> None:
    broken = [b'{"expert": "law", "ranki', b"\xff\xfe", b"[1, 2]", b'{"expert": "law"}', b"7"]
    packed = tmp_path / "damaged.jsonl.gz"
    packed.write_bytes(gzip.compress(b"\n".join([*broken, log.read_bytes()])))
    damage = DamagedLines()
    report = replay_log(made.router(), read_rows([packed], on_damage=damage), damage=damage)
    assert report.prompts == len(QUESTIONS) and damage.lines == len(broken)
    assert "damaged.jsonl.gz:1: not valid JSON" in damage.first
    few = DamagedLines(most=2)
    with pytest.raises(InputError, match="more than 2 lines"):
        replay_log(made.router(), read_rows([packed], on_damage=few), damage=few)


# the command ----------------------------------------------------------------------------------------------------


def test_the_command_tells_what_would_change(log: Path, candidate: Path) -> None:
    answer = run_json("eval", candidate, "--replay", log, "--errors", "1")
    before = [made.router().route(text).expert for text in QUESTIONS]
    lost = before.count("maths")
    assert answer["changes"]["maths"] == {"before": lost, "after": 0, "kept": 0, "lost": lost, "gained": 0}
    assert answer["agreement"] == pytest.approx(1 - lost / len(QUESTIONS)) and answer["damaged"] == 0
    (moved,) = answer["moved"]
    assert (moved["before"], moved["expert"], moved["text"]) == ("maths", "law", QUESTIONS[0])
    shown = run("eval", candidate, "--replay", log, "--errors", "1").stdout
    for part in ("agreement", "as served", "gained", "candidate →", "Confidence", "Abstained", QUESTIONS[0]):
        assert part in shown
    assert run("eval", candidate, "--replay", log, "-q").stdout.count("\n") == 1


def test_moved_prompts_are_listed_with_the_surest_first_wherever_they_stand(log: Path, candidate: Path) -> None:
    told = run_json("eval", candidate, "--replay", log, "--errors", "9")["moved"]
    turned = log.with_name("turned.jsonl")
    turned.write_bytes(b"".join(reversed(log.read_bytes().splitlines(keepends=True))))
    assert len(told) > 1
    for order in (told, run_json("eval", candidate, "--replay", turned, "--errors", "9")["moved"]):
        sure = [(not row["abstained"], row["confidence"]) for row in order]
        assert sure == sorted(sure, reverse=True)
    first = run_json("eval", candidate, "--replay", turned, "--errors", "1")["moved"]
    assert [row["confidence"] for row in first] == [told[0]["confidence"]]


def test_the_command_says_what_it_left_out(log: Path, candidate: Path) -> None:
    without = json.loads(log.read_bytes().splitlines()[0])
    del without["text"]
    with log.open("a") as file:
        file.write(json.dumps(without) + '\n{"half')
    result = run("eval", candidate, "--replay", log)
    assert "1 rows without text left out" in " ".join(result.stdout.split())
    assert "1 lines are damaged" in " ".join(result.stderr.split())


def test_the_command_refuses_what_it_cannot_do(log: Path, candidate: Path, tmp_path: Path) -> None:
    assert "cannot be combined with --replay" in wrong_call("eval", candidate, f"law={log}", "--replay", log)
    assert "cannot be combined with --replay" in wrong_call("eval", candidate, "--outcomes", log, "--replay", log)
    assert "no such file" in complaint("eval", candidate, "--replay", tmp_path / "decision.jsonl")
    (tmp_path / "empty.jsonl").touch()
    assert "there are no rows" in complaint("eval", candidate, "--replay", tmp_path / "empty.jsonl")


def test_what_a_gateway_logged_is_replayed_to_the_letter(tmp_path: Path) -> None:
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
    found = run_json("eval", tmp_path / "router", "--replay", log)
    assert found["prompts"] == 3 and found["agreement"] == 1.0 and found["served_agreement"] == pytest.approx(1 / 3)
    assert found["confidence_before"] == pytest.approx(found["confidence_after"], abs=1e-6)


def test_a_log_of_version_0_1_is_replayed() -> None:
    row = {
        "text": "prove the theorem",
        "expert": "maths",
        "ranking": [{"expert": "maths", "share": 0.9}],
        "confidence": 0.9,
        "abstained": True,
        "reason": "unlike every domain",
        "unlike": True,
    }
    report = replay_log(Router.fit({"maths": ["prove it"], "law": ["sue him"]}, embedding=tiny.embedding()), [row])
    assert (report.prompts, report.abstained_before, report.confidence_before) == (1, 1, 0.9)
    assert report.confidence_after is not None and report.expected_score_before is None


def test_expected_scores_are_compared_with_expected_scores_alone() -> None:
    scored = [{"text": text, "scores": {"maths": 3.0, "law": 2.0}} for text in QUESTIONS]
    outcomes, domains = Router.fit_outcomes(scored, embedding=tiny.embedding()), made.router()
    decision = outcomes.route(QUESTIONS[0])
    record = made.record(
        decision=decision, expected_score=decision.expected_score, margin=decision.margin, text=QUESTIONS[0]
    )
    row = json.loads(format_decision_line(record, prompts=True))
    assert row["confidence"] is None and row["expected_score"] == row["ranking"][0]["expected_score"]
    same, other = replay_log(outcomes, [row]), replay_log(domains, [row])
    assert same.expected_score_before == pytest.approx(same.expected_score_after, abs=1e-6)
    assert (same.confidence_before, same.confidence_after, same.more_confident, same.less_confident) == (
        None,
        None,
        0,
        0,
    )
    assert (other.expected_score_before, other.expected_score_after, other.confidence_after) == (None, None, None)
    assert replay_log(outcomes, [json.loads(logged(QUESTIONS[0]))]).confidence_before is None
