"""One explanation in terminal, page and notebook: the same sentence, the same signed numbers, the same colours."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from browser import Browser
from commands import run
from ir3de import EntropyTopK, Router
from ir3de.routing.colours import COLOURS
from ir3de.routing.explanation import tabulate_words
from ir3de.routing.html import count_digits, format_signed
from page_sessions import chromium  # noqa: F401 - a fixture
from running_gateway import TEXTS, outcome_router, running, small_router

PROMPT = "Is a contract void when my landlord, my landlord, cannot boil an egg? 🙂 租 Mietvertrag x_1 = 3.14"
MORE = {f"subject {place}": [f"{word} and {word}s", f"what is a {word}"] for place, word in enumerate("abcdefghijk")}
BEST, NEXT, *OTHERS = ("law", "cooking", "maths")  # of the prompt
ROUTERS: dict[str, Callable[[], Router]] = {
    "average": small_router,
    "votes": lambda: small_router().with_selector(EntropyTopK(5)),
    "outcomes": outcome_router,
    "fourteen experts": lambda: Router.fit(
        {BEST: TEXTS[BEST], **MORE, **{name: TEXTS[name] for name in (NEXT, *OTHERS)}}
    ),
}


@pytest.mark.browser
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.nightly if kind == "outcomes" else ()) for kind in ROUTERS]
)
def test_terminal_page_and_notebook_say_the_same(kind: str, chromium: Browser, tmp_path: Path) -> None:  # noqa: F811
    router = Router.load(ROUTERS[kind]().save(tmp_path / "router"))
    found = router.explain(PROMPT)
    digits = count_digits(found.decision)
    shown, drawn = run("explain", tmp_path / "router", PROMPT).stdout, found._repr_html_()
    assert found.summary in re.sub(r"\s+", " ", shown)
    assert html.escape(found.summary) in drawn
    rows = shown.partition("The words that speak for")[2].splitlines()
    words, sums = tabulate_words(found, 10)
    for word in (*words, *sums):
        signed = [format_signed(value, digits) for value in (word.contribution, *word.scores)]
        (line,) = (line for line in rows if re.match(rf"{re.escape(word.text)} ", line))
        numbers = re.findall(r"[+−]\d+\.\d+|·", line.removeprefix(word.text))
        assert len(numbers) > 2 and numbers == signed[: len(numbers)]
        row = re.search(rf"<tr><td>(<bdi>)?{re.escape(html.escape(word.text))} ?<.*?</tr>", drawn)
        assert row is not None and re.findall(r">([+−]\d+\.\d+|·)<", row[0]) == signed
    with running(tmp_path) as gateway:
        chromium.size(1280, 900)
        chromium.open(gateway.url)
        chromium.type("#prompt", "a")  # the driver types no characters beyond the first plane
        chromium.run(
            "const box = document.querySelector('#prompt'); box.value = arguments[0];"
            "box.dispatchEvent(new Event('input'))",
            PROMPT,
        )
        chromium.until(lambda: chromium.run("return document.documentElement.dataset.ready") == PROMPT)
        assert chromium.text("#spoken") == found.summary
        labels = chromium.run("return [...document.querySelectorAll('.word')].map(one => one.ariaLabel)")
        assert [
            label.removeprefix(f"{word.text.strip()}, ").split(",")[0]
            for label, word in zip(labels, found.words, strict=True)
        ] == [format_signed(word.contribution, digits) if word.counted else "not counted" for word in found.words]
        ranked = chromium.run("return [...document.querySelectorAll('#ranking .name')].map(one => one.textContent)")
        assert ranked == [expert for expert, _ in found.decision.ranking[:5]]
        more = len(router.experts) - 5
        assert chromium.text("#ranked-more") == (f"… and {more} more" if more > 0 else "")
        colours = chromium.run(
            "return [...document.querySelectorAll('#ranking li')].map(one => one.style.getPropertyValue('--colour'))"
        )
        assert colours == [f"var(--e{COLOURS.index(found.colours[name])})" for name in ranked]
        assert len(set(colours)) == len(ranked)
    if kind == "fourteen experts":  # two that would have one colour are among those that are compared
        assert {BEST, NEXT} <= set(ranked)
