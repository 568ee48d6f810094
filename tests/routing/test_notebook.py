"""Routers, decisions and explanations as HTML: whole, small, escaped, legible in light and dark notebooks."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from answered_prompts import answers
from ir3de import Conversation, EntropyTopK, Router
from ir3de.errors import InputError
from ir3de.evaluation import evaluate, prove
from ir3de.policies import Policy
from ir3de.routing.colours import COLOURS, find_colour
from ir3de.routing.explanation import tabulate_words
from ir3de.routing.html import FOLDER, format_signed, load_templates
from laws import STRANGE, wordy
from legibility import contrast, mixed, rgb

TEMPLATE = load_templates(FOLDER).get_template("notebook.html").module
MAX_LISTED, MAX_RANKED, MAX_WORDS, STRONGEST = (
    getattr(TEMPLATE, name) for name in ("max_listed", "max_ranked", "max_words", "strongest_opacity")
)
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
PROMPT = "Is this contract void? The contract!"
TAGS = {"div", "style", "p", "b", "small", "table", "thead", "tbody", "tr", "th", "td", "span", "i", "bdi"}
HOSTILE = [
    "</p><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "</style></div><b>",
    "$x$ \\(y\\) &amp; &#60;",
    "\u202eabc\u202c <bdo dir=rtl>",
    "\x00\x1b[2J\x9b\ud800",
]
hostile = st.lists(wordy | st.sampled_from(HOSTILE + STRANGE) | st.text(max_size=20), min_size=1, max_size=5).map(
    " ".join
)


class Reader(HTMLParser):
    """Reads HTML strictly: tags that are allowed, each closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text: list[str] = []
        self.attributes: set[str] = set()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        self.open.append(tag)
        self.attributes |= {name for name, _ in attributes}
        assert all("url" not in (value or "") and "expression" not in (value or "") for _, value in attributes)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text.append(data)


def read(drawn: str) -> str:
    """The text that people read; the HTML must be whole, alone, without script, and can be written to a file."""
    found = Reader(drawn)
    assert found.attributes <= {"class", "style", "title"}
    drawn.encode()
    return "".join(found.text)


ROUTERS = {"average": tiny.router(), "votes": tiny.router(selector=EntropyTopK(3))}


@pytest.mark.parametrize("kind", ROUTERS)
def test_an_explanation_has_the_numbers_of_the_terminal(kind: str) -> None:
    found = ROUTERS[kind].explain(PROMPT)
    drawn = found._repr_html_()
    text = read(drawn)
    assert PROMPT in text and found.summary in text
    words, sums = tabulate_words(found, 10)
    for word in (*words, *sums):
        row = re.search(rf"<tr><td>(<bdi>)?{re.escape(html.escape(word.text))}.*?</tr>", drawn)
        assert row is not None, word
        numbers = [format_signed(value, 2) for value in (word.contribution, *word.scores)]
        assert re.findall(r"[+−]\d+\.\d\d|·", row[0]) == numbers
    best, other = (find_colour(found.experts.index(name)).middle for name in found.compared[:2])
    painted = dict(re.findall(r'<span style="background:(#\w{6})\w\w" title="([+−])', drawn))
    assert painted.items() <= {(best, "+"), (other, "−")} and best in painted


@tiny.LAW
@given(hostile, st.sampled_from(sorted(ROUTERS)))
def test_no_prompt_gets_out_of_its_place(text: str, kind: str) -> None:
    router = ROUTERS[kind]
    found = router.explain(text)
    said = read(found._repr_html_())
    shown = CONTROLS.sub("\ufffd", "".join(word.text for word in found.words))
    assert shown in said
    read(found.decision._repr_html_())
    chat = Conversation(router)
    chat.route(text)
    read(chat.explain()._repr_html_())


@tiny.law_settings(max_examples=12)
@given(st.sampled_from(HOSTILE[:6]) | st.text(min_size=1, max_size=20))
def test_no_name_of_an_expert_gets_out_of_its_place(name: str) -> None:
    try:
        router = Router.fit({name: ["Is this contract void?"], "law": ["The court."]}, embedding=tiny.embedding())
    except InputError:  # names that no router may have
        return
    for one in (router, router.route(PROMPT), router.explain(PROMPT)):
        assert CONTROLS.sub("\ufffd", name) in read(one._repr_html_())


