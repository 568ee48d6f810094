"""A candidate router beside the live one: both decide, chance says who serves each conversation, the journal knows."""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from candidate_routers import read_rows, save_candidate, trying
from configurations import GOOD, parsed
from ir3de import Router
from ir3de.errors import InputError, IR3DEError
from ir3de.traffic import Feedback, Journal, run_test
from ir3de_gateway.config.findings import ConfigError
from ir3de_gateway.validation import check_consistency
from raw_sockets import ask, chat
from running_gateway import QUESTIONS, TEXTS, Running, failing, running

LAW = QUESTIONS["law"]
SIGMAS = 4.0


def digests(gateway: Running) -> tuple[str, str]:
    snapshot = gateway.gateway.live.snapshot
    assert snapshot.candidate is not None
    return snapshot.digest, snapshot.candidate.digest


def ask_in(gateway: Running, session: str, text: str = LAW, **headers: str) -> Any:
    return ask(gateway.url, chat(text), x_session_id=session, x_request_id=f"id-{session}", **headers)


def test_a_shadow_decides_and_never_serves(tmp_path: Path) -> None:
    with trying(tmp_path) as gateway:
        live, candidate = digests(gateway)
        for number in range(5):
            got = ask_in(gateway, f"s{number}")
            assert got.headers["x-ir3de-expert"] == "law" and got.headers["x-ir3de-candidate"] == "cooking"
            assert got.headers["x-ir3de-router"] == live[:16] and "x-ir3de-why" not in got.headers
        same = ask_in(gateway, "maths", QUESTIONS["maths"])
        assert same.headers["x-ir3de-candidate"] == "maths"
        rows = read_rows(gateway, tmp_path, 6)
        scraped = ask(gateway.url, path="/metrics").body.decode()
    row = rows["id-s0"]
    assert (row.router, row.decided, row.served) == (live, "law", "law")
    assert (row.candidate, row.candidate_expert, row.arm, row.propensity) == (candidate, "cooking", "", 1.0)
    assert 'ir3de_candidate_requests_total{result="live"} 5.0' in scraped
    assert 'ir3de_candidate_requests_total{result="agree"} 1.0' in scraped


def test_a_canary_serves_its_share_and_the_journal_has_the_chance(tmp_path: Path) -> None:
    share, trials = 0.3, 300
    with trying(tmp_path, mode="canary", share=share) as gateway:
        live, candidate = digests(gateway)
        answers = {f"id-s{number}": ask_in(gateway, f"s{number}") for number in range(trials)}
        rows = read_rows(gateway, tmp_path, trials)
    got = {row.arm: row for row in rows.values()}
    tried = [row for row in rows.values() if row.arm == "candidate"]
    answer = answers[tried[0].id]
    assert abs(len(tried) / trials - share) <= SIGMAS * sqrt(share * (1 - share) / trials)
    for arm, served, chance in (("candidate", "cooking", share), ("live", "law", 1 - share)):
        row = got[arm]
        assert (row.served, row.propensity) == (served, pytest.approx(chance))
        assert (row.router, row.decided, row.candidate, row.candidate_expert) == (live, "law", candidate, "cooking")
    assert answer.headers["x-ir3de-router"] == candidate[:16]  # the router that decided
    assert answer.headers["x-ir3de-expert"] == answer.headers["x-ir3de-decided"] == "cooking"


def test_a_conversation_keeps_its_router_on_every_gateway(tmp_path: Path) -> None:
    """By its session, else by its first turn: the same after a restart, and in a gateway elsewhere."""
    openings = [f"{LAW} Case {number}." for number in range(20)]
    more = [
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "Is the contract of my landlord void?"},
    ]
    found: list[list[str]] = []
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        with trying(tmp_path / place, mode="canary", share=0.5) as gateway:
            once = [ask(gateway.url, chat(text)).headers["x-ir3de-expert"] for text in openings]
            long = [{"model": "auto", "messages": [{"role": "user", "content": text}, *more]} for text in openings]
            again = [ask(gateway.url, body).headers["x-ir3de-expert"] for body in long]
            named = [ask_in(gateway, f"s{n}").headers["x-ir3de-expert"] for n in range(20)]
            found.append([*once, *named])
            assert once == again
            rows = list(read_rows(gateway, tmp_path / place, 60).values())
            assert len({row.conversation for row in rows}) == 40
    assert found[0] == found[1] and set(found[0]) == {"law", "cooking"}


