"""What is learnt of prompts that are out of domain: the weights of least loss, from experts left out in turn."""

import math
import pickle
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de import Average, Router, Statistics, TokenRidge
from ir3de.corpora import background as built_in
from ir3de.fitting import membership_examples
from ir3de.fitting.membership import PRIOR, PRIOR_PROMPTS, fit_weights
from ir3de.fitting.membership_examples import MAX_GROUPS, Examples, make_examples
from ir3de.fitting.tuning import ConfidenceSetting
from ir3de.scorers import Blend
from laws import counted, seeds

LARGEST_ODDS = math.log(9)  # those of nine tenths


def background() -> Statistics:
    return counted(built_in.prompts(), prompt_sums=False, keep_sample=True)


def experts(number: int, prompts: int = 12, **options: object) -> list[Statistics]:
    """Statistics of made-up domains, each of them twice or more often with other prompts where there are many."""
    names = list(tiny.DOMAINS)
    return [
        counted(tiny.sentences(names[place % len(names)], prompts, seed=place), keep_sample=True, **options)
        for place in range(number)
    ]


def examples(seed: int, number: int = 200, signs: tuple[int, ...] = (1, 1, 1, 1, 1), gap: float = 1.0) -> Examples:
    """Known prompts whose features lie above those of the others by `gap` each, or below where the sign is −1."""
    rng = np.random.default_rng(seed)
    is_known = rng.random(number) < 0.5
    is_known[:2] = True, False
    features = rng.standard_normal((number, 5)) + gap * is_known[:, None] * np.array(signs)
    features[:, 1] = np.minimum(0.0, features[:, 1])
    return Examples(features, is_known, np.full(number, 1.0 / number), np.zeros(number, np.int64))


def loss(some: Examples, b: np.ndarray) -> float:
    """−Σ w log p(what it is), and the pull to the prior: prompt by prompt."""
    total = 0.0
    for x, known, w in zip(some.features, some.is_known, some.weights, strict=True):
        z = b[0] + float(np.dot(b[1:], x))
        total += w * math.log1p(math.exp(-z if known else z))
    penalty = PRIOR_PROMPTS / some.is_known.sum()
    pulls = [1e-3, *[1.0] * 5]
    return total + sum(
        0.5 * penalty * pull * (one - prior) ** 2 for one, prior, pull in zip(b, PRIOR, pulls, strict=True)
    )


# the weights ------------------------------------------------------------------------------------------------------


@tiny.LAW
@given(seeds, st.sampled_from(list(product((1, -1), repeat=5))))
def test_the_weights_have_the_least_loss_of_those_not_below_zero(seed: int, signs: tuple[int, ...]) -> None:
    some = examples(seed, 60, signs)
    found = np.array(fit_weights([some]))
    assert (found[1:] >= 0).all()
    least = loss(some, found)
    for place, step in product(range(6), (1e-3, -1e-3, 0.1, -0.1)):
        other = found.copy()
        other[place] += step
        if place == 0 or other[place] >= 0:
            assert loss(some, other) > least
    slopes = [(loss(some, found + d) - loss(some, found - d)) / 2e-5 for d in 1e-5 * np.eye(6)]
    for place, slope in enumerate(slopes):  # flat, or it would only fall below zero
        assert slope == pytest.approx(0, abs=1e-6) or (place and found[place] == 0 and slope > 0)


def test_a_feature_that_speaks_against_what_it_means_weighs_nothing() -> None:
    _, familiarity, strangeness, certainty, *_ = fit_weights([examples(1, 2_000, (-1, 1, 1, 1, 1), gap=3.0)])
    assert familiarity == 0 and strangeness > 0 and certainty > 0


@pytest.mark.parametrize("gap", [10.0, 1e3, 1e6])
@pytest.mark.parametrize("number", [4, 400])
def test_examples_that_are_told_apart_for_sure_do_not_make_weights_without_end(gap: float, number: int) -> None:
    found = fit_weights([examples(3, number, gap=gap)])
    assert all(math.isfinite(one) for one in found)
    assert max(map(abs, found[1:])) < 10


def test_few_examples_leave_the_weights_as_they_are() -> None:
    one = examples(5, 2)
    few, many = (np.array(fit_weights([replace_number(one, times)])) for times in (1, 1_000))
    assert np.abs(few - PRIOR)[1:].max() < 0.1 < np.abs(many - PRIOR)[1:].max()


def replace_number(some: Examples, times: int) -> Examples:
    parts = (
        np.repeat(part, times, axis=0) for part in (some.features, some.is_known, some.weights / times, some.kinds)
    )
    return Examples(*parts)


# experts left out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "sets"), [(2, 1), (3, 3), (MAX_GROUPS, MAX_GROUPS), (MAX_GROUPS + 2, MAX_GROUPS)])
def test_every_expert_plays_the_unknown_once(number: int, sets: int) -> None:
    made = make_examples(experts(number), tiny.embedding(), background())
    assert len(made) == sets
    left_out = sorted(place for one in made for place in set(range(number)) - set(one.known.tolist()))
    assert left_out == (list(range(number)) if number > 2 else [])  # of two, one that remains would always be certain
    for one in made:
        assert one.is_known.any() and not one.is_known.all()
        assert one.weights.sum() == pytest.approx(1)
        assert one.weights[one.is_known].sum() == pytest.approx(0.5)
        assert np.isfinite(one.features).all()


