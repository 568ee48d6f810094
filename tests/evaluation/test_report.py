"""A report is one page that asks for nothing, says what was measured, and holds whatever text it is given."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir3de.evaluation.accuracy import ReliabilityBin
from ir3de.evaluation.intervals import Estimate
from ir3de.evaluation.pictures import MAX_BLOCK, MAX_WHOLE, Axis, choose_block, find_coverage, find_ticks
from ir3de.evaluation.proof import MAJORITY, TFIDF
from ir3de.evaluation.report import FOLDER, write_page
from ir3de.routing.html import load_templates
from proofs import EACH, NAMES, PROMPTS, make_confusion, make_proof, make_subject

MAX_PAGE_BYTES = 400_000
VOID = ("br", "hr", "img", "input", "link", "meta")  # elements without an end
HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "</style><script>alert(1)</script>",
    '"><svg onload=alert(1)>',
    "'; alert(1); //",
    "<!--",
    "]]>&lt;b&amp;",
    "\x00\x1b[31m\u202ered\ud800",
    "</title></textarea><iframe src=//example.org>",
)


@dataclass
class Page(HTMLParser):
    """The elements of a page in their order, and the texts between them."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)  # the element, and a text in it

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def say(self, *but: str) -> str:
        return " ".join(" ".join(text for tag, text in self.texts if tag not in ("style", "script", *but)).split())


def parse(page: str) -> Page:
    found = Page()
    found.feed(page)
    found.close()
    assert found.open == []
    return found


@pytest.mark.parametrize("experts", [2, 5, 20, 77, 150])
def test_a_page_is_whole_for_few_and_for_many_experts(experts: int) -> None:
    names = [f"expert-{number}" for number in range(experts)]
    written = write_page(make_subject(make_proof(names, prices=True)))
    page = parse(written)
    assert len(written.encode()) < MAX_PAGE_BYTES
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [link["href"] for link in page.all("a")]
    assert len(links) > 6 and {str(link)[1:] for link in links} <= set(ids)
    assert all(header.get("scope") in ("col", "row") for header in page.all("th"))
    pictures = [svg for svg in page.all("svg") if svg.get("role") == "img"]
    assert len(pictures) == 5 and all(svg.get("aria-hidden") for svg in page.all("svg") if svg not in pictures)
    assert sum(text == "expert-0" for tag, text in page.texts if tag == "span") >= 2  # the table, and its words


def test_a_page_asks_for_nothing_and_runs_its_own_script_alone() -> None:
    page = parse(write_page(make_subject()))
    for tag, attributes in page.tags:
        assert tag not in ("img", "iframe", "object", "embed", "form", "base")
        assert not {"src", "srcset", "action", "data", "background", "ping", "poster"} & attributes.keys()
        assert not [name for name in attributes if name.startswith("on")]
    assert {str(link["href"])[:1] for link in page.all("a")} == {"#"}
    assert [link["href"] for link in page.all("link")] == ["data:,"]
    style, script = ("".join(text for tag, text in page.texts if tag == wanted) for wanted in ("style", "script"))
    assert not re.search(r"url\(|@import|https?:", style)
    policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv"))
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy and policy.startswith("default-src 'none';") and policy.endswith(f"script-src 'sha256-{hashed}'")


def test_the_first_screen_has_the_answer() -> None:
    proof = make_proof()
    page = parse(write_page(make_subject(proof))).say().replace("\u202f", " ")
    first = page[: page.index("Where it errs", page.index("times in 100"))]
    accuracy = proof.accuracy
    for share in (accuracy.value, accuracy.low, accuracy.high):
        assert f"{100 * share:.1f}" in first
    for said in (TFIDF, MAJORITY, "+10.0 points", "200 held-out prompts", "5 folds", "1 March 2026, 09:05 UTC"):
        assert said in first
    for said in ("IR3DE 1.2.3", "a1b2c3d4a1b2c3d4", "train.csv", "Blend, Average", "fitted on other prompts"):
        assert said in page
    for command in ("ir3de report router train.csv --label team -o report.html", "ir3de serve --router router"):
        assert command in page


@pytest.mark.parametrize(
    ("tfidf", "majority", "said"),
    [
        (
            Estimate(0.1, 0.05, 0.2),
            Estimate(0.5, 0.4, 0.6),
            f"better than {TFIDF} and than {MAJORITY}",
        ),
        (Estimate(0.0, -0.1, 0.1), Estimate(0.5, 0.4, 0.6), f"Worth deploying: as good as {TFIDF}"),
        (Estimate(-0.1, -0.2, -0.05), Estimate(0.5, 0.4, 0.6), f"Not as it is: {TFIDF} did better"),
        (Estimate(0.1, 0.05, 0.2), Estimate(0.0, -0.1, 0.1), "Not yet: it is not clearly better than no router"),
    ],
)
def test_the_verdict_follows_the_intervals(tfidf: Estimate, majority: Estimate, said: str) -> None:
    proof = make_proof()
    rivals = [replace(one, difference=gap) for one, gap in zip(proof.contenders, (tfidf, majority), strict=True)]
    assert said in parse(write_page(make_subject(replace(proof, contenders=tuple(rivals))))).say()


