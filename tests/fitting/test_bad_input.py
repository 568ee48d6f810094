"""What users get wrong: each mistake has its error, which says what was found, and leaves the router as it was."""

import math
import pickle

import pytest

import tiny
from ir3de import AllTokens, Average, EntropyTopK, PromptRidge, Router, TokenRidge
from ir3de.errors import InputError, UnknownExpertError
from ir3de.routing.compiled import decide
from ir3de.scorers import CrossEntropy, KernelRidge
from refused import Unchanged, counted, refusal, tiny_fit

# experts --------------------------------------------------------------------------------------------------------


def test_no_experts() -> None:
    assert "at least one expert" in refusal(InputError, tiny_fit, {})
    for wrong in ([], "maths", None, [("maths", ["a"])]):
        assert f"found {type(wrong).__name__}" in refusal(InputError, tiny_fit, wrong)


@pytest.mark.parametrize(
    "scorer",
    [TokenRidge.paper(), TokenRidge.authors(), TokenRidge(), PromptRidge(), CrossEntropy(), KernelRidge(landmarks=9)],
    ids=str,
)
@pytest.mark.parametrize("selector", [EntropyTopK(3), EntropyTopK.authors(3), AllTokens(), Average()], ids=str)
def test_one_expert_gets_everything(scorer: PromptRidge, selector: Average) -> None:
    router = tiny_fit({"only": ["prove it"]}, scorer=scorer, selector=selector)
    for text in ("", "prove it", "anything else", "字"):
        decision = router.route(text)
        assert (decision.best, decision.ranking) == ("only", (("only", 1.0),))
        assert (decision.expert is None) == (text == "")
        assert (decision.confidence, decision.margin) == (1.0, 1.0)


@pytest.mark.parametrize("name", ["", " ", "\t\n", None, 7, b"maths", ("maths",)])
def test_a_name_must_be_a_string_with_something_in_it(name: object) -> None:
    assert f"non-empty string, found {name!r}" in refusal(InputError, tiny_fit, {name: ["a"]})
    with Unchanged() as router:
        assert "non-empty string" in refusal(InputError, router.add, name, ["a"])


@pytest.mark.parametrize("name", ["a\nb", "a\x00", "\x1b[31mred", "tab\t"])
def test_a_name_must_not_hold_control_characters(name: str) -> None:
    assert f"control characters, found {name!r}" in refusal(InputError, tiny_fit, {name: ["a"]})
    with Unchanged() as router:
        assert "control characters" in refusal(InputError, router.add, name, ["a"])


def test_a_name_must_be_one_that_can_be_written_down() -> None:
    assert r"found 'a\ud800'" in refusal(InputError, tiny_fit, {"a\ud800": ["a"]})


def test_an_expert_cannot_be_added_twice() -> None:
    with Unchanged() as router:
        message = refusal(InputError, router.add, "law", ["a"])
        assert "'law' is an expert already" in message
        assert "merge" in message


@pytest.mark.parametrize("name", ["physics", "", None, 7])
def test_an_unknown_expert_cannot_be_changed(name: object) -> None:
    with Unchanged() as router:
        for action in (lambda: router.remove(name), lambda: router.merge(name, ["a"])):
            assert refusal(UnknownExpertError, action) == f"no expert '{name}': this router has maths, law, cooking"


def test_the_last_expert_stays() -> None:
    router = tiny_fit({"only": ["prove it"]})
    assert "'only' is the only expert" in refusal(InputError, router.remove, "only")
    assert router.route("prove it").expert == "only"


def test_the_default_must_be_an_expert() -> None:
    assert "'physics' is not among maths" in refusal(UnknownExpertError, tiny_fit, {"maths": ["a"]}, default="physics")


# texts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("texts", [[], [""], ["", ""], iter(())])
def test_an_expert_needs_text(texts: object) -> None:
    assert "expert 'maths' has no text" in refusal(InputError, tiny_fit, {"maths": texts})
    with Unchanged() as router:
        assert "expert 'new' has no text" in refusal(InputError, router.add, "new", texts)
        assert "expert 'law' has no text" in refusal(InputError, router.merge, "law", texts)


def test_an_expert_needs_tokens() -> None:
    router = tiny.router(of=tiny.word_embedding())
    assert "expert 'new' has no text" in refusal(InputError, router.add, "new", [" ", "\n"])


@pytest.mark.parametrize("texts", ["one string", b"bytes", None, 7])
def test_one_string_is_not_a_list_of_texts(texts: object) -> None:
    assert "iterable of str" in refusal(InputError, tiny_fit, {"maths": texts})
    assert "iterable of str" in refusal(InputError, counted, texts)
    with Unchanged() as router:
        for action in (router.add, router.merge):
            assert "iterable of str" in refusal(InputError, action, "law" if action == router.merge else "new", texts)


