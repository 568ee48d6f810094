"""A report in a real browser: it asks for nothing, fits a phone, suits the dark, can be sorted, and axe is content."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from browser import Browser, open_browser
from ir3de.evaluation.report import write_page
from proofs import make_proof, make_subject

AXE = Path(os.environ.get("IR3DE_NODE_MODULES", "")) / "node_modules" / "axe-core" / "axe.min.js"
PHONE = (390, 844)
LONG = "a-name-without-any-space-that-is-far-longer-than-it-should-be-in-any-list-of-experts"
HOSTILE = "</script><img src=x onerror=document.title='caught'>"

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of every kind by their names."""
    many = [f"intent_number_{number}" for number in range(77)]
    subjects = {
        "five": make_subject(make_proof(prices=True)),
        "many": make_subject(make_proof(many, prices=True)),
        "two": replace(make_subject(make_proof(("law", "coding"), abstained=0)), examples=False),
        "odd": make_subject(make_proof((LONG, HOSTILE, "قانون", "法律", "<b>"), (HOSTILE, LONG * 4, "مرحبا"))),
    }
    folder = tmp_path_factory.mktemp("reports")
    for name, subject in subjects.items():
        (folder / f"{name}.html").write_text(write_page(subject), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in subjects}


@pytest.fixture
def show(chromium: Browser, pages: dict[str, Path]) -> Iterator[Browser]:
    chromium.size(1280, 900)
    chromium.prefer(prefers_color_scheme="light")
    yield chromium
    assert chromium.console() == []


@pytest.mark.parametrize("name", ["five", "many", "two", "odd"])
def test_a_page_is_alone_and_fits_every_width(show: Browser, pages: dict[str, Path], name: str) -> None:
    for width, height in (PHONE, (320, 600), (768, 1024), (1280, 900)):
        show.size(width, height)
        show.open(pages[name].as_uri())
        asked = [address for address in show.addresses() if not address.startswith(("about:", "data:"))]
        assert asked == [pages[name].as_uri()]
        assert show.run("return document.documentElement.scrollWidth") <= width
    assert show.run("return document.title").startswith("router: ")  # no prompt has run


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_suits_light_and_dark(show: Browser, pages: dict[str, Path], scheme: str) -> None:
    show.prefer(prefers_color_scheme=scheme)
    show.open(pages["five"].as_uri())
    colours = show.run(
        "return [document.documentElement, document.querySelector('h1')].map((one, place) => "
        "getComputedStyle(one)[place ? 'color' : 'backgroundColor'].match(/\\d+/g).slice(0, 3).map(Number))"
    )
    ground, text = (sum(colour) / 3 for colour in colours)
    assert (ground < text) is (scheme == "dark") and abs(ground - text) > 180


def test_columns_are_sorted_by_mouse_and_by_keys(show: Browser, pages: dict[str, Path]) -> None:
    show.open(pages["many"].as_uri())
    rows = (
        "return [...document.querySelectorAll('.sortable tbody tr')].map(row => row.cells[arguments[0]].dataset.value)"
    )
    as_written = show.run(rows, 0)
    buttons = show.all(".sortable thead button")
    assert len(buttons) == len(show.all(".sortable thead th"))
    buttons[2].click()
    recalls = list(map(float, show.run(rows, 2)))
    assert recalls == sorted(recalls, reverse=True) != list(map(float, show.run(rows, 1)))
    assert show.run("return document.querySelectorAll('[aria-sort]').length") == 1
    show.press("\ue007")  # Enter: the button has the focus
    assert list(map(float, show.run(rows, 2))) == sorted(recalls)
    assert show.run("return document.querySelector('[aria-sort]').ariaSort") == "ascending"
    buttons[0].click()
    assert show.run(rows, 0) == sorted(as_written, key=lambda name: name.casefold())


@pytest.mark.skipif(not AXE.is_file(), reason="needs IR3DE_NODE_MODULES=DIR after npm install --prefix DIR axe-core")
@pytest.mark.parametrize("name", ["five", "many", "two", "odd"])
def test_axe_finds_nothing_wrong(show: Browser, pages: dict[str, Path], name: str) -> None:
    run = """const done = arguments[arguments.length - 1];
        axe.run(document, {resultTypes: ['violations']}).then((found) => done(found.violations.flatMap(
            (rule) => rule.nodes.map((node) => `${rule.id}: ${node.target.join(' ')}: ${node.failureSummary}`))))"""
    for scheme, size in (("light", (1280, 900)), ("dark", PHONE)):
        show.size(*size)
        show.prefer(prefers_color_scheme=scheme)
        show.open(pages[name].as_uri())
        show.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE.read_text(encoding="utf-8")})
        assert show.driver.execute_async_script(run) == []


def test_a_page_prints_on_paper(show: Browser, pages: dict[str, Path]) -> None:
    """A4, no part cut off at the right, and the navigation stays on the screen."""
    show.open(pages["five"].as_uri())
    show.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    show.size(794, 1123)  # A4 at 96 dots an inch
    assert show.run("return document.documentElement.scrollWidth") <= 794
    assert not show.find(".top nav").is_displayed()
    show.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    printed = show.driver.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})
    assert printed["data"].startswith("JVBER")  # %PDF