def test_of_many_experts_some_play_known_and_unknown_whatever_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_examples, "MAX_EXPERTS", 4)
    own, beside = experts(7), background()
    made = make_examples(own, tiny.embedding(), beside)
    used = {place for one in made for place in one.known.tolist()}
    assert len(used) == 4
    assert {place for one in made for place in one.experts.tolist()} == {*used, len(own)}
    turned = make_examples(own[::-1], tiny.embedding(), beside)
    assert {len(own) - 1 - place for one in turned for place in one.known.tolist()} == used


def test_a_change_of_other_experts_leaves_the_examples_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_examples, "MAX_EXPERTS", 4)
    own, beside = experts(9), background()
    used = {place for one in make_examples(own, tiny.embedding(), beside) for place in one.known.tolist()}
    unused = next(place for place in range(9) if place not in used)
    for gone in (unused, min(used)):  # of those that play, and of the others
        left = [one for place, one in enumerate(own) if place != gone]
        before, changed = (make_examples(some, tiny.embedding(), beside) for some in (own, left))
        assert (changed[0].features is before[0].features) == (gone == unused)
        fresh = make_examples(left, tiny.embedding(), background())
        for one, other in zip(changed, fresh, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(vars(one).values(), vars(other).values(), strict=True))


def test_known_prompts_look_more_familiar_than_the_others() -> None:
    for one in make_examples(experts(3, 40), tiny.embedding(), background()):
        familiarity = one.features[:, 0]
        assert familiarity[one.is_known].mean() > familiarity[~one.is_known].mean() + 1


def test_nothing_is_learnt_without_a_background_sums_or_prompts() -> None:
    own = experts(3)
    for some, beside in (
        (own, None),
        (own[:1], background()),
        ([*own[:2], own[2].histogram_only()], background()),
        ([*own[:2], replace(own[2], sample=None)], background()),
    ):
        assert list(make_examples(some, tiny.embedding(), beside)) == []
    plain = [one.histogram_only() for one in own]
    assert list(make_examples(plain, tiny.embedding(), background())) == []
    fitted = ConfidenceSetting(own, tiny.embedding(), Blend(), Average()).calibrate()()
    assert fitted.membership is None
    bare = [*own[:2], own[2].histogram_only()]  # the weights of the prior, the limit of the router's own prompts
    router = Router.fit(dict(zip("abc", bare, strict=True)), embedding=tiny.embedding(), scorer=TokenRidge())
    member = router.compiled.rules.membership
    assert member.weights == (*PRIOR[1:4], 0.0, 0.0)


# the router's own prompts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2, 3, 6])
def test_at_most_two_in_a_hundred_of_the_own_prompts_are_out_of_domain(number: int) -> None:
    own = experts(number, 60)
    router = Router.fit({str(place): one for place, one in enumerate(own)}, embedding=tiny.embedding(), scorer=Blend())
    member = router.compiled.rules.membership
    assert -100 < member.lowest <= LARGEST_ODDS + 1e-12
    names = list(tiny.DOMAINS)
    new = [text for place in range(number) for text in tiny.sentences(names[place % 3], 100, seed=100 + place)]
    told = [decision.out_of_domain for decision in router.route_batch(new)]
    assert np.mean(told) < 0.06  # of prompts that it never saw
    strange = router.route_batch([text for text in built_in.prompts() if len(text) > 40][:300])
    assert np.mean([decision.out_of_domain for decision in strange]) > 0.5


@pytest.mark.parametrize("number", [2, 6, 16, 17])  # 48 and 51 prompts held out: 2 % of 51 is one
def test_also_few_prompts_tell_what_is_clearly_out_of_domain(number: int) -> None:
    router = tiny.router(number)
    assert router.route("\x01\x02\x03\x04" * 9).out_of_domain
    new = [text for name in tiny.DOMAINS for text in tiny.sentences(name, 100, seed=7)]
    assert np.mean([decision.out_of_domain for decision in router.route_batch(new)]) < 0.05
    kept = [kept.decision.out_of_domain for kept in router.route_kept()]
    assert sum(kept) <= 0.02 * (len(kept) + 1)


def test_the_same_prompts_give_the_same_membership() -> None:
    own = experts(4, 20)
    fits = [
        ConfidenceSetting(some, tiny.embedding(), Blend(), Average(), background=background()).calibrate()().membership
        for some in (own, own, pickle.loads(pickle.dumps(own)))
    ]
    assert fits[0] == fits[1] == fits[2] is not None


@pytest.mark.parametrize(("generic", "needs"), [(0, True), (1, False), (30, False)])
def test_where_experts_have_prompts_without_content_others_may(generic: int, needs: bool) -> None:
    words = {"maths": "theorem", "law": "court", "cooking": "flour"}
    own = {name: [f"{text} {words[name]}" for text in some] for name, some in tiny.domain_texts(60).items()}
    own["law"] = [*["please explain this"] * generic, *own["law"][generic:]]
    router = Router.fit(own, embedding=tiny.word_embedding(), scorer=Blend())
    assert router.compiled.rules.membership.needs_content == needs
    assert (router.route("please explain").reason == "no content") == needs