@pytest.mark.parametrize(("wrong", "found"), [(7, "int"), (None, "NoneType"), (b"x", "bytes"), (["x"], "list")])
def test_texts_are_strings(wrong: object, found: str) -> None:
    assert f"found {found}" in refusal(InputError, counted, ["fine", wrong])
    assert f"found {found}" in refusal(InputError, tiny_fit, {"maths": iter(["fine", wrong])})
    with Unchanged() as router:
        assert f"found {found}" in refusal(InputError, router.add, "new", ["fine", wrong])
        assert f"expected one text (str), found {found}" in refusal(InputError, router.route, wrong)
        assert f"expected one text (str), found {found}" in refusal(InputError, router.explain, wrong)
        assert f"text 1 is {found}, not str" in refusal(InputError, router.route_batch, ["fine", wrong])


def test_several_texts_for_route_are_sent_to_route_batch() -> None:
    with Unchanged() as router:
        assert refusal(InputError, router.route, ["one", "two"]).endswith("found list: several go to route_batch")


def test_a_missing_text_is_named_with_its_expert() -> None:
    told = refusal(InputError, tiny_fit, {"maths": ["Solve x."], "law": ["fine", float("nan")]})
    assert told.startswith("expert 'law': the text at index 1 must be a str") and "dropna()" in told


@pytest.mark.parametrize(("name", "advice"), [("holdout", "split_held_out"), ("cv", "prove"), ("xyz", "skip_bad")])
def test_an_option_that_a_fit_does_not_have_says_what_there_is(name: str, advice: str) -> None:
    with pytest.raises(TypeError, match=f"unexpected argument '{name}'.*{advice}"):
        tiny_fit({"maths": ["Solve x."], "law": ["Is it void?"]}, **{name: 5})


@pytest.mark.parametrize("texts", ["one string", b"bytes", None, 7])
def test_a_batch_is_a_list_of_texts(texts: object) -> None:
    with Unchanged() as router:
        assert "iterable of str" in refusal(InputError, router.route_batch, texts)


def test_a_source_that_breaks_leaves_the_router_alone() -> None:
    def broken() -> object:
        yield "prove"
        raise RuntimeError("the file went away")

    with Unchanged() as router:
        for action in (lambda: router.add("new", broken()), lambda: router.merge("law", broken())):
            with pytest.raises(RuntimeError, match="went away"):
                action()


# prompts that say nothing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("default", [None, "law"])
@pytest.mark.parametrize("selector", [EntropyTopK(3), AllTokens(), Average()], ids=str)
def test_a_prompt_without_a_known_token_goes_to_the_default(default: str | None, selector: Average) -> None:
    router = tiny.router(of=tiny.word_embedding(), selector=selector, default=default)
    assert router.default == default
    for text, tokens in [("", 0), ("  \n\t", 0), ("zzz", 1), ("zzz qqq 字", 3), ("zzz " * 2_000, 1_024)]:
        for decision in (router.route(text), *router.route_batch([text]), router.explain(text).decision):
            assert (decision.expert, decision.reason, decision.counted) == (default, "no known token", 0)
            assert decision.tokens == tokens
            assert decision.ranking[0][0] == (default or decision.best)
            assert [share for _, share in decision.ranking] == [0.0] * 3
            assert (decision.confidence, decision.margin, decision.in_domain) == (0, 0, 0)
    assert router.route("zzz prove").reason != "no known token"
    unlearnt = tiny.router(of=tiny.word_embedding(), selector=selector, default=default, keep_sample=False).route("zzz")
    assert (unlearnt.expert, unlearnt.in_domain, unlearnt.confidence) == (default, None, 1 / 3)


def test_bytes_know_every_text_but_the_empty_one() -> None:
    router = tiny.router(default="cooking")
    assert router.route("").abstained
    assert router.route("").expert == "cooking"
    for text in (" ", "\n", "\x00", "字", "\ud800"):
        found = router.route(text)
        assert found.counted and found.confidence and found.reason in ("", "out of domain")


def test_when_its_default_is_removed_a_router_has_none() -> None:
    router = tiny.router(default="law")
    router.add("new", ["something"])
    assert router.route("").expert == "law"
    router.remove("maths")
    assert router.route("").expert == "law"
    router.remove("law")
    assert (router.default, router.route("").expert) == (None, None)


# strange texts --------------------------------------------------------------------------------------------------


def test_nul_bytes_are_text() -> None:
    router = tiny.router()
    alone, around = counted(["\x00"]), counted(["prove", " it"])
    assert alone.tokens == 1
    assert router.route("prove\x00 it").tokens == around.tokens + 1
    assert (counted(["prove\x00 it"]).histogram == alone.histogram + around.histogram).all()


