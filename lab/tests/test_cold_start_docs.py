"""The tables of docs/few-prompts.md, from a document as `ir3de bench cold-start --save` writes it."""

from __future__ import annotations

import generate_cold_start_docs as generator

FEW = {"data": "suite", "split": "ood", "prompts": 30, "router": "ir3de", "standard_error": None, "missing": None,
       "accuracy": 83.25, "sure_and_wrong": 0.0, "abstained": 1.0}  # fmt: skip
LIMIT = {"data": "suite", "router": "ir3de", "kind": "synonyms", "abstained": 4.0, "over_originals": 1.5}


def test_every_measured_row_is_shown_and_the_others_are_left_out() -> None:
    lines = generator.few({"few": [FEW, {**FEW, "router": "other", "missing": "needs --encoder", "accuracy": None}]})
    assert lines[2:] == ["| suite, other sources | 30 | ir3de | 83.2 | – | 0.0 | 1.0 |"]
    assert len({line.count("|") for line in lines}) == 1


def test_limits_name_the_worst_domain() -> None:
    lines = generator.limits({"limits": [{**LIMIT, "worst_domain": "law", "worst": 2.0}]})
    assert lines[2:] == ["| suite | ir3de | synonyms | 4.0 | 1.5 | law, 2.0 |"]
    assert len({line.count("|") for line in lines}) == 1


def test_a_router_on_all_prompts_has_a_row() -> None:
    row = {"data": "suite", "router": "ir3de", "accuracy": {"test": 91.0}, "calibration_error": 2.0}
    assert generator.all_prompts({"all": [row]})[2:] == ["| suite | ir3de | 91.0 | – | – | 2.0 |"]


def test_unknowns_have_a_row_for_each_set_and_their_means() -> None:
    means = {"told": 20.0, "sure": 30.0, "told_at_5": 50.0, "area": 0.9}
    lines = generator.unknowns({"unknowns": {"ir3de": {"means": {"suite": means}}}})
    assert lines[2:] == ["| suite | ir3de | 0.900 | 20.0 | 30.0 | 50.0 |"]