def test_nothing_is_recommended_on_few_prompts_or_without_a_comparison() -> None:
    few = replace(make_proof(), prompts=20)
    page = parse(write_page(make_subject(few))).say()
    assert "Too early: 20 held-out prompts are few" in page and "coding 10 more" in page
    alone = replace(make_proof(), contenders=())
    assert "Nothing to compare with was measured" in parse(write_page(make_subject(alone))).say()
    no_rival = replace(make_proof(), contenders=make_proof().contenders[1:])
    page = parse(write_page(make_subject(no_rival))).say()
    assert "Not compared with a real rival" in page
    assert "Worth deploying" not in page


def test_parts_that_were_not_measured_are_left_out() -> None:
    proof = replace(make_proof(abstained=0), curve=(), doubling=None, confused=())
    page = parse(write_page(replace(make_subject(proof), words={}, notices=(), digest=None)))
    ids = {attributes.get("id") for attributes in page.all("section")}
    assert ids == {"answer", "errors", "confidence", "experts", "next"}
    assert "abstains on none of these prompts" in page.say()
    whole = {one.get("id") for one in parse(write_page(make_subject(make_proof(prices=True)))).all("section")}
    assert whole == ids | {"abstained", "curve", "cost", "words"}


def test_without_examples_no_prompt_and_no_word_is_shown() -> None:
    subject = make_subject(words=("zebra", "quagga"))
    for text in (*PROMPTS, "zebra", "quagga"):
        assert text in write_page(subject)
        assert text not in write_page(replace(subject, examples=False))
    assert "It shows no text of any prompt." in write_page(replace(subject, examples=False))


BENIGN = write_page(make_subject(make_proof(prices=True)))


@settings(deadline=None, max_examples=25)
@given(st.lists(st.text(min_size=1) | st.sampled_from(HOSTILE), min_size=5, max_size=5, unique=True), st.data())
def test_no_text_changes_the_structure_of_a_page(names: list[str], data: st.DataObject) -> None:
    texts = st.text(min_size=1) | st.sampled_from(HOSTILE)
    prompts = data.draw(st.lists(texts, min_size=3, max_size=3))
    words = data.draw(st.lists(texts, min_size=2, max_size=2))
    page = parse(write_page(make_subject(make_proof(names, prompts, prices=True), words)))
    shape = [(tag, sorted(attributes)) for tag, attributes in page.tags]
    assert shape == [(tag, sorted(attributes)) for tag, attributes in parse(BENIGN).tags]
    assert [text for tag, text in page.texts if tag == "script"] == [
        text for tag, text in parse(BENIGN).texts if tag == "script"
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_shown_is_what_was_given(text: str) -> None:
    page = load_templates(FOLDER).from_string("<p title='{{ text }}'>{{ text }}</p>").render(text=text)
    assert len(parse(page).tags) == 1
    shown = "".join(said for _, said in parse(page).texts)
    kept = [character for character in text if character.isprintable() or character == "\u202e"]
    assert [character for character in shown if character in kept] == kept
    assert not re.search("[\x00-\x08\x0e-\x1f\ud800-\udfff]", shown)


@given(st.integers(2, 60), st.integers(0, 50))
@settings(deadline=None, max_examples=25)
def test_the_block_holds_the_most_confused_experts(experts: int, seed: int) -> None:
    confusion = make_confusion(experts, seed)
    chosen = choose_block(confusion)
    assert len(chosen) == len(set(chosen))
    if experts <= MAX_WHOLE:
        assert chosen == list(range(experts))
        return
    assert 2 <= len(chosen) <= MAX_BLOCK
    both = confusion + confusion.T
    np.fill_diagonal(both, 0)
    assert set(np.argwhere(both == both.max())[0].tolist()) <= set(chosen)


def test_experts_that_are_never_confused_have_no_block() -> None:
    assert choose_block(np.eye(40, dtype=np.int64) * EACH) == []
    names = [f"e{number}" for number in range(40)]
    right = tuple(tuple(EACH * (row == column) for column in range(40)) for row in range(40))
    page = write_page(make_subject(replace(make_proof(names), confusion=right, confused=())))
    assert "No prompt went to another expert than its own." in page


@given(
    st.lists(st.tuples(st.integers(0, 50), st.floats(0, 1)), min_size=10, max_size=10).filter(
        lambda b: any(many for many, _ in b)
    )
)
def test_coverage_is_what_is_answered_from_each_confidence_on(bins: list[tuple[int, float]]) -> None:
    total = sum(many for many, _ in bins)
    found = find_coverage(
        [
            ReliabilityBin(n / 10, n / 10 + 0.1, many, n / 10, right, many / total)
            for n, (many, right) in enumerate(bins)
        ]
    )
    for spot in found:
        above = bins[round(10 * spot.threshold) :]
        answered = sum(many for many, _ in above)
        assert spot.coverage == pytest.approx(answered / total)
        assert spot.accuracy == pytest.approx(sum(many * right for many, right in above) / answered)
    assert found[-1].coverage == pytest.approx(1)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_few_and_within_their_axis(low: float, width: float) -> None:
    ticks = find_ticks(low, low + width)
    assert len(ticks) <= 12
    assert all(low - width / 1e3 <= tick <= low + width * 1.001 for tick in ticks)
    axis = Axis("x", low, low + width)
    assert all(0 <= axis.place(tick) <= 1 for tick in ticks)


def test_every_expert_has_its_colour() -> None:
    page = write_page(make_subject())
    for place, name in enumerate(NAMES):
        assert f'style="--colour:var(--e{place})"></i><span>{name}</span>' in page
