"""The page's list of requests with their feedback, feedback with a named key, new domains, and the end of a trial."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import time

import pytest

from browser import Browser
from client_keys import key, secret, write_keys
from ir3de import Router
from ir3de.traffic import Feedback, Journal, JournalPrompt, TrafficRecord
from page_sessions import TOKEN, chromium, page, send, show  # noqa: F401 - two of them are fixtures
from running_gateway import TEXTS, Running, running
from test_page_access import AXE, PHONE, check_with_axe
from test_page_feedback import confirm

pytestmark = pytest.mark.browser
HOSTILE = "</li><img src=x onerror=alert(1)>"
STRANGE = [
    f"{word} der Hund {when} bellt im Garten" for word in ("Wann", "Wo", "Wer", "Wie") for when in ("heute", "nachts")
]
AT_ONCE = 50  # requests in a page of the list


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of more than a page: prompts that fit no expert, then others, the last one hostile in every field."""
    folder, now = tmp_path_factory.mktemp("kept"), time()
    texts = [*STRANGE, *(TEXTS["law"] * AT_ONCE)[:AT_ONCE]]
    with Journal.create(folder) as journal:
        journal.append([TrafficRecord("r0", now - 950, decided="law", served="law")])  # the client used this id twice
        journal.append(
            TrafficRecord(
                f"r{number}", now - 900 + number, decided="law", served="law", prompt=JournalPrompt("text", (text,))
            )
            for number, text in enumerate(texts)
        )
        prompt = JournalPrompt.from_text(["How?", HOSTILE + "x" * 400])
        more = {"confidence": 0.75, "cost": 0.0021, "why": "explore", "seconds": 1.25, "completion_tokens": 15}
        last = TrafficRecord(HOSTILE, now, HOSTILE, decided="law", served="cooking", prompt=prompt, **more)  # type: ignore[arg-type]
        journal.append([last])
        journal.put_feedback(HOSTILE, Feedback("bob", now, expert=HOSTILE, score=0.3, comment=HOSTILE))
        journal.put_feedback(HOSTILE, Feedback("admin", now, score=0.7, comment="so so"))
    return folder


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, kept: Path) -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IR3DE_ADMIN_TOKEN", TOKEN)
        folder = tmp_path_factory.mktemp("page")
        other = Router.fit({name: texts[:2] for name, texts in TEXTS.items()})
        candidate = {"router": str(other.save(folder / "candidate")), "mode": "shadow"}
        with running(folder, feedback={"folder": str(kept), "keep": "text"}, routing={"candidate": candidate}) as found:
            yield found


def read_feedback(kept: Path, request: str) -> dict[str, tuple[str | None, float | None, str]]:
    with Journal.open(kept) as journal:
        found = journal.find(request)
    return {} if found is None else {one.author: (one.expert, one.score, one.comment) for one in found.feedback}


def comment(page: Browser, words: str) -> None:
    page.type(".rating input", words)
    page.press("\ue007")


def said(page: Browser, text: str) -> None:
    page.until(lambda: page.text(".rating [role=status]") == text)


def test_requests_are_listed_as_text_and_get_feedback_that_can_be_changed(page: Browser, kept: Path) -> None:
    show(page, "traffic")
    page.until(lambda: len(page.all("#request-list > li")) == AT_ONCE)
    first = page.text("#request-list > li")
    facts = (f"Key{HOSTILE}", "Expertcooking", "Decidedlaw", "Confidence75 %", "Cost0.002100", "Becauseexplore")
    for shown in facts:
        assert shown in first
    assert f"bob: score 0.3, should have been {HOSTILE}, “{HOSTILE}”" in first and "turn 2: " in first
    assert page.all("#requests img") == []  # text, never markup
    said(page, "Sent: score 0.7, “so so”.")
    page.find(".rating select").send_keys("maths")
    said(page, "Sent: score 0.7, should have been maths, “so so”.")  # what was there stays
    page.find("[data-thumb=up]").click()
    comment(page, HOSTILE)
    said(page, f"Sent: good, should have been maths, “{HOSTILE}”.")
    bob = {"bob": (HOSTILE, 0.3, HOSTILE)}
    assert read_feedback(kept, HOSTILE) == {"admin": ("maths", 1.0, HOSTILE), **bob}
    page.find(".rating .link").click()
    said(page, "Taken back.")
    assert read_feedback(kept, HOSTILE) == bob and not page.find(".rating input").is_displayed()
    page.find("#requests-older").click()
    page.until(lambda: len(page.all("#request-list > li")) == AT_ONCE + len(STRANGE) + 2)
    assert not page.find("#requests-older").is_displayed()
    assert page.run("return document.activeElement.dataset.request") == f"r{len(STRANGE)}"  # the first one that came
    assert page.text("#request-list > li:last-child > p:last-child").startswith("A later request has the same id")
    page.find("#requests-again").click()
    page.until(lambda: len(page.all("#request-list > li")) == AT_ONCE)


