"""Domains made for the benchmark of many experts, and what it measures."""

from dataclasses import replace

import pytest

from ir3de.corpora import examples as demo
from ir3de_lab.benchmarks.experts import growth, measure_here
from ir3de_lab.benchmarks.synthetic import Synthetic

pytestmark = pytest.mark.slow


def synthetic() -> Synthetic:
    return Synthetic([text for texts in demo.prompts().values() for text in texts])


def numbers(made: Synthetic, domain: int, held_out: bool) -> list[str]:
    """The number each prompt was made from; pairs hold none."""
    prompts = made.prompts(domain, 60, held_out=held_out)
    return [next(word for word in text.split() if word.isdecimal()) for text in prompts]


def test_made_domains_are_the_same_every_time_and_differ_from_one_another() -> None:
    made = synthetic()
    assert made.prompts(3, 8) == synthetic().prompts(3, 8) == made.prompts(3, 12)[:8]
    assert not set(made.prompts(3, 20)) & set(made.prompts(4, 20))


def test_made_domains_hold_out_real_prompts() -> None:
    texts = [f"alpha beta gamma {number}" for number in range(40)]
    made = Synthetic(texts)
    for domain in range(5):
        train, test = (set(numbers(made, domain, held)) for held in (False, True))
        assert train and test and not train & test


@pytest.mark.nightly
def test_the_bench_measures_what_it_says() -> None:
    few, more = (measure_here(count, synthetic().texts) for count in (2, 4))
    assert (few.experts, more.experts) == (2, 4)
    assert few.accuracy > 0.8 and more.accuracy > 0.8
    assert more.ballots_mb == pytest.approx(2 * few.ballots_mb) and more.saved_mb > few.saved_mb > few.serving_mb
    assert all(value > 0 for row in (few, more) for value in row.to_dict().values())
    steps = growth([few, more])
    assert [(step.value, step.bar) for step in steps] == [
        (more.route_us / few.route_us, 2.0),
        (more.route_batch_us / few.route_batch_us, 2.0),
        (few.closed_add_s / few.closed_fit_s, None),
        (few.add_s / few.fit_s, None),
        (more.closed_add_s / more.closed_fit_s, None),
        (more.add_s / more.fit_s, None),
    ]
    assert [step.bar for step in growth([replace(few, experts=200)])[1:]] == [0.1, 0.3]
    (limit, *_) = growth([replace(few, experts=200, route_us=99.0)])
    assert limit.reached and not growth([replace(few, experts=200, route_us=101.0)])[0].reached