def test_the_test_reads_what_the_gateway_writes(tmp_path: Path) -> None:
    """People like the live router's answers only: the candidate is worse."""
    with trying(tmp_path, mode="canary", share=0.5) as gateway:
        _, candidate = digests(gateway)
        for number in range(60):
            ask_in(gateway, f"s{number}")
        rows = read_rows(gateway, tmp_path, 60)
    with Journal.open(tmp_path / "kept") as journal:
        for row in rows.values():
            journal.put_feedback(row.id, Feedback("alice", row.time, score=float(row.served == "law")))
        report = run_test(journal.read(), candidate).report()
    assert (report.verdict, report.requests, report.disagreements, report.observed) == ("worse", 60, 60, 60)


# neighbours ---------------------------------------------------------------------------------------------------------


def find_opening(gateway: Running, expert: str) -> str:
    """A first turn whose conversations that expert answers: law is the live router's choice, cooking the other one."""
    texts = (f"{LAW} Case {number}." for number in range(100))
    return next(one for one in texts if ask(gateway.url, chat(one)).headers["x-ir3de-expert"] == expert)


def test_pins_of_both_arms_hold(tmp_path: Path) -> None:
    with trying(tmp_path, mode="canary", share=0.5) as gateway:
        first = {f"s{n}": ask_in(gateway, f"s{n}").headers["x-ir3de-expert"] for n in range(20)}
        for expert in ("law", "cooking"):
            session = next(name for name, found in first.items() if found == expert)
            after = ask(gateway.url, chat("Why is that?"), x_session_id=session, x_request_id=f"after-{expert}")
            assert (after.headers["x-ir3de-expert"], after.headers["x-ir3de-why"]) == (expert, "pinned")
        rows = read_rows(gateway, tmp_path, 22)
        for name in ("after-law", "after-cooking"):
            assert (rows[name].arm, rows[name].propensity) == ("", 1.0)  # a pin is no chance


def test_what_is_not_routed_is_not_tried(tmp_path: Path) -> None:
    with trying(tmp_path, mode="canary", share=0.5) as gateway:
        named = ask(gateway.url, chat(LAW, "maths"))
        assert "x-ir3de-candidate" not in named.headers
        skipped = ask(gateway.url, {**chat(LAW), "ir3de": {"skip": True}})
        assert "x-ir3de-candidate" not in skipped.headers


def test_streams_and_what_clients_allow(tmp_path: Path) -> None:
    with trying(tmp_path, mode="canary", share=0.5) as gateway:
        text = find_opening(gateway, "cooking")
        asked = len(gateway.upstream.asked)
        stream = ask(gateway.url, {**chat(text), "stream": True}, x_request_id="stream")
        assert stream.headers["x-ir3de-expert"] == "cooking" and b"[DONE]" in stream.body
        only = ask(gateway.url, chat(text), x_request_id="only", x_ir3de_allow="law,maths")
        assert (only.status, only.headers["x-ir3de-expert"]) == (200, "law")  # the candidate's expert may not answer
        rows = read_rows(gateway, tmp_path, asked + 2)
    assert (rows["stream"].arm, rows["stream"].served) == ("candidate", "cooking")
    assert (rows["only"].arm, rows["only"].propensity, rows["only"].candidate_expert) == ("", 1.0, "cooking")


def test_exploring_leaves_disagreements_alone(tmp_path: Path) -> None:
    """Their scores compare the routers; where both agree, a share is explored as before."""
    routing = {"explore": 0.5}
    with trying(tmp_path, routing, mode="shadow") as gateway:
        for number in range(30):
            ask_in(gateway, f"s{number}", "Why does the sum of my landlord not rise?")
        rows = read_rows(gateway, tmp_path, 30).values()
    for row in rows:
        assert row.arm in (("live", "explore") if row.decided == row.candidate_expert else ("",))


