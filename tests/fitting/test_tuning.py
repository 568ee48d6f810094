"""Tuning and calibration: the same every time, on prompts the fit did not see, from however few there are."""

import pickle
from collections import Counter
from dataclasses import replace
from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de import Average, EntropyTopK, PromptRidge, Router, Statistics, TokenRidge, collect
from ir3de.embedding import Matrix
from ir3de.errors import InputError
from ir3de.fitting import folds
from ir3de.fitting.calibration import Scored, fit_calibration, fit_familiarity, measure_familiarity
from ir3de.fitting.evidence import Components, score_views
from ir3de.fitting.folds import Fold, HeldOutPrompts, make_folds, mean_pair_rows, mean_rows
from ir3de.fitting.tuning import ConfidenceSetting, choose
from ir3de.policies import Calibration
from ir3de.scorers import Blend, Posterior
from ir3de.scorers.arithmetic import FITS, using
from ir3de.scorers.blend import BlendParts, balance_counts, log_evidence, token_weight
from ir3de.statistics.domain import pair_buckets
from ir3de.statistics.sample import Sample
from laws import counted, domains, integer_pairs, seeds

# how sure to be -------------------------------------------------------------------------------------------------


def scored(seed: int, number: int = 40, experts: int = 3, noise: float = 1.0) -> Scored:
    """Made-up evidence: the right expert's is larger by one, give or take."""
    rng = np.random.default_rng(seed)
    right = rng.integers(0, experts, number)
    evidence = noise * rng.standard_normal((number, experts))
    evidence[np.arange(number), right] += 1.0
    return Scored(evidence, rng.integers(1, 200, number), right)


@tiny.LAW
@given(seeds, st.sampled_from([2.0**-9, 0.5, 4.0, 2.0**20]), st.sampled_from([0.1, 1.0, 3.0]))
def test_evidence_times_t_divides_the_scale_by_t(seed: int, t: float, noise: float) -> None:
    some = scored(seed, noise=noise)
    (one, loss), (other, same) = fit_calibration(some), fit_calibration(replace(some, evidence=t * some.evidence))
    assert (other.scale * t, other.growth, same) == pytest.approx((one.scale, one.growth, loss), rel=1e-9)


@tiny.LAW
@given(seeds)
def test_the_fitted_scale_has_the_least_loss(seed: int) -> None:
    some = scored(seed)
    best, loss = fit_calibration(some)
    assert fit_calibration(some) == (best, loss)
    assert log_loss(some, best) == pytest.approx(loss, rel=1e-6)
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert log_loss(some, Calibration(best.scale * factor, best.growth)) >= loss - 1e-9


def log_loss(some: Scored, calibration: Calibration) -> float:
    """−Σ target · log p, every expert alike; after n prompts of all experts the target is (n + 1)/(n + 2)."""
    sizes, n, total = Counter(some.experts.tolist()), len(some.experts), 0.0
    for evidence, counted_, expert in zip(
        some.evidence.tolist(), some.counted.tolist(), some.experts.tolist(), strict=True
    ):
        p = np.log(calibration.probabilities(evidence, counted_))
        others = len(p) - 1
        target = [(n + 1) / (n + 2) if c == expert else 1 / (n + 2) / others for c in range(len(p))]
        total -= float(np.dot(target, p)) / sizes[expert] / len(sizes)
    return total


@pytest.mark.parametrize("number", [2, 10, 1_000])
def test_evidence_that_was_never_wrong_does_not_make_sure_for_ever(number: int) -> None:
    right = np.arange(number) % 2
    perfect = Scored(np.eye(2)[right], np.full(number, 7), right)
    found, _ = fit_calibration(perfect)
    p = found.probabilities([1.0, 0.0], 7)[0]
    assert p == pytest.approx((number + 1) / (number + 2), rel=1e-3)


def test_evidence_that_says_nothing_makes_nothing_sure() -> None:
    right = np.arange(30) % 3
    found, loss = fit_calibration(Scored(np.zeros((30, 3)), np.full(30, 5), right))
    assert found.probabilities([0.0, 0.0, 0.0], 5) == pytest.approx([1 / 3] * 3)
    assert loss == pytest.approx(np.log(3))
    wrong, _ = fit_calibration(Scored(-np.eye(3)[right], np.full(30, 5), right))
    assert max(wrong.probabilities([1.0, 0.0, 0.0], 5)) < 0.34


@tiny.LAW
@given(seeds, st.integers(2, 30))
def test_however_many_prompts_an_expert_has_it_weighs_the_same(seed: int, t: int) -> None:
    some = scored(seed)
    repeats = np.where(some.experts == 0, t, 1)
    more = Scored(*(np.repeat(part, repeats, axis=0) for part in (some.evidence, some.counted, some.experts)))
    assert more.weights.sum() == pytest.approx(1)
    assert more.accuracy == pytest.approx(some.accuracy)


