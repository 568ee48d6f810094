"""The page with the keyboard alone, on a phone, in the dark, and for axe."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from browser import Browser
from page_sessions import chromium, gateway, page, say, send, show  # noqa: F401 - three of them are fixtures
from running_gateway import ANSWER, Running

PHONE = (390, 844)
VIEWS = ("playground", "chat", "traffic", "changes", "experts", "keys")
AXE = Path(os.environ.get("IR3DE_NODE_MODULES", "")) / "node_modules" / "axe-core" / "axe.min.js"

pytestmark = pytest.mark.browser


def test_tabs_are_turned_by_keys(page: Browser) -> None:
    page.find("#tab-playground").click()
    for view in (*VIEWS[1:], VIEWS[0]):
        page.press("\ue014")
        assert page.run("return document.activeElement.id") == f"tab-{view}"
        page.until(lambda view=view: page.find(f"#{view}").is_displayed())  # some are empty until the gateway answers
    page.press("\ue010")
    assert page.run("return document.activeElement.id") == "tab-keys"
    page.press("\ue011")
    chosen = page.run("return [...document.querySelectorAll('[role=tab]')].map(t => [t.ariaSelected, t.tabIndex])")
    assert chosen == [["true", 0], *[["false", -1]] * 6]


CONTROLS = """
const isStop = (one) => one.checkVisibility({visibilityProperty: true}) && !one.disabled && one.tabIndex >= 0
    && !(one.type === 'radio' && !one.checked) && !one.closest('dialog:not([open])');
return [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]')].filter(isStop)
    .map((one) => one.id || one.getAttribute('aria-label') || one.textContent.trim());
