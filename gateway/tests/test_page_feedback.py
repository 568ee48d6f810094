"""The page's feedback: thumbs in the chat, labels by the keyboard, and the panels of drift, candidate and versions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import Browser
from ir3de import Router
from ir3de.traffic import Journal, JournalPrompt, TrafficRecord
from ir3de_gateway.feedback.drift_watch import REPORT
from page_sessions import TOKEN, chromium, page, send, show  # noqa: F401 - two of them are fixtures
from running_gateway import TEXTS, Running, running

pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror=alert(1)> Is my contract void?"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with a prompt that would be dangerous as markup, and with others."""
    folder = tmp_path_factory.mktemp("kept")
    texts = [HOSTILE, *(text for own in TEXTS.values() for text in own)]
    with Journal.create(folder) as journal:
        journal.append(
            TrafficRecord(f"r{number}", 1.79e9 + number, decided="law", prompt=JournalPrompt.from_text([text]))
            for number, text in enumerate(texts)
        )
    return folder


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, kept: Path) -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IR3DE_ADMIN_TOKEN", TOKEN)
        folder = tmp_path_factory.mktemp("page")
        patch.setattr("ir3de_gateway.gateway.LOOK_INTERVAL_S", 1e6)  # drift is what the tests write
        other = Router.fit({name: texts[:2] for name, texts in TEXTS.items()})
        candidate = {"router": str(other.save(folder / "candidate")), "mode": "shadow"}
        with running(folder, feedback={"folder": str(kept), "keep": "text"}, routing={"candidate": candidate}) as found:
            yield found


def read_feedback(kept: Path, request: str) -> list[tuple[str, str | None, float | None]]:
    with Journal.open(kept) as journal:
        found = journal.find(request)
    return [] if found is None else [(one.author, one.expert, one.score) for one in found.feedback]


def test_an_answer_gets_a_thumb_and_another_expert_and_both_can_be_taken_back(page: Browser, kept: Path) -> None:
    show(page, "chat")
    send(page, "Can my landlord evict me?")
    page.until(lambda: page.all(".rating"))
    page.find("[data-thumb=down]").click()
    page.until(lambda: page.text(".rating [role=status]") == "Sent: bad.")
    page.find(".rating select").send_keys("cooking")
    page.until(lambda: page.text(".rating [role=status]") == "Sent: bad, should have been cooking.")
    with Journal.open(kept) as journal:
        request = list(journal.read())[-1].id
    assert read_feedback(kept, request) == [("anyone", "cooking", 0.0)]
    page.find("[data-thumb=up]").click()
    page.until(lambda: page.text(".rating [role=status]") == "Sent: good, should have been cooking.")
    assert page.find("[data-thumb=up]").get_attribute("aria-pressed") == "true"
    page.find(".rating .link").click()
    page.until(lambda: page.text(".rating [role=status]") == "Taken back.")
    assert read_feedback(kept, request) == []


def test_prompts_are_labelled_with_the_keyboard(page: Browser, kept: Path) -> None:
    page.until(lambda: page.find("#tab-label").is_displayed())
    show(page, "label")
    page.until(lambda: page.text("#label-prompt"))
    seen = []
    for _ in range(12):
        seen.append(page.text("#label-prompt"))
        if seen[-1] == HOSTILE:
            break
        page.press("s")
        page.until(lambda: page.text("#label-prompt") != seen[-1])
    assert seen[-1] == HOSTILE and page.all("#label img") == []  # text, never markup
    first = page.text("#label-experts button .name")
    page.press("1")
    page.until(lambda: page.text("#label-done") == "1 label kept.")
    assert read_feedback(kept, "r0") == [("label:admin", first, None)]
    page.press("u")
    page.until(lambda: page.text("#label-prompt") == HOSTILE)
    assert read_feedback(kept, "r0") == []


def confirm(page: Browser) -> None:
    page.until(lambda: page.find("#confirm").is_displayed())
    page.find("#confirm-yes").click()


def test_a_candidate_is_promoted_and_a_version_rolled_back(page: Browser) -> None:
    show(page, "changes")
    page.until(lambda: "It is tried." in page.text("#candidate"))
    assert "Modeshadow" in page.text("#candidate") and len(page.all("#versions li")) == 1
    page.find("#promote").click()
    confirm(page)
    page.until(lambda: "It was promoted." in page.text("#candidate"))
    page.until(lambda: "promote candidate" in page.text("#versions li:first-child"))
    assert "Live" in page.text("#versions li:first-child") and page.all("#promote") == []
    page.find("[data-version='1']").click()
    confirm(page)
    page.until(lambda: "roll back" in page.text("#versions li:first-child"))


def test_drift_is_shown_in_words_and_small_charts(page: Browser, kept: Path) -> None:
    window = {"since": 1.79e9, "prompts": 100, "abstained": 2, "experts": {"law": 60, "maths": 38}}
    change = {"summary": f"since Monday 9.0 % of the prompts contain {HOSTILE!r}", "alarms": []}
    report = {"prompts": 5_000, "is_learning": False, "changes": [change], "windows": [window] * 5}
    with Journal.open(kept) as journal:
        journal.write_notes({REPORT: json.dumps(report).encode()})
    show(page, "changes")
    page.until(lambda: page.all("#drift .alarms li"))
    assert page.text("#drift .alarms li") == f"{change['summary']}." and page.all("#drift img") == []
    assert [one.text for one in page.all("#drift .shares dt")] == ["law", "maths", "none fits"]
    assert len(page.all("#drift .shares div:first-child rect")) == 5
