"""The page, in a real browser in front of a real gateway: what people see is what the router says."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from browser import STRONGEST, Browser
from ir3de import EntropyTopK, Router
from page_sessions import TOKEN, chromium, gateway, page  # noqa: F401 - three of them are fixtures
from running_gateway import ANSWER, TEXTS, Running, event, failing, outcome_router, running, small_router

PROMPT = "Is my contract void if my dough does not rise?"
PHONE = (390, 844)

browser_test = pytest.mark.browser


def typed(page: Browser, text: str) -> None:
    """Type a prompt, and wait until the page has followed. Before, wait for the example that the page begins with."""
    page.until(lambda: page.run("return 'ready' in document.documentElement.dataset"))
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
    assert gateway.upstream.asked == [nearest]
    assert "Becauseabstained: the nearest expert answers" in page.text("#answer-facts")
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
    text = "my contract"
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
    tokens = small_router().route(PROMPT).tokens
    page.until(lambda: page.text("#cost-of-it").startswith(f"3 of {tokens} tokens decided"))
    assert page.text("#k-shown") == f"3 of {tokens} tokens"
    wanted = small_router().with_selector(EntropyTopK(3)).explain(PROMPT)
    assert [one["counted"] for one in words(page)] == [word.counted for word in wanted.words]
    assert page.text("#winner") == wanted.decision.expert
    page.find("#k").send_keys("\ue010")  # End: no more tokens vote than the prompt has
    page.until(lambda: page.text("#k-shown") == f"{tokens} of {tokens} tokens")
    typed(page, "egg")
    assert page.find("#k").get_attribute("max") == str(small_router().route("egg").tokens)
    typed(page, "x")
    assert page.text("#k-shown") == "1 of 1 token" and page.text("#cost-of-it").startswith("1 of 1 token decided")
    typed(page, PROMPT)  # what was chosen for the longer prompt
    assert page.text("#k-shown") == f"{tokens} of {tokens} tokens"
    assert "as the router is served (average, as fitted)" in page.text("#reading-note")


def choose(page: Browser, selector: str, scorer: str = "") -> None:
    """Choose them, and wait until the page has followed."""
    text = page.run("return document.documentElement.dataset.ready")
    page.run("delete document.documentElement.dataset.ready")
    page.find(f"[for=selector-{selector}]").click()
    page.run("const s = document.querySelector('#scorer'); s.value = arguments[0] || s.options[0].value", scorer)
    page.run("document.querySelector('#scorer').dispatchEvent(new Event('change'))")
    page.until(lambda: page.run("return document.documentElement.dataset.ready") == text)


@pytest.mark.nightly
@browser_test
def test_the_button_names_the_expert_that_answers_under_every_setting(page: Browser, gateway: Running) -> None:
    announced = []
    for text, settings in {
        "contract a egg x": [("average",), ("all",), ("entropy",), ("average", "paper"), ("entropy", "paper")],
        "hi": [("average",), ("entropy",)],
    }.items():
        choose(page, "average")
        typed(page, text)
        for setting in settings:
            choose(page, *setting)
            announced.append(page.text("#send-to"))
            gateway.upstream.asked.clear()
            page.find("#send").click()
            page.until(lambda: gateway.upstream.asked and "Done" in page.text("#answer-facts"))
            page.until(lambda: not page.find("#stop").is_displayed())
            assert gateway.upstream.asked == announced[-1:]
            assert f"Expert{announced[-1]}" in page.text("#answer-facts")
            assert page.text("#winner") in (announced[-1], "none fits")
    assert len(set(announced[:5])) > 1  # the settings differ in what they decide


@browser_test
def test_the_button_names_who_is_asked_instead_and_says_why(page: Browser, gateway: Running) -> None:
    breaker = gateway.gateway.live.snapshot.experts["law"].breaker
    for _ in range(5):
        breaker.record_failure()
    prompt = "Is my contract void if my dough does not rise?"  # cooking is a candidate
    typed(page, prompt)
    announced = page.text("#send-to")
    assert page.text("#winner") == "law" != announced
    assert page.text("#target-note") == f"law fails at present, so {announced} answers."
    page.find("#send").click()
    page.until(lambda: f"Expert{announced}" in page.text("#answer-facts"))
    assert announced == "cooking" and "Decidedlaw (resting)" in page.text("#answer-facts")
    breaker.record_beginning()
    typed(page, f"{prompt}!")
    assert page.text("#send-to") == "law" and not page.find("#target-note").is_displayed()


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
    chips = page.run(
        "return [...document.querySelectorAll('#examples .chip')].map(one => [one.textContent, one.title])"
    )
    router = small_router()
    assert {name for name, _ in chips if " and " not in name} == set(TEXTS)  # one for each expert of this very router
    assert all(router.route(text).expert in name.split(" and ") for name, text in chips)
    page.find("#examples .chip:last-child").click()
    page.until(lambda: page.text("#words") == chips[-1][1] and page.text("#winner") == chips[-1][0])
    typed(page, "<img src=x onerror=alert(1)> <b>egg</b>")
    assert page.text("#words") == "<img src=x onerror=alert(1)> <b>egg</b>"
    assert page.all("#words img, #words b, #flip img") == []


@browser_test
def test_the_page_does_not_begin_with_an_example_where_somebody_is_about_to_type(page: Browser) -> None:
    page.until(lambda: page.run("return 'ready' in document.documentElement.dataset"))
    begin = """const prompt = document.querySelector("#prompt");
        prompt.value = "";
        document.activeElement.blur();
        if (arguments[0]) prompt.focus();
        return import(new URL(`playground.js?${arguments[0]}`, document.querySelector("script[type=module]").src))
            .then(({ playground }) => playground.show()).then(() => prompt.value);"""
    assert page.run(begin, True) == ""
    assert page.run(begin, False) != ""


@browser_test
def test_the_first_example_is_about_the_experts_and_not_about_what_they_never_do(
    chromium: Browser, tmp_path: Path
) -> None:
    teams = {
        "lost_card": ["I lost my card.", "My card was stolen.", "Where is the card I lost?", "Block my stolen card!"],
        "exchange_rate": ["Which exchange rate do I get?", "Is the rate fair?", "What rate for dollars?", "Euro rate?"],
        "top_up_failed": ["My top up failed.", "Why was the top up refused?", "The top up did not work.", "No top up"],
    }
    router = Router.fit(teams)
    router.save(tmp_path / "router")
    with running(tmp_path) as gateway:
        chromium.open(gateway.url)
        chromium.until(lambda: chromium.all("#examples .chip"))
        chips = chromium.run(
            "return [...document.querySelectorAll('#examples .chip')].map(one => [one.textContent, one.title])"
        )
        assert {name for name, _ in chips} == set(teams)
        for name, text in chips:
            assert name.replace("_", " ") in text and router.route(text).expert == name
        first = chromium.run("return document.querySelector('#prompt').value")
        assert first == chips[0][1]


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
    typed(page, "Is my contract void if my dough does not rise?")  # cooking is a candidate
    page.find("#prompt").send_keys("\ue009\ue007")  # Control and Enter
    page.until(lambda: "Afterlaw failed" in page.text("#answer-facts"))
    assert "Expertlaw" not in page.text("#answer-facts")


@pytest.mark.nightly
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
