"""Perturbations do what they say, to the same text always the same; the report agrees with counting by hand."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import ir3de_lab.robustness
from ir3de import Embedding, EntropyTopK, TokenRidge
from ir3de.corpora import examples as demo
from ir3de.errors import InputError, UnknownExpertError
from ir3de_lab.benchmarks.robustness import find_suites
from ir3de_lab.robustness import (
    BOILERPLATE,
    DEFAULT_PERTURBATIONS,
    MIXED_TOKENS,
    Case,
    DroppedWords,
    FirstTokens,
    Mixed,
    Perturbation,
    Setting,
    Typos,
    Wrapped,
    measure_robustness,
)
from tiny import LAW, domain_texts, embedding, router, word_embedding

TEXTS = st.text(max_size=200) | st.lists(st.sampled_from(["Prove", "the", "contract,", "café", "12", "STRASSE\n"])).map(
    " ".join
)
SHARES = st.floats(0, 1)


def setting(*, seed: int = 0, words: bool = False) -> Setting:
    tokenizer = (word_embedding() if words else embedding()).tokenizer
    return Setting(tokenizer, {"law": ["Is this contract void?"], "cooking": ["Boil an egg.", "Bread?"]}, seed)


@pytest.mark.parametrize("kind", [Typos(0), DroppedWords(0), Mixed(0)], ids=str)
@LAW
@given(text=TEXTS)
def test_a_share_of_nothing_leaves_the_text_alone(kind: Perturbation, text: str) -> None:
    assert kind.apply(text, setting()) == text


@pytest.mark.parametrize("kind", DEFAULT_PERTURBATIONS, ids=str)
@LAW
@given(text=TEXTS)
def test_the_same_text_is_perturbed_the_same_way(kind: Perturbation, text: str) -> None:
    assert kind.apply(text, setting()) == kind.apply(text, setting())


def test_another_seed_or_text_draws_otherwise() -> None:
    text = demo.prompts()["law"][0]
    assert Typos(1).apply(text, setting()) != Typos(1).apply(text, setting(seed=1))
    word = "contract"
    assert len({Typos(1).apply(f"{word} {number}", setting()).split()[0] for number in range(50)}) > 5


@LAW
@given(text=TEXTS, share=SHARES)
@example(text="0000F m¹Ë\U00083e9700¹Øò03", share=1.0)
def test_a_typo_is_one_slip_inside_a_word(text: str, share: float) -> None:
    before, after = text.split(), Typos(share).apply(text, setting()).split()
    assert len(before) == len(after)  # no space comes or goes
    for old, new in zip(before, after, strict=True):
        words = len(ir3de_lab.robustness._WORD.findall(old))  # between two spaces there may be several
        assert abs(len(new) - len(old)) <= words
        if words == 1:
            assert old[:1].casefold() == new[:1].casefold() or sorted(old) == sorted(new)
        if not any(letter.isalpha() for letter in old):
            assert old == new


def test_every_kind_of_slip_occurs() -> None:
    made = {Typos(1).apply(f"law {number}", setting()).split()[0] for number in range(400)}
    assert {"alw", "lwa", "la", "lw", "laaw", "laww", "lsw", "lae", "laq"} == made


@LAW
@given(text=TEXTS, shares=st.tuples(SHARES, SHARES))
def test_a_larger_share_touches_the_same_words_and_more(text: str, shares: tuple[float, float]) -> None:
    less, more = (Typos(share).apply(text, setting()).split() for share in sorted(shares))
    for old, new, further in zip(text.split(), less, more, strict=True):
        assert new in (old, further) or not old.isalpha()
    fewer, most = (DroppedWords(share).apply(text, setting()).split() for share in sorted(shares))
    assert is_subsequence(most, fewer)


def test_shares_are_kept_on_average() -> None:
    text = " ".join(f"word{number}" for number in range(4_000))
    assert 2_600 < len(DroppedWords(0.3).apply(text, setting()).split()) < 3_000
    mistyped = zip(text.split(), Typos(0.3).apply(text, setting()).split(), strict=True)
    assert 1_000 < sum(old != new for old, new in mistyped) < 1_400


@LAW
@given(text=TEXTS, share=SHARES)
def test_dropped_words_leave_the_others_in_order(text: str, share: float) -> None:
    left = DroppedWords(share).apply(text, setting()).split()
    assert is_subsequence(left, text.split())
    assert bool(left) == bool(text.split())


def test_dropping_everything_keeps_one_word() -> None:
    assert DroppedWords(1).apply("Is this contract void?", setting()) in ("Is", "this", "contract", "void?")


@pytest.mark.parametrize("to", ["upper", "lower", "random"])
@LAW
@given(text=TEXTS)
def test_case_is_all_that_changes(to: str, text: str) -> None:
    assert Case(to).apply(text, setting()).casefold() == text.casefold()  # type: ignore[arg-type]


@pytest.mark.parametrize("length", ["short", "medium", "long"])
@LAW
@given(text=TEXTS)
def test_boilerplate_is_the_same_around_every_prompt(length: str, text: str) -> None:
    kind = Wrapped(length)  # type: ignore[arg-type]
    before, after = BOILERPLATE[kind.boilerplate]
    assert kind.apply(text, setting()) == kind.wrap(text) == before + text + after


def test_cases() -> None:
    text = "Is a Straße dotless, ı?"
    assert Case("lower").apply(text, setting()) == "is a straße dotless, ı?"
    assert Case("upper").apply(text, setting()) == "IS A STRASSE DOTLESS, ı?"  # I would read as i
    assert Case("random").apply(text * 9, setting()) not in (text * 9, text.lower() * 9, text.upper() * 9)


@pytest.mark.parametrize("words", [False, True])
@LAW
@given(text=TEXTS, count=st.integers(1, 40))
def test_a_cut_leaves_a_beginning_of_so_many_tokens(words: bool, text: str, count: int) -> None:
    around = setting(words=words)
    cut = FirstTokens(count).apply(text, around)
    whole = around.tokenizer.encode(text)
    assert text.startswith(cut)
    assert len(around.tokenizer.encode(cut)) <= count
    assert cut == text if len(whole) <= count else cut != text


@pytest.mark.slow
@pytest.mark.parametrize("count", [16, 32, 128])
def test_a_cut_prompt_has_the_first_tokens_of_the_whole(count: int) -> None:
    tokenizer = Embedding.default().tokenizer
    around = Setting(tokenizer, {})
    for text in ("\n".join(demo.prompts()["coding"]), " " * 5_000 + "x y " * 200, "word" * 900):
        cut = FirstTokens(count).apply(text, around)
        assert tokenizer.encode(cut).tolist() == tokenizer.encode(text)[:count].tolist()


@LAW
@given(seed=st.integers(0, 1_000), share=st.floats(0, 0.49), length=st.integers(1, 900))
def test_the_first_domain_has_the_larger_part_of_a_mixed_prompt(seed: int, share: float, length: int) -> None:
    draw = Random(seed)
    text = " ".join(draw.choices(["prove", "the", "sum"], k=length))
    around = setting(seed=seed)
    tokens = around.tokenizer.encode
    made = Mixed(share).apply(text, around)
    domain, other = Mixed(share).choose_partner(text, around)
    assert other in around.others[domain]
    if made != text:
        own = next(cut for cut in range(len(text), 0, -1) if made.startswith(text[:cut] + " "))
        begun, part = made[:own], made[own + 1 :]
        assert other.startswith(part) and text.startswith(begun)
        assert len(tokens(part)) <= share / (1 - share) * len(tokens(begun)) + 1e-9
        assert len(tokens(begun)) + len(tokens(part)) <= MIXED_TOKENS


def test_a_perturbation_that_cannot_be_is_refused() -> None:
    for make in (lambda: Typos(1.5), lambda: DroppedWords(-0.1), lambda: Mixed(0.5)):
        with pytest.raises(InputError, match="share must lie between 0 and"):
            make()
    with pytest.raises(InputError, match="at least 1, found 0"):
        FirstTokens(0)
    with pytest.raises(InputError, match="one of upper, lower, random, found 'title'"):
        Case("title")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="one of short, medium, long, found 'endless'"):
        Wrapped("endless")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a second domain"):
        Mixed(0.2).apply("Is it void?", Setting(embedding().tokenizer, {}))


class Untouched:
    """The identity."""

    name = "untouched"

    def apply(self, text: str, setting: Setting) -> str:
        return text


def test_untouched_prompts_flip_no_route() -> None:
    report = measure_robustness(router(), domain_texts(seed=1), perturbations=[Untouched(), DroppedWords(0)])
    for effect in report.effects:
        assert (effect.flipped, effect.change, effect.either) == (0.0, 0.0, None)
        assert effect.accuracy == report.accuracy


@pytest.mark.parametrize("voting", [False, True])
def test_the_report_agrees_with_counting_by_hand(voting: bool) -> None:
    options = {"scorer": TokenRidge.paper(), "selector": EntropyTopK(3)} if voting else {}
    fitted, domains = router(**options), domain_texts(20, seed=2)
    report = measure_robustness(fitted, domains, perturbations=[Typos(0.5), Mixed(0.4)], seed=5)
    assert report.prompts == 60
    for kind, effect in zip((Typos(0.5), Mixed(0.4)), report.effects, strict=True):
        right = flipped = either = whole = 0
        for name, texts in domains.items():
            around = Setting(fitted.tokenizer, {n: t for n, t in domains.items() if n != name}, 5)
            for text in texts:
                decisions = fitted.route_batch([text, kind.apply(text, around)])
                before, route = (decision.expert or decision.best for decision in decisions)
                right, whole, flipped = right + (route == name), whole + (before == name), flipped + (route != before)
                if isinstance(kind, Mixed):
                    either += route in (name, kind.choose_partner(text, around)[0])
        assert effect.accuracy == pytest.approx(right / 60) and effect.flipped == pytest.approx(flipped / 60)
        assert effect.change == pytest.approx((right - whole) / 60)
        assert effect.either == (pytest.approx(either / 60) if isinstance(kind, Mixed) else None)


def test_batches_and_order_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, domains = router(), domain_texts(20, seed=3)
    whole = measure_robustness(fitted, domains)
    monkeypatch.setattr(ir3de_lab.robustness, "BATCH_PROMPTS", 3)
    turned = {name: texts[::-1] for name, texts in reversed(domains.items())}
    again = measure_robustness(fitted, turned)
    for one, other in zip(whole.effects, again.effects, strict=True):
        found = pytest.approx((other.accuracy, other.flipped, other.either or 0.0))
        assert (one.accuracy, one.flipped, one.either or 0.0) == found


def test_every_usual_perturbation_is_reported_and_the_report_is_plain_json() -> None:
    report = measure_robustness(router(), domain_texts(3))
    said = json.loads(json.dumps(report.to_dict()))
    assert [effect["perturbation"] for effect in said["effects"]] == [kind.name for kind in DEFAULT_PERTURBATIONS]
    assert len({kind.name for kind in DEFAULT_PERTURBATIONS}) == len(DEFAULT_PERTURBATIONS)
    alone = measure_robustness(router(), {"law": domain_texts(3)["law"]})
    assert len(alone.effects) == len([kind for kind in DEFAULT_PERTURBATIONS if not isinstance(kind, Mixed)])


def test_nothing_to_perturb_is_an_error() -> None:
    fitted = router()
    with pytest.raises(UnknownExpertError, match="'history'"):
        measure_robustness(fitted, {"history": ["Who?"]})
    for domains, message in (({}, "at least one domain"), ({"law": []}, "'law' has no prompt")):
        with pytest.raises(InputError, match=message):
            measure_robustness(fitted, domains)
    with pytest.raises(InputError, match="pass a list, found generator"):
        measure_robustness(fitted, {"law": (text for text in ["void?"])})  # type: ignore[dict-item]


def is_subsequence(part: list[str], whole: list[str]) -> bool:
    remaining: Iterator[str] = iter(whole)
    return all(word in remaining for word in part)


def test_sets_of_intents_are_suites_whose_labels_are_domains(tmp_path: Path) -> None:
    rows = {"train": [("pay", "how do I pay"), ("lost", "I lost my card")], "test": [("lost", "my card is gone")]}
    for name in ("banking77", "unused"):
        for split, pairs in rows.items():
            path = tmp_path / "intents" / name / f"{split}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for label, text in pairs))
    (suite,) = find_suites(tmp_path)
    assert (suite.name, suite.in_order) == ("banking77", ("lost", "pay"))
    assert suite.texts("lost", "train") == ["I lost my card"]
    assert suite.texts("pay", "test") == []
    assert suite.texts("pay", "ood") == []