"""
FOCUSED = """
const one = document.activeElement;
const marked = (e) => getComputedStyle(e).outlineStyle !== 'none' || getComputedStyle(e).boxShadow !== 'none';
const near = [one, one.nextElementSibling, one.closest('.composer'), one.closest('.drop')];
return [one.id || one.getAttribute('aria-label') || one.textContent.trim(), near.some((e) => e && marked(e))];
"""


def walk(page: Browser) -> None:
    """Everything that can be used is reached with the Tab key, in the order of the page, and can be seen when it is."""
    page.run("document.activeElement.blur(); scrollTo(0, 0)")
    page.run("document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex')")
    wanted = page.run(CONTROLS)
    reached = []
    for _ in wanted:
        page.press("\ue004")
        name, is_marked = page.run(FOCUSED)
        assert is_marked, name
        reached.append(name)
    assert reached == wanted


def test_everything_is_done_with_the_keyboard_alone(page: Browser, gateway: Running) -> None:
    walk(page)
    page.run("document.activeElement.blur()")
    page.run("document.querySelector('#prompt').focus()")
    page.press("Is my contract void?")
    page.until(lambda: page.text("#send-to") == "law" and page.text("#words") == "Is my contract void?")
    gateway.upstream.asked.clear()
    while page.run("return document.activeElement.id") != "send":
        page.press("\ue004")
    page.press("\ue00d")  # the space bar presses it
    page.until(lambda: page.text("#answer-text") == "".join(ANSWER))
    assert gateway.upstream.asked == ["law"] and page.run("return document.activeElement.id") == "send"
    page.find("#tab-playground").send_keys("\ue014")
    page.press("\ue004", "\ue004", "\ue004", "\ue004")  # key, theme, new conversation, message
    assert page.run("return document.activeElement.id") == "chat-text"
    send(page, "Can my landlord evict me?")
    page.run("document.querySelector('.turn summary').focus()")
    page.press("\ue007")
    assert page.find(".turn .evidence").is_displayed()
    walk(page)
    show(page, "experts")
    page.until(lambda: page.all(".person"))
    walk(page)
    page.run("document.querySelector('[aria-label=\"Remove law\"]').focus()")
    page.press("\ue007")
    assert page.run("return document.activeElement.textContent") == "Cancel"  # what does least comes first
    page.press("\ue007")
    assert not page.find("#confirm").is_displayed() and "law" in gateway.gateway.live.snapshot.experts


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_follows_the_system_in_light_and_dark(page: Browser, scheme: str) -> None:
    page.size(*PHONE)
    page.prefer(prefers_color_scheme=scheme)
    page.type("#prompt", f"Is my contract void? {'long' * 40}")
    page.tap("#send")
    page.until(lambda: page.text("#answer-text") == "".join(ANSWER))
    page.tap("#tab-chat")
    page.type("#chat-text", f"Can my landlord evict me? {'long' * 40}")
    page.until(lambda: page.text("#chat-send b"))
    page.tap("#chat-send")
    page.until(lambda: len(page.all(".turn")) == 1 and not page.all(".turn.streaming"))
    for view in VIEWS:
        page.tap(f"#tab-{view}")
        page.until(lambda view=view: page.find(f"#{view}").is_displayed())
        assert page.run("return document.documentElement.scrollWidth") <= PHONE[0], view
    small = """return [...document.querySelectorAll('button')].filter(b => b.checkVisibility())
        .map(b => [b.textContent.trim() || b.ariaLabel, b.getBoundingClientRect().height]).filter(([, h]) => h < 24)"""
    assert page.run(small) == []
    brightness = "return Number(getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/)[0]) > 128"
    assert page.run(brightness) is (scheme == "light")
    page.tap("#theme")
    assert page.run(brightness) is (scheme == "dark")


@pytest.mark.skipif(not AXE.is_file(), reason="needs IR3DE_NODE_MODULES=DIR after npm install --prefix DIR axe-core")
def test_axe_finds_nothing_wrong_with_any_view(page: Browser) -> None:
    page.run(AXE.read_text())
    page.find("[for=selector-entropy]").click()
    page.find("#send").click()
    page.until(lambda: page.text("#answer-text") == "".join(ANSWER))
    found = {"playground": check_with_axe(page)}
    show(page, "chat")
    found["empty chat"] = check_with_axe(page)
    send(page, "Can my landlord evict me?")
    send(page, "Ok, and how long does that take?")
    page.find(".turn:nth-child(2) summary").click()
    say(page, "How do I boil an egg?")
    found["chat"] = check_with_axe(page)
    for view, wanted in (("traffic", "#by-expert tbody tr"), ("experts", ".person"), ("keys", "#keys-content")):
        show(page, view)
        page.until(lambda wanted=wanted: page.all(wanted))
        found[view] = check_with_axe(page)
    page.find("#open-keys").click()
    found["your keys"] = check_with_axe(page)
    page.press("\ue00c")
    show(page, "experts")
    page.find("[aria-label='Remove law']").click()
    found["confirm"] = check_with_axe(page)
    page.press("\ue00c")
    page.size(*PHONE)
    for view in VIEWS:
        show(page, view)
        found[f"{view} on a phone"] = check_with_axe(page, "target-size", "scrollable-region-focusable")
    page.run("sessionStorage.clear()")
    show(page, "experts")
    page.until(lambda: page.find("#experts-locked").is_displayed())
    found["locked"] = check_with_axe(page)
    assert {view: problems for view, problems in found.items() if problems} == {}
    page.console()  # the refusal of the last view


def check_with_axe(page: Browser, *rules: str) -> list[str]:
    """What it complains about in light, and in the dark, where only colours differ: the rule, and where."""
    run = """const [rules, done] = [arguments[0], arguments[arguments.length - 1]];
        const only = rules.length ? {runOnly: {type: 'rule', values: rules}} : {};
        axe.run(document, {resultTypes: ['violations'], ...only}).then((found) => done(found.violations.flatMap(
            (rule) => rule.nodes.map((node) => `${rule.id}: ${node.target.join(' ')}: ${node.failureSummary}`))))"""
    found: list[str] = page.driver.execute_async_script(run, rules)
    page.prefer(prefers_color_scheme="dark", prefers_reduced_motion="reduce")
    found += page.driver.execute_async_script(run, ["color-contrast"])
    page.prefer(prefers_color_scheme="light", prefers_reduced_motion="reduce")
    return found