# what is held out -----------------------------------------------------------------------------------------------


def sampled(number: int = 12, **options: object) -> list[Statistics]:
    return [counted(some, keep_sample=True, **options) for some in tiny.domain_texts(number).values()]


@tiny.LAW
@given(domains, st.integers(1, 3), st.booleans())
def test_a_fold_is_trained_on_everything_but_what_it_holds_out(
    some: dict[str, list[str]], every: int, prompt_sums: bool
) -> None:
    own = [counted(texts, keep_sample=True, subsample=every, prompt_sums=prompt_sums) for texts in some.values()]
    held, seen = [Counter() for _ in own], np.flatnonzero(sum(own).histogram)  # folds have rows for those tokens alone
    for fold in make_folds(own, tiny.embedding()):
        start = 0
        for length, expert in zip(fold.whole.lengths.tolist(), fold.whole.experts.tolist(), strict=True):
            held[expert][tuple(seen[fold.whole.flat[start : start + length]].tolist())] += 1
            start += length
        out = np.bincount(fold.whole.experts, minlength=3)
        for c, training in enumerate(fold.training):
            tokens = fold.whole.lengths[fold.whole.experts == c].sum()
            assert training.prompts == own[c].prompts - out[c]
            assert len(training.histogram) == len(seen) == len(fold.embeddings)
            assert training.tokens == own[c].tokens - tokens > 0
            assert training.sample is None
    for c, texts in enumerate(some.values()):
        said = Counter(tuple(tiny.embedding().encode(text).tolist()) for text in texts)
        assert held[c] <= said  # none twice
        if len(texts) > 1 and every == 1:
            assert held[c] == said


@tiny.LAW
@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=7), min_size=1, max_size=9), st.sampled_from([3, 1 << 18])
)
def test_means_of_rows_are_means_prompt_by_prompt(prompts: list[list[int]], gathered: int) -> None:
    rng = np.random.default_rng(0)
    tokens, pairs = rng.standard_normal((10, 3)), rng.standard_normal((1 << 16, 3))
    held = HeldOutPrompts(
        np.array([token for ids in prompts for token in ids], np.uint32),
        np.array([len(ids) for ids in prompts], np.int64),
        np.zeros(len(prompts), np.int64),
        np.concatenate([pair_buckets(np.array(ids, np.uint32)) for ids in prompts]),
        np.zeros((len(prompts), 0), np.float32),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folds, "GATHERED_NUMBERS", gathered)
        found, met = mean_rows(tokens, held), mean_pair_rows(pairs, held)
    np.testing.assert_allclose(found, [tokens[ids].mean(axis=0) for ids in prompts])
    np.testing.assert_allclose(met, [integer_pairs([ids]) @ pairs / len(ids) for ids in prompts], atol=1e-12)


