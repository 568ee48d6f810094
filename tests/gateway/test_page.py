"""The page, in a real browser in front of a real gateway: what people see is what the router says."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import STRONGEST, Browser, open_browser
from running_gateway import ANSWER, TEXTS, Running, event, failing, outcome_router, running, small_router
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ir3de import EntropyTopK

TOKEN = "the-admin-token"
PROMPT = "Is a contract void when my landlord cannot boil an egg?"
PHONE = (390, 844)

browser_test = pytest.mark.browser


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IR3DE_ADMIN_TOKEN", TOKEN)
        with running(tmp_path_factory.mktemp("page")) as found:
            yield found


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def page(gateway: Running, chromium: Browser) -> Iterator[Browser]:
    """The page, opened; at the end nothing was complained about, and nobody else was asked for anything."""
    chromium.size(1280, 900)
    chromium.prefer(prefers_color_scheme="light", prefers_reduced_motion="reduce")
    gateway.upstream.behaviour.clear()
    chromium.open(f"{gateway.url}/#admin={TOKEN}")
    chromium.until(lambda: chromium.all(".word"))
    yield chromium
    assert chromium.console() == []
    assert {address.split("/", 3)[2] for address in chromium.addresses()} == {gateway.url.split("/")[2]}


def typed(page: Browser, text: str) -> None:
    """Type a prompt, and wait until the page has followed."""
    page.type("#prompt", text)
    page.until(lambda: page.run("return document.documentElement.dataset.ready") == text)


def words(page: Browser) -> list[dict[str, Any]]:
    script = """return [...document.querySelectorAll('.word')].map(one => ({
        text: one.textContent, speaks_for: one.dataset.for, counted: !one.classList.contains('filtered'),
        colour: getComputedStyle(one).getPropertyValue('--colour'), painted: getComputedStyle(one).backgroundColor,
        strength: Number(one.style.getPropertyValue('--strength'))}))"""
    found: list[dict[str, Any]] = page.run(script)
    return found


# the playground -------------------------------------------------------------------------------------------------


@browser_test
def test_every_word_has_the_colour_of_whom_it_speaks_for_and_is_as_strong_as_its_contribution(page: Browser) -> None:
    typed(page, PROMPT)
    explanation, shown = small_router().explain(PROMPT), words(page)
    best, other = explanation.compared[:2]
    sides = [other if word.contribution < 0 else best for word in explanation.words]
    assert [(one["speaks_for"], one["counted"]) for one in shown] == [(side, True) for side in sides]
    assert set(sides) == {best, other}
    assert [one["text"] for one in shown] == [word.text.strip() for word in explanation.words]
    assert page.run("return document.querySelector('#words').textContent") == PROMPT
    legend = dict(
        page.run("""return [...document.querySelectorAll('#legend .name')].map(
        one => [one.textContent, getComputedStyle(one.querySelector('.swatch')).getPropertyValue('--colour')])""")
    )
    assert list(legend) == [best, other] and legend[best] != legend[other]
    assert [one["colour"] for one in shown] == [legend[side] for side in sides]
    strengths = [abs(word.contribution) for word in explanation.words]
    strongest = max(strengths)
    assert [one["strength"] for one in shown] == pytest.approx(
        [STRONGEST * strength / strongest for strength in strengths], abs=0.001
    )
    assert len({one["painted"] for one in shown}) > 3
    decision = small_router().route(PROMPT)
    assert page.text("#winner") == page.text("#send-to") == decision.expert
    rows = page.run("return [...document.querySelectorAll('#ranking .name')].map(one => one.textContent)")
    assert rows == [expert for expert, _ in decision.ranking]


@browser_test
def test_it_says_that_none_fits_and_who_is_nearest(page: Browser, gateway: Running) -> None:
    nearest = small_router().route("hi").best
    typed(page, "hi")
    assert page.text("#winner") == "none fits" and page.text("#send-to") == nearest
    assert page.text("#sure") == (
        f"the prompt has no content of its own; 0 % likely to be in domain; the nearest expert is {nearest}"
    )
    assert not page.all("#ranking .first")
    gateway.upstream.asked.clear()
    page.find("#send").click()
    page.until(lambda: page.text("#answer-text") == "".join(ANSWER) and not page.find("#stop").is_displayed())
    assert gateway.upstream.asked == [nearest] and "Becauseabstained" in page.text("#answer-facts")
    typed(page, PROMPT)
    assert page.text("#winner") == small_router().route(PROMPT).expert


@browser_test
def test_it_says_that_the_default_expert_gets_what_fits_nobody(chromium: Browser, tmp_path: Path) -> None:
    with running(tmp_path, routing={"default": "cooking", "threshold": 0.999}) as gateway:
        chromium.open(gateway.url)
        typed(chromium, "hi")
        assert chromium.text("#winner") == chromium.text("#send-to") == "cooking"
        assert chromium.text("#sure") == (
            "default expert: the prompt has no content of its own; 0 % likely to be in domain"
        )
        typed(chromium, PROMPT)
        assert chromium.text("#sure").startswith("default expert: a confidence of ")


@browser_test
def test_words_without_which_none_would_fit_are_told(chromium: Browser, tmp_path: Path) -> None:
    text = "Is my contract void?"
    decision = small_router().route(text)
    with running(tmp_path, routing={"threshold": (decision.confidence or 0.0) - 1e-4}) as gateway:
        flips = gateway.gateway.live.snapshot.router.flips(text)
        assert None in flips.alone.values()
        chromium.open(gateway.url)
        typed(chromium, text)
        assert chromium.text("#winner") == decision.expert and "none would fit" in chromium.text("#flip")
        named = chromium.run("return [...document.querySelectorAll('.word.alone')].map(one => one.ariaLabel)")
        assert len(named) == len(flips.alone) and any("without it none fits" in label for label in named)


@browser_test
def test_the_slider_says_how_many_tokens_vote(page: Browser) -> None:
    def counted(selector: EntropyTopK) -> int:
        return sum(word.counted for word in small_router().with_selector(selector).explain(PROMPT).words)

    typed(page, PROMPT)
    assert not page.find("#k").is_displayed()
    page.find("[for=selector-entropy]").click()
    page.until(lambda: sum(one["counted"] for one in words(page)) == counted(EntropyTopK(10)))
    page.find("#k").send_keys("\ue012" * 7)  # seven times to the left
    page.until(lambda: page.text("#k-shown") == "3" and "3 of" in page.text("#cost-of-it"))
    wanted = small_router().with_selector(EntropyTopK(3)).explain(PROMPT)
    assert [one["counted"] for one in words(page)] == [word.counted for word in wanted.words]
    assert page.text("#winner") == wanted.decision.expert
    page.run("document.querySelector('#scorer').value = 'paper'")
    page.run("document.querySelector('#scorer').dispatchEvent(new Event('change'))")
    page.until(lambda: "as it is served (average, as fitted)" in page.text("#reading-note"))


@browser_test
def test_the_words_that_would_turn_the_decision_are_underlined_and_named(page: Browser) -> None:
    turning = next(text for text in ("egg contract", "boil a contract", PROMPT) if small_router().flips(text).alone)
    typed(page, turning)
    flips = small_router().flips(turning)
    underlined = page.run("return [...document.querySelectorAll('.word.alone')].map(one => Number(one.dataset.index))")
    assert underlined == sorted(flips.alone)
    names = [one.text.strip() for one in small_router().explain(turning).words]
    said = page.text("#flip")
    assert said.startswith(f"Without “{names[flips.together[0]]}” this would go to {flips.other}.")


@browser_test
def test_words_are_walked_by_keys_and_tell_their_signed_scores(page: Browser) -> None:
    typed(page, "boil a contract")
    page.run("document.querySelector('.word').focus()")
    page.press("\ue014", "\ue014")  # two to the right
    explanation = small_router().explain("boil a contract")
    word = explanation.words[2]
    assert page.find("#bubble").is_displayed()
    said = page.text("#bubble").replace("−", "-")
    assert f"contract {word.contribution:+.2f} for {explanation.compared[0]} over {explanation.compared[1]}" in said
    for name, score in zip(explanation.compared, word.scores, strict=True):
        assert name in said and f"{score:+.2f}" in said
    page.press("\ue00c")
    assert not page.find("#bubble").is_displayed()


@browser_test
def test_the_last_prompt_typed_is_the_one_shown_and_examples_are_a_click_away(page: Browser) -> None:
    for text in ("Solve x", "Is my contract void", "How do I boil an egg"):
        page.type("#prompt", text)
    page.until(lambda: page.text("#winner") == "cooking")
    page.find(".chip[title*=irrational]").click()
    page.until(lambda: "irrational" in page.text("#words"))
    typed(page, "<img src=x onerror=alert(1)> <b>egg</b>")
    assert page.text("#words") == "<img src=x onerror=alert(1)> <b>egg</b>"
    assert page.all("#words img, #words b, #flip img") == []


@browser_test
def test_sending_streams_the_answer_of_the_expert_that_was_announced(page: Browser, gateway: Running) -> None:
    typed(page, "Is my contract void?")
    gateway.upstream.asked.clear()
    page.find("#send").click()
    page.until(lambda: page.text("#answer-text") == "".join(ANSWER) and not page.find("#stop").is_displayed())
    facts = page.text("#answer-facts")
    assert gateway.upstream.asked == ["law"]
    assert "Expertlaw" in facts and "First token" in facts and "Routed in" in facts
    sent = json.loads(gateway.upstream.bodies[-1])
    assert sent["stream"] is True and sent["messages"] == [{"role": "user", "content": "Is my contract void?"}]
    gateway.upstream.behaviour["law"] = failing(503)
    page.find("#prompt").send_keys("\ue009\ue007")  # Control and Enter
    page.until(lambda: "Afterlaw failed" in page.text("#answer-facts"))
    assert "Expertlaw" not in page.text("#answer-facts")


@browser_test
def test_expected_scores_are_shown_as_scores(chromium: Browser, tmp_path: Path) -> None:
    outcome_router().save(tmp_path / "router")
    with running(tmp_path) as gateway:
        chromium.open(gateway.url)
        typed(chromium, "Is my contract void?")
        expected = gateway.gateway.live.snapshot.router.route("Is my contract void?").expected_score
        assert chromium.text("#sure") == f"expected score {expected:.2f}"
        assert chromium.text("#ranking .value") == f"{expected:.2f}"
        chromium.find("#send").click()
        chromium.until(lambda: chromium.text("#answer-text") == "".join(ANSWER))
        facts = chromium.text("#answer-facts")
        assert f"Expected score{expected:.2f}" in facts and "Confidence" not in facts


@browser_test
def test_stopping_leaves_the_expert_and_keeps_what_was_said(page: Browser, gateway: Running) -> None:
    left = asyncio.Event()

    async def endless(request: Request, asked: dict[str, Any]) -> Response:
        async def events() -> Any:
            try:
                while True:
                    yield event({"choices": [{"index": 0, "delta": {"content": "and "}, "finish_reason": None}]})
                    await asyncio.sleep(0.02)
            finally:
                left.set()

        return StreamingResponse(events(), media_type="text/event-stream")

    gateway.upstream.behaviour["law"] = endless
    typed(page, "Is my contract void?")
    page.find("#send").click()
    page.until(lambda: "and and" in page.text("#answer-text"))
    page.find("#stop").click()
    page.until(lambda: page.text("#answer-state") == "Stopped.")
    page.until(left.is_set)
    assert page.find("#send").is_enabled() and page.text("#answer-text").startswith("and and")


# the other views ------------------------------------------------------------------------------------------------


@browser_test
def test_tabs_are_turned_by_keys(page: Browser) -> None:
    page.find("#tab-playground").click()
    page.press("\ue014")
    assert page.run("return document.activeElement.id") == "tab-traffic"
    assert page.find("#traffic").is_displayed() and not page.find("#playground").is_displayed()
    page.press("\ue010")
    assert page.run("return document.activeElement.id") == "tab-experts"
    page.press("\ue014")
    assert page.find("#playground").is_displayed()
    chosen = page.run("return [...document.querySelectorAll('[role=tab]')].map(t => [t.ariaSelected, t.tabIndex])")
    assert chosen == [["true", 0], ["false", -1], ["false", -1]]


@browser_test
def test_traffic_shows_what_went_through(page: Browser, gateway: Running) -> None:
    typed(page, "How do I boil an egg?")
    page.find("#send").click()
    page.until(lambda: page.text("#answer-text") == "".join(ANSWER))
    page.find("#tab-traffic").click()
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


@browser_test
def test_an_expert_is_added_and_removed(page: Browser, gateway: Running, tmp_path: Path) -> None:
    page.find("#tab-experts").click()
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
    page.find("#tab-playground").click()
    typed(page, "When do I reef the mainsail?")
    assert page.text("#winner") == "sailing"
    page.find("#tab-experts").click()
    page.find("[aria-label='Remove sailing']").click()
    assert page.find("#confirm").is_displayed()
    page.press("\ue00c")  # Escape: nothing is removed
    assert not page.find("#confirm").is_displayed() and len(page.all(".person")) == len(TEXTS) + 1
    page.find("[aria-label='Remove sailing']").click()
    page.find("#confirm-yes").click()
    page.until(lambda: len(page.all(".person")) == len(TEXTS))
    assert "sailing" not in gateway.gateway.live.snapshot.experts


@browser_test
def test_keys_come_from_the_address_or_are_asked_for(page: Browser, gateway: Running) -> None:
    assert TOKEN not in page.driver.current_url
    page.run("sessionStorage.clear()")
    page.find("#tab-experts").click()
    page.until(lambda: page.find("#keys").is_displayed())
    page.type("#admin-token", TOKEN)
    page.press("\ue007")
    page.until(lambda: page.all(".person"))
    assert not page.find("#experts-notice").is_displayed()
    assert [line for line in page.console() if "401" not in line] == []  # the refusal itself is told on the console


@browser_test
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_follows_the_system_in_light_and_dark(page: Browser, scheme: str) -> None:
    page.size(*PHONE)
    page.prefer(prefers_color_scheme=scheme)
    typed(page, f"{PROMPT} {'long' * 40}")
    for view in ("playground", "traffic", "experts"):
        page.find(f"#tab-{view}").click()
        page.until(lambda view=view: page.find(f"#{view}").is_displayed())
        assert page.run("return document.documentElement.scrollWidth") <= PHONE[0], view
    brightness = "return Number(getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/)[0]) > 128"
    assert page.run(brightness) is (scheme == "light")
    page.find("#theme").click()
    assert page.run(brightness) is (scheme == "dark")
