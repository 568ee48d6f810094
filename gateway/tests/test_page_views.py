"""The other views of the page: chat, traffic, experts, keys, and the token."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from browser import Browser
from client_keys import key, secret, write_keys
from page_sessions import TOKEN, chromium, gateway, page, say, send, show  # noqa: F401 - three of them are fixtures
from running_gateway import ANSWER, TEXTS, Running, Upstream, failing, running, served, small_router

pytestmark = pytest.mark.browser


# chat ---------------------------------------------------------------------------------------------------------------


def test_a_conversation_shows_turn_by_turn_who_answers_and_why(page: Browser, gateway: Running) -> None:
    show(page, "chat")
    assert not page.find("#chat-decision").is_displayed() and not page.find("#chat-send").is_enabled()
    gateway.upstream.asked.clear()
    turns = ["Can my landlord evict me?", "Ok, and how long does that take?", "How do I boil an egg?"]
    announced = [send(page, text) for text in turns]
    assert announced == ["law", "law", "cooking"] == gateway.upstream.asked
    who = page.run("return [...document.querySelectorAll('.turn .who')].map(one => one.textContent)")
    assert [one.partition(" %")[2] for one in who] == [
        " · by its own words",
        " · stayed: turn 1 decides",
        " · new subject",
    ]
    assert [one.text for one in page.all(".turn .text")] == ["".join(ANSWER)] * 3
    # the words that decide have colours, and a follow-up has none that do
    painted = "return [...document.querySelectorAll('.message')].map(one => one.querySelectorAll('.word').length)"
    assert [number > 0 for number in page.run(painted)] == [True, False, True]
    assert page.run("return [...document.querySelectorAll('.message')].map(m => m.lastChild && m.textContent)") == [
        f"You: {text}" for text in turns
    ]
    sent = json.loads(gateway.upstream.bodies[-1])["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user", "assistant", "user"]
    page.find(".turn:nth-child(2) summary").click()
    said = page.text(".turn:nth-child(2) .why")
    assert "It stays with law: of all turns, turn 1 is the strongest sign of it." in said and "Expertlaw" in said
    assert small_router().explain(turns[0]).summary in said
    say(page, "and for how many minutes?")
    assert page.text("#chat-winner") == page.text("#chat-send b") == "cooking"
    assert "turn 3" in page.text("#chat-why") and page.text("#chat-evidence .decides .name") == "Turn 3"
    page.find("#chat-new").click()
    assert page.all(".turn") == [] and page.find("#chat-empty").is_displayed()
    page.until(lambda: not page.find("#chat-decision").is_displayed())


def test_a_message_that_fails_is_no_part_of_the_chat_and_can_be_sent_again(page: Browser, gateway: Running) -> None:
    show(page, "chat")
    send(page, "Can my landlord evict me?")
    for name in TEXTS:
        gateway.upstream.behaviour[name] = failing(400)
    send(page, "Is my contract void?")
    assert page.find(".turn.failed .wrong").is_displayed()
    assert page.find("#chat-text").get_attribute("value") == "Is my contract void?"
    gateway.upstream.behaviour.clear()
    page.press("\ue007")
    page.until(lambda: len(page.all(".turn")) == 3 and not page.all(".turn.streaming"))
    asked = [message["content"] for message in json.loads(gateway.upstream.bodies[-1])["messages"]]
    assert asked == ["Can my landlord evict me?", "".join(ANSWER), "Is my contract void?"]
    chips = page.run("return [...document.querySelectorAll('#chat-examples .chip')].map(one => one.textContent)")
    assert chips[0] == "Follow-up" and set(chips[1:]) == set(TEXTS) - {"law"}
    assert [line for line in page.console() if "400" not in line] == []  # the refusal itself is told on the console


# traffic, experts, keys -----------------------------------------------------------------------------------------------


def test_traffic_shows_what_went_through(page: Browser, gateway: Running) -> None:
    show(page, "chat")
    send(page, "How do I boil an egg?")
    show(page, "traffic")
    count = (
        "return Number(document.querySelector('[data-expert=cooking] td.share span:nth-child(2)')?.textContent || 0)"
    )
    page.until(lambda: page.run(count) >= 1)
    before = page.run(count)
    body = json.dumps({"model": "cooking", "messages": [{"role": "user", "content": "An egg?"}]}).encode()
    headers = {"content-type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{gateway.url}/v1/chat/completions", body, headers)).close()
    page.until(lambda: page.run(count) == before + 1)  # without a click: it looks every two seconds
    assert len(page.all("#rate rect")) == 60 and len(page.all("#confidence rect")) == 10
    assert [one.text for one in page.all("#totals dt")] == ["Requests", "In flight", "Errors", "Cancelled", "Abstained"]
    heights = "return [...document.querySelectorAll('#rate rect')].map(one => Number(one.getAttribute('height')))"
    page.until(lambda: max(page.run(heights)) > 0)
    assert page.text("#history-note") == "Counted since this page was opened."
    assert "since the gateway started" in page.text("#totals")
    first = page.run("return document.querySelector('#totals dd').textContent")
    page.run("document.querySelector('#period').value = 'recent'")
    page.run("document.querySelector('#period').dispatchEvent(new Event('change'))")
    assert "since this page was opened" in page.text("#totals")
    shown = page.run("return document.querySelector('#totals dd').textContent")
    assert 1 <= int(shown) <= int(first)
    for name in ("p50", "p99", "First token"):
        assert (
            page.run(f"return document.querySelector('[data-expert=cooking] [data-name=\"{name}\"]').textContent")
            != "–"
        )


def test_an_expert_is_added_and_removed(page: Browser, gateway: Running, tmp_path: Path) -> None:
    show(page, "experts")
    page.until(lambda: len(page.all(".person")) == len(TEXTS))
    assert [one.text for one in page.all(".health")] == ["Healthy"] * len(TEXTS)
    breaker = gateway.gateway.live.snapshot.experts["law"].breaker
    for _ in range(5):
        breaker.record_failure()
    page.until(lambda: "Circuit breaker open" in page.text("[data-expert=law] .health"))  # without a click
    breaker.record_beginning()
    page.find("#add-send").click()
    assert page.text("#add-wrong") == "The expert needs a name."
    prompts = tmp_path / "sailing.txt"
    prompts.write_text(
        "How do I tie a bowline?\nWhen do I reef the mainsail?\nWho gives way, port or starboard tack?\n"
    )
    page.find("#add-file").send_keys(str(prompts))
    assert page.find("#add-name").get_attribute("value") == "sailing"
    page.type("#add-url", f"{gateway.url}/v1")
    page.find("#add-send").click()
    page.until(lambda: len(page.all(".person")) == len(TEXTS) + 1)
    assert "3" in page.text("[data-expert=sailing] .facts")
    assert "sailing" in gateway.gateway.live.snapshot.router.experts
    show(page, "playground")
    page.type("#prompt", "When do I reef the mainsail?")
    page.until(lambda: page.text("#winner") == page.text("#send-to") == "sailing")
    show(page, "experts")
    page.find("[aria-label='Remove sailing']").click()
    assert page.find("#confirm").is_displayed()
    page.press("\ue00c")  # Escape: nothing is removed
    assert not page.find("#confirm").is_displayed() and len(page.all(".person")) == len(TEXTS) + 1
    page.find("[aria-label='Remove sailing']").click()
    page.find("#confirm-yes").click()
    page.until(lambda: len(page.all(".person")) == len(TEXTS))
    assert "sailing" not in gateway.gateway.live.snapshot.experts


def test_keys_show_their_limits_what_is_used_and_when_it_begins_anew(chromium: Browser, tmp_path: Path) -> None:
    limits: dict[str, Any] = {"requests_per_minute": 30, "budget_per_day": 0.01, "budget_per_month": 2.0}
    entries = [key("app", experts=["law"], **limits), key("free"), key("old", disabled=True)]
    file = write_keys(tmp_path / "keys.json", *entries)
    prices = {"law": {"price": {"input_per_1m": 100.0, "output_per_1m": 400.0}}}  # 0.003 an answer
    chromium.size(1280, 900)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IR3DE_ADMIN_TOKEN", TOKEN)
        with running(tmp_path, server={"keys_file": str(file)}, experts=prices) as gateway:
            chromium.open(f"{gateway.url}/#token={TOKEN}&key={secret('app')}")
            chromium.until(lambda: chromium.text("#send-to") == "law")  # the only one that it may ask
            chromium.find("#send").click()
            chromium.until(lambda: chromium.text("#answer-text") == "".join(ANSWER))
            show(chromium, "keys")
            chromium.until(lambda: len(chromium.all(".key")) == len(entries))
            app = chromium.text("[data-key=app]")
            assert "Active" in app and "May use experts, list models and get decisions; only law." in app
            meters = dict(chromium.run(METERS))
            assert meters["Cost today"] == "0.0030 of 0.01 (30 %)"
            assert meters["Cost this month"] == "0.0030 of 2.00 (< 1 %)"
            assert meters["Tokens, last minute"] == "15, no limit"
            used = int(meters["Requests, last minute"].split()[0])
            assert meters["Requests, last minute"] == f"{used} of 30 ({round(100 * used / 30)} %)" and used > 0
            assert "begins anew in" in app and "UTC" in app and "law115" in app  # an answer of 15 tokens
            assert "Switched off" in chromium.text("[data-key=old]")
            assert "No answers" in chromium.text("[data-key=free]")
            assert chromium.text("#keys-file").startswith("3 keys, from ")
            file.write_text("not a keys file")
            chromium.until(lambda: "so the previous keys stay in force" in chromium.text("#keys-problem"))
            assert len(chromium.all(".key")) == len(entries)
            write_keys(file, key("app"))
            chromium.until(lambda: chromium.text("#keys-file").startswith("1 key, from "))  # without a click
            assert not chromium.find("#keys-problem").is_displayed()


METERS = """return [...document.querySelectorAll('[data-key=app] .meters > div')].map(
    one => [one.querySelector('dt').textContent, one.querySelector('dd').textContent])"""


def test_a_replica_is_drained_and_used_again_with_a_click(chromium: Browser, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, served(Upstream().app()) as other:
        patch.setenv("IR3DE_ADMIN_TOKEN", TOKEN)
        replicas = [{"base_url": f"{other}/law/v1", "name": "left"}, {"base_url": f"{other}/maths/v1", "name": "right"}]
        with running(tmp_path, experts={"law": {"base_url": f"{other}/law/v1", "replicas": replicas}}) as gateway:
            chromium.open(f"{gateway.url}/#token={TOKEN}&experts")
            chromium.until(lambda: len(chromium.all(".replicas li")) == 2)
            assert chromium.text("[data-replica=left]") == "leftHealthy0 requests in flightDrain"
            chromium.find("[aria-label='Drain: left of law']").click()
            chromium.until(lambda: "Drained" in chromium.text("[data-replica=left]"))
            states = [one.state for one in gateway.gateway.live.snapshot.experts["law"].replicas]
            assert states == ["drained", "up"]
            chromium.find("[aria-label='Use again: left of law']").click()
            chromium.until(lambda: "Drained" not in chromium.text("[data-replica=left]"))
            assert not gateway.gateway.live.snapshot.experts["law"].replicas[0].is_drained
    assert len(chromium.all(".replicas")) == 1  # experts of one address show none


def test_the_link_opens_everything_and_leaves_no_token_behind(page: Browser) -> None:
    assert TOKEN not in page.driver.current_url and page.run("return sessionStorage.getItem('ir3de-admin')") == TOKEN
    assert page.run("return Object.values(localStorage).join() + document.cookie").find(TOKEN) == -1
    for view in ("traffic", "experts", "keys"):
        show(page, view)
        page.until(lambda view=view: not page.all(f"#{view}-locked:not([hidden]), #{view}-notice:not([hidden])"))
    assert not any(TOKEN in address for address in page.addresses())


def test_a_token_that_is_missing_or_wrong_is_said_to_be_so(page: Browser, gateway: Running) -> None:
    page.run("sessionStorage.clear()")
    show(page, "experts")
    page.until(lambda: "This view needs the admin token" in page.text("#experts-locked"))
    assert "it is the value of IR3DE_ADMIN_TOKEN, or in the link" in page.text("#experts-locked")
    assert not page.find("#experts-content").is_displayed()
    page.find("#experts-locked button").click()
    assert page.run("return document.activeElement.id") == "admin-token"
    page.type("#admin-token", "guessed")
    page.press("\ue007")
    page.until(lambda: "The admin token of this tab is wrong" in page.text("#experts-locked"))
    show(page, "keys")
    page.until(lambda: "The admin token of this tab is wrong" in page.text("#keys-locked"))
    page.find("#keys-locked button").click()
    page.type("#admin-token", TOKEN)
    page.find("#save-keys").click()
    page.until(lambda: not page.find("#keys-locked").is_displayed())
    show(page, "experts")
    page.until(lambda: page.all(".person"))
    assert [line for line in page.console() if "401" not in line] == []  # the refusals are told on the console


def test_where_there_is_no_token_the_variable_is_named(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROOT_TOKEN", raising=False)
    with running(tmp_path, server={"admin_token_env": "ROOT_TOKEN"}) as gateway:
        chromium.open(f"{gateway.url}/#experts")
        chromium.until(lambda: "set the variable ROOT_TOKEN" in chromium.text("#experts-locked"))
        assert chromium.all("#experts-locked button") == []  # which would not help
        show(chromium, "traffic")
        chromium.until(lambda: "Requests" in chromium.text("#totals"))  # needs no token
        body = json.dumps({"model": "auto", "messages": [{"role": "user", "content": "An egg?"}]}).encode()
        headers = {"content-type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(f"{gateway.url}/v1/chat/completions", body, headers)).close()
        chromium.until(lambda: "1 decisionsure" in chromium.text("#confidence .scale"))


# keyboard, phone, dark, axe -------------------------------------------------------------------------------------------
