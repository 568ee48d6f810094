"""What the constants of tuning and calibration decide, each in a small exact example."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

import tiny
from ir3de import Statistics
from ir3de.fitting.calibration import PromptFamiliarities, Scored, fit_calibration, fit_familiarity
from ir3de.fitting.folds import _select_prompts, make_folds
from ir3de.fitting.tuning import Trial, _Search
from ir3de.scorers import Blend, Posterior, TokenRidge
from ir3de.scorers.table import FAMILIARITY_UNIT, token_familiarity
from ir3de.selectors import Average
from ir3de.statistics import Sample
from laws import counted

# token familiarity ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "a"),
    [
        ([100, 2, 0], 2.0),  # of few tokens: two
        ([199_898, 100, 2, 0], 2.0),  # both rules agree at 200,000 tokens
        ([9_999_800, 100, 50, 50, 0], 100.0),  # of many: a hundred-thousandth of all
    ],
)
def test_a_token_is_rare_below_two_or_a_hundred_thousandth_of_all(counts: list[int], a: float) -> None:
    found = token_familiarity([Statistics("none", 1, np.array(counts, np.int64))])
    assert found.tolist() == [round(-1_024 * math.log(1 + a / (count + 0.5))) for count in counts]
    assert FAMILIARITY_UNIT == 1_024  # in saved tables


# calibration ------------------------------------------------------------------------------------------------------


def scored(cells: Sequence[tuple[float, int, int, int]]) -> Scored:
    """Prompts of two experts alike: (evidence for the first, tokens, prompts right, prompts wrong)."""
    rows, tokens, experts = [], [], []
    for evidence, length, right, wrong in cells:
        for expert in (0, 1):
            for number, own in ((right, expert), (wrong, 1 - expert)):
                rows += [[evidence, 0.0] if expert == 0 else [0.0, evidence]] * number
                experts += [own] * number
                tokens += [length] * number
    return Scored(np.array(rows), np.array(tokens, np.int64), np.array(experts, np.int64))


@pytest.mark.parametrize("growth", [0.0, 0.25, 0.5, 1.0])
def test_each_growth_is_found(growth: float) -> None:
    scale, number = 2.0, 2_000
    cells = []
    for length in (1, 2, 4, 16):
        for wanted in (0.6, 0.75, 0.9):
            evidence = math.log(wanted / (1 - wanted)) / (scale * length**growth)
            cells.append((evidence, length, round(wanted * number), number - round(wanted * number)))
    found, _ = fit_calibration(scored(cells))
    assert found.growth == growth
    assert found.scale == pytest.approx(scale, rel=1e-2)


@pytest.mark.parametrize(("right", "wrong"), [(3, 1), (9, 1), (5, 0), (40, 10)])
def test_the_scale_is_exact_and_a_little_less_than_certain(right: int, wrong: int) -> None:
    """One evidence, one length: the best scale is the logit of the mean target, (n + 1)/(n + 2) after n prompts.

    n counts the prompts of both experts.
    """
    n = 2 * (right + wrong)
    target = (right * (n + 1) + wrong * 1) / ((right + wrong) * (n + 2))
    found, _ = fit_calibration(scored([(0.5, 1, right, wrong)]))
    assert found.scale == pytest.approx(math.log(target / (1 - target)) / 0.5, rel=1e-6)


# familiarity of prompts -------------------------------------------------------------------------------------------


def prompts(means: Sequence[float], *, variance: float, tokens: int) -> PromptFamiliarities:
    number = len(means)
    return PromptFamiliarities(np.array(means), np.full(number, variance), np.full(number, tokens, np.int64))


def test_two_in_a_hundred_own_prompts_may_be_out_of_domain() -> None:
    means = np.linspace(-1.0, 1.0, 199)
    whole, short = (prompts(part, variance=0.0, tokens=9) for part in (means[::2], means[1::2]))
    found = fit_familiarity([(whole, short)])
    assert (means < found.mean + found.lowest * found.between).sum() == 3  # k = 4 of 200, less the one at the edge
    assert found.lowest == pytest.approx((means[3] - means.mean()) / means.std())


def test_few_prompts_are_out_of_domain_below_three_standard_deviations() -> None:
    some = prompts([-0.1, 0.0, 0.1], variance=0.0, tokens=9)
    assert fit_familiarity([(some, some)]).lowest == -3.0
    skewed = prompts([-9.0, *[0.0] * 20], variance=0.0, tokens=9)
    assert fit_familiarity([(skewed, skewed)]).lowest < -4  # or the lowest that was seen, if that is lower


def test_prompts_that_are_all_alike_still_have_a_spread() -> None:
    some = prompts([-0.5] * 9, variance=0.0, tokens=9)
    assert fit_familiarity([(some, some)]).between == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("widening", "found"),
    [(1.0, 1.0), (1.25, 1.0), (1.5, 1.5), (1.75, 1.5), (2.0, 2.0), (3.0, 3.0), (4.0, 4.0), (9.0, 4.0)],
)
def test_tokens_are_taken_to_spread_as_wide_as_the_tail_of_short_prompts(widening: float, found: float) -> None:
    """The tail of whole prompts is −1 whatever the widening w, that of short ones −widening/w: equal where w fits.

    The smallest one is taken that fits within a quarter: 1.0 for 1.25 and 1.5 for 1.75, though the next fits better.
    """
    u = np.array([-1.0] * 3 + [0.0] * 94 + [1.0] * 3)
    tail = 1.0 if widening <= 4 else 0.4  # the variance of the prompts must not exceed that of their tokens
    whole = prompts(0.01 * tail * u, variance=1.0, tokens=10**8)
    short = prompts(tail * widening * u, variance=1.0, tokens=1)
    assert fit_familiarity([(whole, short)]).within == pytest.approx(found)


# folds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "folds"), [(30, 5), (199, 5), (200, 3)])
def test_ten_folds_below_30_prompts_five_below_200_and_three_from_there(number: int, folds: int) -> None:
    large = counted([f"prove {index} is prime" for index in range(number)], keep_sample=True)
    small = counted([f"the court of {index}" for index in range(30)], keep_sample=True)
    assert len(make_folds([large, small], tiny.embedding())) == folds
    fewer = counted([f"the court of {index}" for index in range(29)], keep_sample=True)
    assert len(make_folds([large, fewer], tiny.embedding())) == (10 if folds == 5 else 3)


@pytest.mark.parametrize(("domains", "folds"), [(100, 10), (101, 3)])
def test_three_folds_of_more_than_100_domains(domains: int, folds: int) -> None:
    first = counted([f"prove {index}" for index in range(10)], keep_sample=True, prompt_sums=False)
    other = counted(["the court", "a contract"], keep_sample=True, prompt_sums=False)
    assert len(make_folds([first, *[other] * (domains - 1)], tiny.embedding())) == folds


def test_long_prompts_are_looked_at_up_to_1024_tokens_and_once_more_up_to_32() -> None:
    long = counted(["sum " * 3_000 + str(index) for index in range(4)], keep_sample=True)
    fold = make_folds([long, long], tiny.embedding(), cap=1 << 16)[0]
    assert set(fold.whole.lengths.tolist()) == {1_024} and set(fold.short.lengths.tolist()) == {32}
    assert set(make_folds([long, long], tiny.embedding(), cap=20)[0].whole.lengths.tolist()) == {20}


def with_sample(number: int, tokens: int) -> Statistics:
    """A domain whose sample has so many prompts of so many tokens each."""
    whole = np.full(number, tokens, np.int64)
    ids = np.zeros(number * tokens, np.uint32)
    hashes = np.arange(number, dtype=np.uint32)
    sample = Sample(hashes, np.ones(number, np.int64), whole, whole, ids, hashes * 0)
    return Statistics("none", number, np.array([number * tokens], np.int64), None, sample)


@pytest.mark.parametrize(
    ("domains", "tokens", "held"),
    [
        (5, 1, 1_024),  # all there are
        (10, 1, 600),  # 6,000 prompts in all
        (4, 1_024, 244),  # a million tokens in all: 244 · 1,024 ≤ 250,000
        (4, 2_048, 244),  # of which a prompt has at most 1,024
        (5_000, 1, 5),  # and at least five of each domain
    ],
)
def test_no_more_prompts_are_held_out_than_take_a_moment(domains: int, tokens: int, held: int) -> None:
    assert len(_select_prompts(with_sample(1_024, tokens), domains)) == held


# choosing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scorer", "least"),
    [
        (Blend(), 0.005),
        (Blend(posterior=1.0), 0.005),
        (TokenRidge(), 0.005),
        (Blend(posterior=2.0), 0.01),
        (Blend(pairs=0.25), 0.01),
        (Posterior(), 0.01),
    ],
)
@pytest.mark.parametrize(("better", "number"), [(20, 100_000), (100, 400), (300, 400)])
def test_a_trial_must_lead_by_two_standard_errors_and_by_half_a_point_or_a_point(
    scorer: object, least: float, better: int, number: int
) -> None:
    search = _Search.__new__(_Search)
    default, other = (np.zeros(number) for _ in range(2))
    other[:better] = 1.0  # right, whole and cut short
    search._right, search._default, search._weights = [default, other], 0, np.full(number, 1.0 / number)
    search._trials = [Trial(one, Average(), 0.0, 0.0, 0.0) for one in (Blend(), scorer)]  # type: ignore[arg-type]
    lead = better / number
    default, found = (search._measure_lead(index) for index in range(2))
    assert (default.lead, default.required_lead) == (0, 0)
    error = math.sqrt(lead * (1 - lead) / number)
    assert (found.lead, found.lead_error) == pytest.approx((lead, error))
    assert found.required_lead == pytest.approx(max(2 * error, least))
