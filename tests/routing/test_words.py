"""Explanations by word: what is a word, and contributions that add up to the lead of the best expert."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de import AllTokens, Average, EntropyTopK, Router
from ir3de.routing.explanation import MAX_COMPARED, Explanation
from ir3de.routing.words import find_words
from ir3de.scorers import Blend
from ir3de.selectors import find_unit
from laws import STRANGE, wordy

ROUTERS = {
    "average": lambda: tiny.router(),
    "pairs": lambda: tiny.router(scorer=Blend(0.5, 0.5)),
    "votes of a few": lambda: tiny.router(selector=EntropyTopK(3)),
    "votes of all, unknown tokens": lambda: tiny.router(of=tiny.word_embedding(), selector=AllTokens()),
    "unknown tokens": lambda: tiny.router(of=tiny.word_embedding()),
    "short cap": lambda: tiny.router(selector=Average(cap=5), scorer=Blend(0.5, 0.5)),
    "one expert": lambda: Router.fit({"law": tiny.sentences("law", 5)}, embedding=tiny.embedding()),
}
_MADE: dict[str, Router] = {}


def made(kind: str) -> Router:
    if kind not in _MADE:
        _MADE[kind] = ROUTERS[kind]()
    return _MADE[kind]


def lead_of_the_tally(router: Router, text: str, found: Explanation) -> float:
    """The tally of the best expert minus that of the next one, from the ballots."""
    if found.decision.reason == "no known token":
        return 0.0
    ids = router.tokenizer.encode(text)[: router.selector.cap]
    tally = router.compiled.ballots.tally(ids)[: len(router.experts)] / find_unit(router.selector)
    first, *others = [tally[router.experts.index(name)] for name in found.compared]
    return float(first - (others[0] if others else 0))


# what is a word -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["Can", " my", " land", "lord", "?"], ["Can", " my", " landlord", "?"]),
        (["don", "'t", " “", "quote", "”"], ["don't", " “", "quote", "”"]),
        (["3", ".", "1", "4", ".", " x", "_", "1"], ["3.14", ".", " x_1"]),
        (["well", "-", "known", " --", "--", "..."], ["well", "-", "known", " ----", "..."]),
        (["if", ":", "\n", "  ", " return", " "], ["if", ":", "\n  ", " return", " "]),
        ([" ", "5", " ", "", "字"], [" 5", " 字"]),
        (["租", "房", "合同", "吗", "？"], ["租", "房", "合同", "吗", "？"]),
        (["こん", "にちは", "世界"], ["こん", "にちは", "世界"]),
        (["สวัส", "ดี", "ครับ"], ["สวัส", "ดี", "ครับ"]),
        (["ก", "\u0e31", "น"], ["ก\u0e31", "น"]),
        (["Miet", "ver", "trag", " kün", "digen"], ["Mietvertrag", " kündigen"]),
        (["договор", "а", " арен", "ды"], ["договора", " аренды"]),
        (["किर", "ाया", " दे"], ["किराया", " दे"]),
        (["집", "주인", "이"], ["집주인이"]),
        (["عقد", " إي", "جار"], ["عقد", " إيجار"]),
        (["", "", "🙂", "👩", "\u200d", "🚀"], ["🙂", "👩\u200d🚀"]),
        (["contract ", "void ", "of the"], ["contract ", "void ", "of the"]),
        ([], []),
        (["", ""], [""]),
    ],
)
def test_words_of_several_scripts(pieces: list[str], words: list[str]) -> None:
    starts = find_words(pieces).tolist()
    ends = [*starts[1:], len(pieces)]
    assert ["".join(pieces[first:end]) for first, end in zip(starts, ends, strict=False)] == words


@tiny.LAW
@given(st.lists(st.text("ab '.字5\n\u0301🙂", max_size=3), max_size=12))
def test_no_token_is_cut_or_lost(pieces: list[str]) -> None:
    starts = find_words(pieces).tolist()
    assert starts == sorted(set(starts)) and starts[:1] == [0][: len(pieces)]
    assert all(start < len(pieces) for start in starts)


# contributions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ROUTERS)
@tiny.LAW
@given(text=wordy | st.text(max_size=30) | st.sampled_from(STRANGE))
def test_contributions_add_up_to_the_difference_of_the_tallies(kind: str, text: str) -> None:
    router = made(kind)
    found = router.explain(text)
    assert sum(word.contribution for word in found.words) == lead_of_the_tally(router, text, found)
    assert "".join(word.text for word in found.words) == "".join(token.text for token in found.tokens)
    places = [place for word in found.words for place in range(word.first, word.first + word.tokens)]
    assert places == list(range(len(found.tokens)))
    for word in found.words:
        assert word.contribution == word.scores[0] - (word.scores[1] if len(found.compared) > 1 else 0)
        assert word.counted == any(token.counted for token in found.tokens[word.first :][: word.tokens])
    assert found.compared[0] == found.decision.best and len(found.compared) == len(router.experts)
    assert json.dumps(found.to_dict())


def test_pairs_are_credited_by_halves_and_within_a_word_wholly() -> None:
    router = made("pairs")
    compiled, text = router.compiled, "contract landlord"
    found = router.explain(text)
    ids = router.tokenizer.encode(text)
    left, right = found.words
    assert left.tokens > 1  # pairs within the word count too
    best, other = map(router.experts.index, found.compared[:2])
    unit = find_unit(router.selector)

    def alone(some: np.ndarray) -> float:
        tally = compiled.ballots.tally(some) / unit
        return float(tally[best] - tally[other])

    meeting = alone(ids) - alone(ids[: left.tokens]) - alone(ids[left.tokens :])
    assert meeting != 0
    assert left.contribution == alone(ids[: left.tokens]) + meeting / 2
    assert right.contribution == alone(ids[left.tokens :]) + meeting / 2


def test_the_words_of_each_domain_speak_for_it() -> None:
    texts = {name: tiny.sentences(name, 40) for name in ("cooking", "law")}
    router = Router.fit(texts, embedding=tiny.word_embedding(), scorer=Blend())
    found = router.explain("court onion landlord")
    assert found.compared == ("law", "cooking")
    assert [word.contribution > 0 for word in found.words] == [True, False, True]


@pytest.mark.parametrize("kind", ["unknown tokens", "votes of all, unknown tokens"])
def test_a_prompt_of_unknown_tokens_alone_has_words_that_say_nothing(kind: str) -> None:
    found = made(kind).explain("zzz qqq")
    assert found.decision.reason == "no known token"
    assert [(word.text, word.contribution, word.counted) for word in found.words] == [
        ("zzz ", 0.0, False),
        ("qqq", 0.0, False),
    ]


@pytest.mark.parametrize("kind", ROUTERS)
def test_an_empty_prompt_has_no_words(kind: str) -> None:
    assert made(kind).explain("").words == made(kind).explain("").tokens == ()


def test_a_thousand_words() -> None:
    router, text = made("pairs"), " ".join(["landlord", "egg", "prime", "don't"] * 250)
    found = router.explain(text)
    assert len(found.tokens) == router.selector.cap == found.decision.tokens
    assert sum(word.contribution for word in found.words) == lead_of_the_tally(router, text, found)
    whole = made("unknown tokens").explain(" ".join(["landlord", "egg"] * 500))
    assert len(whole.words) == 1000 and len({word.contribution for word in whole.words}) == 2


def test_of_many_experts_the_best_five_are_compared() -> None:
    texts = {f"expert {number}": tiny.sentences("law", 3, seed=number) for number in range(9)}
    router = Router.fit(texts, embedding=tiny.embedding(), scorer=Blend())
    found = router.explain("Can my landlord evict me?")
    assert found.compared == tuple(name for name, _ in found.decision.quality[:MAX_COMPARED])
    assert all(len(word.scores) == MAX_COMPARED for word in found.words)
    assert found.to_dict()["compared"] == list(found.compared)


def test_words_of_an_outcome_router_are_compared_with_a_prompt_that_says_nothing() -> None:
    rows = [
        {"text": text, "task": task, "scores": {"one": 0.1 + 0.8 * (task == "law"), "two": 0.5}}
        for task in tiny.DOMAINS
        for text in tiny.sentences(task, 20)
    ]
    router = Router.fit_outcomes(rows, embedding=tiny.word_embedding())
    rest = dict(router.route("zzz").ranking)
    for word in router.explain("landlord boil court").words:
        alone = dict(router.route(word.text).ranking)
        gained = {name: alone[name] - rest[name] for name in alone}
        found = dict(zip(router.explain("landlord boil court").compared, word.scores, strict=True))
        assert found == pytest.approx(gained, abs=1e-5)