def test_a_named_key_gives_feedback_of_its_own_and_sees_no_list(chromium: Browser, tmp_path: Path) -> None:
    file = write_keys(tmp_path / "keys.json", key("alice"))
    feedback = {"folder": str(tmp_path / "kept"), "keep": "tokens"}
    chromium.size(1280, 900)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IR3DE_ADMIN_TOKEN", TOKEN)
        with running(tmp_path, server={"keys_file": str(file)}, feedback=feedback) as gateway:
            chromium.open(f"{gateway.url}/#key={secret('alice')}")
            chromium.until(lambda: chromium.all(".word"))
            show(chromium, "chat")
            send(chromium, "Can my landlord evict me?")
            chromium.until(lambda: chromium.all(".rating"))
            assert not chromium.find(".rating input").is_displayed()  # a comment alone is no feedback
            chromium.find("[data-thumb=down]").click()
            said(chromium, "Sent: bad.")
            comment(chromium, "too long")
            said(chromium, "Sent: bad, “too long”.")
            with Journal.open(tmp_path / "kept") as journal:
                (row,) = journal.read()
            assert [(one.author, one.score, one.comment) for one in row.feedback] == [("alice", 0.0, "too long")]
            show(chromium, "traffic")
            chromium.until(lambda: "This view needs the admin token" in chromium.text("#requests-locked"))
            assert chromium.find("#totals").is_displayed() and chromium.all("#request-list > li") == []
            chromium.find("#requests-locked button").click()
            chromium.type("#admin-token", TOKEN)
            chromium.find("#save-keys").click()
            chromium.until(lambda: chromium.all("#request-list > li"))
            assert (
                chromium.text("#requests-note")
                == "This gateway keeps the tokens of prompts, not their text (feedback.keep)."
            )
            listed = chromium.text("#request-list")
            assert "landlord" not in listed and "Keyalice" in listed and "alice: bad, “too long”" in listed
    assert [line for line in chromium.console() if "401" not in line] == []  # the refusal is told on the console


def test_new_domains_are_shown_with_what_to_do(page: Browser) -> None:
    page.until(lambda: page.find("#tab-label").is_displayed())
    show(page, "label")
    page.until(lambda: page.find("#domains").is_displayed())
    shown = page.text("#domain-list li")
    assert "hund" in page.text("#domain-list h3") and f"These {len(STRANGE)} requests fit no expert: add one?" in shown
    assert {one.text for one in page.all("#domain-list .samples li")} <= set(STRANGE)
    assert "--take 1 -o new.jsonl" in page.text("#domain-list pre")


def test_the_trial_of_a_candidate_is_ended_with_a_click(page: Browser, gateway: Running) -> None:
    show(page, "changes")
    page.until(lambda: page.all("#withdraw"))
    page.find("#withdraw").click()
    page.until(lambda: page.find("#confirm").is_displayed())
    page.press("\ue00c")  # Escape: it goes on
    assert "It is tried." in page.text("#candidate")
    page.find("#withdraw").click()
    confirm(page)
    page.until(lambda: "Its trial was ended." in page.text("#candidate"))
    assert page.all("#withdraw") == [] and len(page.all("#versions li")) == 1  # the live router serves on
    assert "on the page" in page.text("#candidate")


def look_at(page: Browser, view: str) -> None:
    """Show a view with what feedback adds to it."""
    show(page, view)
    added = {"traffic": "#request-list > li", "label": "#domains:not([hidden])", "changes": "#versions li"}
    page.until(lambda: page.all(added.get(view, ".rating")))


def test_all_views_of_a_gateway_with_feedback_fit_a_phone(page: Browser) -> None:
    page.size(*PHONE)
    for view in ("traffic", "label", "changes"):
        look_at(page, view)
        assert page.run("return document.documentElement.scrollWidth") <= PHONE[0], view


@pytest.mark.skipif(not AXE.is_file(), reason="needs IR3DE_NODE_MODULES=DIR after npm install --prefix DIR axe-core")
def test_axe_finds_nothing_wrong_with_feedback(page: Browser) -> None:
    page.run(AXE.read_text())
    show(page, "chat")
    send(page, "Can my landlord evict me?")
    page.until(lambda: page.all("#chat .rating"))
    page.find("#chat [data-thumb=down]").click()
    page.until(lambda: page.find("#chat .rating input").is_displayed())
    found = {}
    for view in ("chat", "traffic", "label", "changes"):
        look_at(page, view)
        found[view] = check_with_axe(page)
    page.size(*PHONE)
    for view in ("chat", "traffic", "label", "changes"):
        look_at(page, view)
        found[f"{view} on a phone"] = check_with_axe(page, "target-size", "scrollable-region-focusable")
    assert {view: problems for view, problems in found.items() if problems} == {}