def test_a_blend_of_parts_is_the_blend(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tuning adds up from parts is what tables of a fold say of the same prompts, in sizes of the whole fit."""
    monkeypatch.setattr("ir3de.fitting.evidence.MANY_TOKENS", np.inf)
    stored = tiny.embedding().stored  # in fixed point, rounding changes nothing
    exact = tiny.with_matrix(Matrix.plain(stored.fixed_point * np.float32(stored.unit)))
    own = [collect(texts, embedding=exact, keep_sample=True) for texts in tiny.domain_texts().values()]
    some, whole = make_folds(own, exact), BlendParts(own, exact.rows, np.float64)
    parts = Components(some, whole)
    for blend in (Blend(), Blend(0.0, few=0.0), Blend(1.0, few=0.0), Blend(0.5, 0.25), Blend(0.25, 0.5, few=3.0)):
        found = parts.blend(blend)
        for places, view in ((found.whole, attrgetter("whole")), (found.short, attrgetter("short"))):
            expected = [blend_by_tables(fold, blend, whole, view(fold)) for fold in some]
            np.testing.assert_allclose(found.scored.evidence[places], np.concatenate(expected), atol=1e-5)
            for name, values in (("counted", "lengths"), ("experts", "experts")):
                expected = np.concatenate([getattr(view(fold), values) for fold in some])
                assert getattr(found.scored, name)[places].tolist() == expected.tolist()


def blend_by_tables(fold: Fold, blend: Blend, whole: BlendParts, held: HeldOutPrompts) -> np.ndarray:
    """The evidence of a blend, from a table for each of its parts."""
    weight = token_weight(fold.training, blend.few)
    parts = [(PromptRidge(), 1.0, whole.ridge(8.0)), (Posterior(), blend.posterior, whole.posterior(1.0, 8.0))]
    parts += [(TokenRidge(), weight, whole.token_ridge)] if weight else []
    tables = [a * part.factor * scorer.scores(fold.training, fold.embeddings) for scorer, a, part in parts]
    pairs = log_evidence(balance_counts([one.sums.pairs for one in fold.training]), 1.0) * whole.pairs.factor
    found = mean_rows(sum(tables), held) + blend.pairs * mean_pair_rows(pairs, held)
    return found - found.mean(axis=1, keepdims=True)


@tiny.LAW
@given(domains, st.integers(0, 2))
def test_what_is_cached_of_an_expert_changes_nothing(some: dict[str, list[str]], gone: int) -> None:
    """Folds of statistics that were in other folds before, and of the same statistics anew."""
    used = [counted(texts, keep_sample=True) for texts in some.values()]
    for others in (used, used[:gone] + used[gone + 1 :], used):
        anew = [pickle.loads(pickle.dumps(one)) for one in others]
        fits = [
            ConfidenceSetting(each, tiny.embedding(), Blend(), Average(cap=cap)).calibrate()
            for each in (others, anew)
            for cap in (9, 99)
        ]
        found = [None if fit is None else fit() for fit in fits]
        assert found[:2] == found[2:]


# choosing -------------------------------------------------------------------------------------------------------


def routers_agree(one: Router, other: Router) -> bool:
    return tiny.same_table(one, other) and one.scorer == other.scorer and one.trials == other.trials


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 5, pytest.param(12, marks=pytest.mark.nightly)])
def test_tuning_is_the_same_every_time_and_marks_what_it_chose(number: int) -> None:
    one, other = (tiny.fit_router(number, tune=True) for _ in range(2))
    assert routers_agree(one, other)
    (chosen,) = [trial for trial in one.trials if trial["chosen"]]
    assert (chosen["scorer"], chosen["selector"]) == (repr(one.scorer), repr(one.selector))
    scores = [trial["accuracy"] + trial["short_accuracy"] for trial in one.trials]
    assert scores == sorted(scores, reverse=True)
    assert one.calibrated
    other.tune()
    assert routers_agree(one, other)


def test_tuning_later_is_tuning_at_once(tmp_path: object) -> None:
    at_once, later = tiny.router(tune=True), tiny.router()
    trials = later.tune()
    assert routers_agree(at_once, later)
    assert [trial.to_dict() for trial in trials] == list(later.trials)
    later.add("new", tiny.mixed(6))
    later.remove("new")
    assert routers_agree(at_once, later)
    loaded = Router.load(later.save(tmp_path / "router"))
    assert routers_agree(at_once, loaded)
    assert tiny.contents(loaded.save(tmp_path / "again")) == tiny.contents(tmp_path / "router")


@pytest.mark.parametrize("prompt_sums", [True, False])
def test_tuning_reports_every_trial(prompt_sums: bool) -> None:
    reports: list[tuple[str, int, int]] = []
    own = sampled(prompt_sums=prompt_sums)
    with using(progress=lambda *report: reports.append(report)):
        trials = choose(own, tiny.embedding()).trials
    tried = [report for report in reports if report[0] == "trials"]
    assert tried == [("trials", done, tried[0][2]) for done in range(len(trials) + 1)]
    assert tried[0][2] >= len(trials)
    assert all(report[0] == "trials" for report in reports[: reports.index(tried[-1])][reports.index(tried[0]) :])


@pytest.mark.parametrize("tune", [False, True])
def test_discriminative_fits_report_how_far_they_are(tune: bool) -> None:
    reports: list[tuple[str, int, int]] = []
    with using(progress=lambda *report: reports.append(report)):
        Router.fit(tiny.domain_texts(20), embedding=tiny.embedding(), tune=tune)
    done = [report[1] for report in reports if report[0] == FITS]
    of = {report[2] for report in reports if report[0] == FITS}
    assert len(of) == 1 and done == sorted(done) and done[-1] <= of.pop()
    assert len(set(done)) > done[-1] // 100 >= 3  # several steps of each fit


def test_each_trial_says_what_it_needed_and_what_it_had() -> None:
    trials = choose(sampled(), tiny.embedding()).trials
    (default,) = [trial for trial in trials if trial.required_lead == 0]
    for trial in trials:
        assert trial.lead == pytest.approx(trial.score - default.score, abs=1e-12)
        assert trial.required_lead == pytest.approx(max(2 * trial.lead_error, trial.required_lead))
    (chosen,) = [trial for trial in trials if trial.chosen]
    assert chosen == default or chosen.lead > chosen.required_lead


def test_a_tuned_router_is_the_router_of_what_was_chosen() -> None:
    tuned = tiny.router(tune=True)
    assert tiny.same_table(tuned, tiny.router(scorer=tuned.scorer, selector=tuned.selector))


def test_calibration_learns_from_prompts_that_were_held_out() -> None:
    own = sampled()
    confidence = ConfidenceSetting(own, tiny.embedding(), PromptRidge(), Average()).calibrate()()
    some = make_folds(own, tiny.embedding())
    views = score_views(some, PromptRidge(), Average())
    assert replace(confidence.calibration, most=()) == fit_calibration(views.scored)[0]
    assert confidence.familiarity == fit_familiarity([measure_familiarity(fold) for fold in some])
    assert confidence.familiarity.lowest < 0


def test_one_prompt_in_a_domain_is_never_held_out() -> None:
    some = tiny.domain_texts(6) | {"lonely": ["prove the clause of bread"]}
    router = Router.fit(some, embedding=tiny.embedding(), tune=True)
    assert router.calibrated
    assert router.experts[-1] == "lonely"
    for fold in make_folds(list(router.statistics.values()), tiny.embedding()):
        assert 3 not in fold.whole.experts
        assert fold.training[3].prompts == 1


def test_where_no_domain_has_two_prompts_there_is_nothing_to_measure() -> None:
    some = {name: texts[:1] for name, texts in tiny.domain_texts().items()}
    router = Router.fit(some, embedding=tiny.embedding())
    assert not router.calibrated
    with pytest.raises(InputError, match="two prompts"):
        router.tune()
    with pytest.raises(InputError, match="two prompts"):
        Router.fit(some, embedding=tiny.embedding(), tune=True)


def test_without_a_sample_there_is_no_tuning() -> None:
    for action in (lambda: tiny.router(tune=True, keep_sample=False), tiny.router(keep_sample=False).tune):
        with pytest.raises(InputError, match="keep_sample="):
            action()
    empty = [replace(s, sample=Sample.empty()) for s in sampled()]
    with pytest.raises(InputError, match="no expert has two prompts"):
        choose(empty, tiny.embedding())
    mixed = [replace(s, sample=None) if index else s for index, s in enumerate(sampled())]
    with pytest.raises(InputError, match="2 of 3 have none"):
        choose(mixed, tiny.embedding())
    assert ConfidenceSetting(mixed, tiny.embedding(), PromptRidge(), Average()).calibrate() is None
    assert ConfidenceSetting(empty, tiny.embedding(), PromptRidge(), Average()).calibrate() is None


def test_tuning_needs_two_experts_and_nothing_chosen_before() -> None:
    alone = {"law": tiny.sentences("law", 5)}
    with pytest.raises(InputError, match="at least two experts"):
        Router.fit(alone, embedding=tiny.embedding(), tune=True)
    assert not Router.fit(alone, embedding=tiny.embedding()).calibrated
    for given_ in ({"scorer": PromptRidge()}, {"selector": Average()}):
        with pytest.raises(InputError, match="tune=True chooses"):
            tiny.router(tune=True, **given_)


def test_histograms_alone_are_tuned_with_what_can_be_made_of_them() -> None:
    some = dict(zip(tiny.DOMAINS, sampled(prompt_sums=False), strict=True))
    router = Router.fit(some, embedding=tiny.embedding(), tune=True)
    assert isinstance(router.scorer, TokenRidge)
    assert router.calibrated
    assert {trial["scorer"].split("(")[0] for trial in router.trials} == {"TokenRidge"}
    assert {trial["selector"].split("(")[0] for trial in router.trials} == {"Average", "AllTokens", "EntropyTopK"}
    mixed = some | {"law": sampled()[1]}
    assert isinstance(Router.fit(mixed, embedding=tiny.embedding(), tune=True).scorer, TokenRidge)
    plain = Router.fit(some, embedding=tiny.embedding(), scorer=TokenRidge(), selector=EntropyTopK(5))
    assert plain.calibrated


def test_the_cap_of_a_router_stays_when_it_is_tuned() -> None:
    router = tiny.router(selector=Average(cap=17))
    router.tune()
    assert router.selector.cap == 17
    assert all("cap=17" in trial["selector"] for trial in router.trials)


def test_a_scorer_that_is_no_better_gives_way_to_the_usual_one() -> None:
    """Domains of one and the same text: nothing beats anything, so the usual blend is chosen."""
    texts = tiny.mixed(12)
    router = Router.fit({"one": texts, "two": texts}, embedding=tiny.embedding(), tune=True)
    usual = replace(Blend(), strength=router.scorer.strength, prior=router.scorer.prior)
    assert (router.scorer, router.selector) == (usual, Average())
