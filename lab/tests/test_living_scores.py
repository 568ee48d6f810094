"""The streams of scores: what is explored is logged, and a stream follows its seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ir3de import Router
from ir3de.corpora import examples
from ir3de.traffic import Journal
from ir3de_lab.benchmarks.living import scores


def make_prompts(part: slice) -> scores.Prompts:
    """Three tasks; each of three models is right on one of them alone."""
    texts = dict(list(examples.prompts().items())[:3])
    rows = [
        {"text": text, "task": task, "scores": {f"model-{one}": float(one == number) for one in range(3)}}
        for number, (task, own) in enumerate(texts.items())
        for text in own[part]
    ]
    return scores.Prompts.build(rows, ("model-0", "model-1", "model-2"))


@pytest.mark.nightly
def test_requests_are_logged_with_the_chance_of_their_expert(tmp_path: Path) -> None:
    train = make_prompts(slice(0, 20))
    router = Router.fit_outcomes(train.make_rows(range(0, 60, 4)))
    with Journal.create(tmp_path) as journal:
        stream = np.random.default_rng(0).integers(0, 60, 80).tolist()
        found = scores._serve(router, train, stream, range(80), journal, np.random.default_rng(1))
        records = list(journal.read())
    assert [one.feedback[0].score for one in records] == found and len(found) == 80
    explored = [one for one in records if one.arm == "explore"]
    assert all(one.served != one.decided and one.propensity <= scores.EXPLORE for one in explored)
    assert all(one.served == one.decided for one in records if one.arm != "explore")


def test_figures_name_the_gap_or_that_there_is_none() -> None:
    one = {"began": 0.5, "best single": 0.5, "full information": 0.6, "learnt": 0.58}
    share, full, _ = scores._summarise("x", [one])
    assert round(share.value) == 80 and share.bar == scores.LEAST_SHARE and round(full.value) == 10
    none, *_ = scores._summarise("x", [{**one, "full information": 0.5}])
    assert "above the best single model" in none.name and none.bar is None