def test_lone_surrogates_read_as_the_replacement_character() -> None:
    router = tiny.router()
    strange, plain = "prove \ud800 it \udfff", "prove \ufffd it \ufffd"
    assert router.route(strange) == router.route(plain)
    assert router.route_batch(["a", strange]) == router.route_batch(["a", plain])
    assert router.explain(strange).to_dict() == router.explain(plain).to_dict()
    assert counted([strange]) == counted([plain])


def test_ten_megabytes_are_a_prompt() -> None:
    router = tiny.router()
    text = "prove the sum " * (10_000_000 // 14)
    start = router.tokenizer.encode(text[:10_000])
    assert len(start) > 1_024
    decision = router.route(text)
    assert decision.tokens == 1_024  # no more are read
    assert (decision.counted, decision.abstained) == (1_024, False)
    assert decision.ranking == decide(router.compiled, start[:1_024], None).ranking
    assert [decision] == router.route_batch([text])


# parameters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1, 65_537, 2.5, math.nan, math.inf, "10", None])
def test_k_and_cap_have_limits(value: object) -> None:
    for make, name in [
        (lambda: EntropyTopK(value), "k"),
        (lambda: EntropyTopK(5, cap=value), "cap"),
        (lambda: EntropyTopK.authors(value), "k"),
        (lambda: AllTokens(cap=value), "cap"),
        (lambda: Average(cap=value), "cap"),
    ]:
        message = refusal(InputError, make)
        assert message == f"{name} must be a whole number of tokens between 1 and 65,536, found {value!r}"


def test_ties_and_sharpness_are_checked() -> None:
    for make in (lambda: EntropyTopK(5, ties="random"), lambda: AllTokens(ties="random")):
        assert refusal(InputError, make) == "ties must be one of probability, order, found 'random'"
    for sharpness in (0, -1, math.nan, math.inf):
        assert f"positive number, found {sharpness}" in refusal(InputError, Average, sharpness=sharpness)


def test_the_largest_k_and_cap_work() -> None:
    for selector in (EntropyTopK(65_536, 65_536), AllTokens(65_536), Average(65_536)):
        decision = tiny.router(selector=selector).route("!" * 70_000)
        assert (decision.tokens, decision.counted) == (65_536, 65_536)
        assert sum(share for _, share in decision.ranking) == pytest.approx(decision.in_domain)
        assert sum(share for _, share in decision.ranking) == pytest.approx(0, abs=0.01)  # far from every domain


@pytest.mark.parametrize(
    ("option", "values", "limits"),
    [
        ("window", [0, -3, 8_193, 2.5, "64", None], "between 1 and 8,192"),
        ("subsample", [0, -3, 2**20 + 1, 2.5, "8", None], "between 1 and 1,048,576"),
        ("cap", [0, -3, 2.5, "64"], "at least 1"),
    ],
)
def test_ways_of_collecting_have_limits(option: str, values: list[object], limits: str) -> None:
    for value in values:
        message = refusal(InputError, counted, ["a"], **{option: value})
        assert option in message
        assert limits in message
        assert f"found {value!r}" in message


@pytest.mark.parametrize("strength", [0, 0.0, -1e-9, -1, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("scorer", [TokenRidge, PromptRidge, CrossEntropy, KernelRidge])
def test_strength_is_a_positive_number(scorer: type[PromptRidge], strength: float) -> None:
    message = refusal(InputError, scorer, strength)
    assert "must be a positive number" in message
    assert f"found {strength}" in message


def test_strategies_are_objects_not_names() -> None:
    for wrong in ({"scorer": "paper"}, {"selector": "average"}, {"embedding": "default"}):
        (name,) = wrong
        assert f"{name} must be an" in refusal(InputError, Router.fit, {"law": ["Is this contract void?"]}, **wrong)
    for wrong, like in (
        (("scorer", TokenRidge), "ir3de.scorers.Blend()"),
        (("selector", Average), "ir3de.selectors.Average()"),
    ):
        options = dict([wrong])  # the class, without the brackets that make an object of it
        assert f"must be an object such as {like}" in refusal(InputError, tiny_fit, {"law": ["prove it"]}, **options)
    for strength in ("a", None, "1"):
        assert "strength (λ) must be a positive number" in refusal(InputError, TokenRidge, strength=strength)


def test_a_pickled_decision_is_small() -> None:
    router = tiny.router()
    decision = router.route("prove it")
    assert pickle.loads(pickle.dumps(decision)) == decision
    assert len(pickle.dumps(decision)) < 2_000  # no table goes along