@pytest.mark.parametrize("name", HOSTILE[:6])
def test_a_report_shows_the_figures_of_each_expert(name: str) -> None:
    router = Router.fit({name: ["Is this contract void?"], "law": ["The court."]}, embedding=tiny.embedding())
    report = evaluate(router, {name: ["Is the contract void?", "What court?"]})
    text = read(report._repr_html_())
    assert "Report: 2 prompts" in text and f"{100 * report.accuracy:.1f} %" in text
    assert "■ " + CONTROLS.sub("\ufffd", name) + "2" in text and "■ law0–" in text


def test_a_proof_shows_its_verdict_and_the_contenders() -> None:
    proof = prove(router=tiny.router(20), curve=False)
    text = read(proof._repr_html_())
    assert f"Proof: cross-validation, {proof.prompts} prompts" in text and all(line in text for line in proof.verdict)
    assert all(f"{one.name}{100 * one.accuracy.value:.1f} %" in text for one in proof.contenders)
    assert len(proof.contenders) == 2 and f"this router{100 * proof.accuracy.value:.1f} %" in text


def test_a_decision_shows_five_experts_and_how_many_more_there_are() -> None:
    many = {f"expert {place}": [f"contract number {place}"] for place in range(77)}
    router = Router.fit(many, embedding=tiny.embedding())
    decision = router.route(PROMPT)
    text = read(decision._repr_html_())
    assert text.count("■") == 1 + MAX_RANKED and "… and 72 more" in text
    assert decision.best in text and f"{100 * (decision.confidence or 0):.1f} %" in text
    text = read(router._repr_html_())
    assert text.count("■") == MAX_LISTED and f"… and {77 - MAX_LISTED} more" in text
    assert read(router.explain(PROMPT)._repr_html_()).count("■") == 1 + MAX_RANKED


def test_it_says_why_the_router_abstained_and_who_is_nearest() -> None:
    router = tiny.router().with_policy(Policy(threshold=1))
    prompt = tiny.sentences("law", 1, seed=3)[0]
    text = read(router.route(prompt)._repr_html_())
    assert f"abstained low confidence; the nearest is {router.route(prompt).best}, confidence" in text
    assert "abstained no known token" in read(tiny.router().route("")._repr_html_())
    named = tiny.router().with_policy(Policy(threshold=1), default="law")
    assert "law low confidence, so the default expert" in read(named.route(prompt)._repr_html_())


def test_a_router_shows_its_experts_and_how_accurate_it_was(tmp_path: Path) -> None:
    router = tiny.router()
    text = read(router._repr_html_())
    assert all(f"■ {name}" in text for name in router.experts) and "prompts" in text and "kept" in text
    chosen = next((trial for trial in router.trials if trial["chosen"]), None)
    assert "not measured" in text if chosen is None else f"{100 * chosen['accuracy']:.1f} %" in text
    serving = Router.load(router.save(tmp_path / "copy", serving=True))
    text = read(serving._repr_html_())
    assert "kept" not in text and all(name in text for name in serving.experts)
    outcomes = Router.fit_outcomes(answers(number=10), embedding=tiny.embedding(), guard=False)
    text = read(outcomes._repr_html_())
    assert "over the best single model" in text and "kept" not in text
    found = outcomes.explain("Is this contract void?")
    assert re.search(r"[+−]\d\.\d{3}", read(found._repr_html_())) and "all words" not in read(found._repr_html_())
    assert "expected score" in read(found.decision._repr_html_())


def test_a_turn_shows_which_turn_decided() -> None:
    chat = Conversation(tiny.router())
    for text in (PROMPT, "and that?"):
        chat.route(text)
    text = read(chat.explain()._repr_html_())
    assert "Turn 1 decided." in text and PROMPT in text


def test_long_prompts_stay_small() -> None:
    text = " ".join(tiny.sentences("law", 200))
    drawn = ROUTERS["average"].explain(text)._repr_html_()
    assert "more words" in drawn and len(drawn) < 100 * MAX_WORDS
    assert len(ROUTERS["average"].explain(PROMPT)._repr_html_()) < 6_000
    assert len(ROUTERS["average"].route(PROMPT)._repr_html_()) < 3_000
    assert len(ROUTERS["average"]._repr_html_()) < 3_000


@pytest.mark.parametrize(("ground", "ink"), [("#ffffff", "#000000"), ("#111111", "#e0e0e0"), ("#1e1e1e", "#d4d4d4")])
def test_words_are_legible_on_the_strongest_colour_in_light_and_dark(ground: str, ink: str) -> None:
    for colour in COLOURS:
        under = mixed(rgb(colour.middle), rgb(ground), STRONGEST)
        assert contrast(rgb(ink), under) >= 4.5, colour
        assert contrast(rgb(colour.middle), rgb(ground)) >= 1.8, colour  # bars and squares
