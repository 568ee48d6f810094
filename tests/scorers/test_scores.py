"""The counted fit is the fit of every token and every window, one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de import PromptRidge, Statistics, TokenRidge
from ir3de.statistics.domain import PromptSums
from laws import SCORERS, counted, domains, matrix_scores, scorers, weights


@tiny.LAW
@given(domains, scorers)
def test_the_counted_fit_is_the_fit_of_every_token(
    some: dict[str, list[str]], scorer: TokenRidge | PromptRidge
) -> None:
    E = tiny.embedding().matrix
    expected = matrix_scores(E, weights(scorer, tiny.embedding(), some))
    found = scorer.scores([counted(own) for own in some.values()], E)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8 * max(1.0, np.abs(expected).max()))


@tiny.LAW
@given(domains, st.sampled_from([s for s in SCORERS if isinstance(s, TokenRidge)]), st.integers(2, 1_000))
def test_counts_times_t_with_strength_times_t_is_the_same_fit(
    some: dict[str, list[str]], scorer: TokenRidge, t: int
) -> None:
    once = [counted(own) for own in some.values()]
    often = [Statistics(s.fingerprint, s.prompts * t, s.histogram * t) for s in once]
    stronger = TokenRidge(scorer.strength * t, scorer.bias, scorer.balanced, scorer.unit_columns)
    E = tiny.embedding().matrix
    np.testing.assert_allclose(stronger.scores(often, E), scorer.scores(once, E), rtol=1e-6, atol=1e-8)


@tiny.LAW
@given(domains, st.integers(2, 1_000))
def test_prompt_ridge_knows_how_much_it_has_seen(some: dict[str, list[str]], t: int) -> None:
    """Every window t times over, with a strength of t times as many windows, is the same fit."""
    once = [counted(own) for own in some.values()]
    often = [
        Statistics(
            s.fingerprint,
            s.prompts * t,
            s.histogram * t,
            PromptSums(
                s.sums.window, s.sums.unit, s.sums.windows * t, s.sums.vector * t, s.sums.gram * t, s.sums.pairs * t
            ),
        )
        for s in once
    ]
    E = tiny.embedding().matrix
    np.testing.assert_allclose(
        PromptRidge(8.0 * t).scores(often, E), PromptRidge(8.0).scores(once, E), rtol=1e-6, atol=1e-8
    )