def test_a_failure_decides_where_it_happens(tmp_path: Path) -> None:
    changes = {"experts": {"cooking": {"fallbacks": ["maths"]}}}
    with trying(tmp_path, changes=changes, mode="canary", share=0.5) as gateway:
        text = find_opening(gateway, "cooking")
        asked = len(gateway.upstream.asked)
        gateway.upstream.behaviour["cooking"] = failing(500)
        got = ask(gateway.url, chat(text), x_request_id="again")
        row = read_rows(gateway, tmp_path, asked + 1)["again"]
    assert row.served == got.headers["x-ir3de-expert"] != "cooking"
    assert (row.arm, row.propensity, row.candidate_expert) == ("", 1.0, "cooking")


def test_the_cache_keeps_the_arms_apart(tmp_path: Path) -> None:
    with trying(tmp_path, changes={"cache": {"ttl": 60}}, mode="canary", share=0.5) as gateway:
        got = [ask_in(gateway, f"s{number}").headers for number in range(30)]
        assert {one["x-ir3de-expert"] for one in got} == {"law", "cooking"}
        assert sorted(gateway.upstream.asked) == ["cooking", "law"]  # once each
        for one in got:
            router = digests(gateway)[one["x-ir3de-expert"] == "cooking"]
            assert one["x-ir3de-router"] == router[:16]


def test_a_candidate_that_cannot_decide_fails_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with trying(tmp_path, mode="canary", share=0.9) as gateway:
        candidate = gateway.gateway.live.snapshot.candidate
        assert candidate is not None

        def fail(*_: Any, **__: Any) -> None:
            raise RuntimeError("no")

        monkeypatch.setattr(type(candidate.router), "route", fail_for(candidate.router, fail))
        got = ask_in(gateway, "s")
        assert (got.status, got.headers["x-ir3de-expert"]) == (200, "law")
        assert 'ir3de_candidate_requests_total{result="failed"} 1.0' in ask(gateway.url, path="/metrics").body.decode()


def fail_for(router: Router, fail: Any) -> Any:
    route = Router.route

    def choose(self: Router, *arguments: Any, **named: Any) -> Any:
        return fail() if self is router else route(self, *arguments, **named)

    return choose


# bad input ----------------------------------------------------------------------------------------------------------


def test_a_canary_without_feedback_is_an_error() -> None:
    text = f"{GOOD}routing: {{candidate: {{router: candidate, mode: canary}}}}\n"
    with pytest.raises(ConfigError, match=r"routing\.candidate.*feedback\.folder"):
        parsed(text)
    assert parsed(f"{text}feedback: {{folder: kept}}\n").routing.candidate is not None
    shadow = parsed(text.replace("canary", "shadow"))
    assert [one.where for one in check_consistency(shadow, None)] == ["routing.candidate"]


@pytest.mark.parametrize("wrong", ["share: 0", "share: 1", "level: 0", "mode: blue", "promote: maybe", "router: null"])
def test_wrong_values_are_named(wrong: str) -> None:
    name = wrong.partition(":")[0]
    given = wrong if name == "router" else f"router: candidate, {wrong}"
    with pytest.raises(ConfigError, match=rf"routing\.candidate\.{name}"):
        parsed(f"{GOOD}routing: {{candidate: {{{given}}}}}\nfeedback: {{folder: kept}}\n")


def test_a_candidate_with_experts_that_nobody_can_ask_is_refused(tmp_path: Path) -> None:
    save_candidate(tmp_path, Router.fit({**TEXTS, "history": ["When did Rome fall?", "Who was the first emperor?"]}))
    with pytest.raises(InputError, match="knows history, but there is no such expert"), trying(tmp_path):
        pass


def test_a_candidate_may_lack_experts(tmp_path: Path) -> None:
    """It sends its prompts elsewhere, which the test judges."""
    save_candidate(tmp_path, Router.fit({name: TEXTS[name] for name in ("maths", "cooking")}))
    with trying(tmp_path) as gateway:
        assert ask_in(gateway, "s").headers["x-ir3de-candidate"] in ("maths", "cooking")


def test_a_candidate_that_is_missing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "candidate").mkdir()
    with pytest.raises(IR3DEError, match="no router at"), trying(tmp_path):
        pass


def test_the_live_router_as_candidate_is_not_tried(tmp_path: Path) -> None:
    with running(tmp_path):
        pass
    routing = {"candidate": {"router": str(tmp_path / "router")}}
    with running(tmp_path, routing=routing) as gateway:
        assert "x-ir3de-candidate" not in ask_in(gateway, "s").headers
