"""Sentence encoders as teachers: a tiny one of random weights, and MiniLM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ir3de
from ir3de.corpora import examples
from ir3de.scorers import Logistic
from tiny_encoders import write_encoder

EXPERTS = dict(list(examples.prompts().items())[:3])
FEW = {name: texts[:5] for name, texts in EXPERTS.items()}
TRAFFIC = [text for texts in EXPERTS.values() for text in texts[5:60]]


@pytest.mark.nightly
def test_an_encoder_teaches_from_a_file_and_its_vectors_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    from ir3de.encoders.installing import install

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = write_encoder(tmp_path / "tiny")
    install(str(folder))
    traffic, kept = tmp_path / "traffic.jsonl", tmp_path / "answers.jsonl"
    traffic.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in TRAFFIC), encoding="utf-8")
    how: Any = {"unlabelled": traffic, "teacher": str(folder), "answers": kept}
    router = ir3de.Router.fit(FEW, scorer=Logistic(), **how)
    assert router.teaching is not None and router.teaching.teacher.endswith("tiny")
    assert len(kept.read_text().splitlines()) == 1 + len(TRAFFIC) + sum(map(len, FEW.values()))
    before = kept.read_bytes()
    again = ir3de.Router.fit(FEW, scorer=Logistic(), **how)
    assert again.teaching == router.teaching and kept.read_bytes() == before and again.statistics == router.statistics
    assert again.route_batch(TRAFFIC) == router.route_batch(TRAFFIC)


@pytest.mark.nightly
@pytest.mark.encoder
def test_minilm_teaches(tmp_path: Path) -> None:
    from ir3de.encoders.installing import install

    install("minilm-l6")
    router = ir3de.Router.fit(FEW, scorer=Logistic(), unlabelled=TRAFFIC, teacher="minilm-l6")
    found = router.teaching
    assert found is not None and found.teacher == "minilm-l6" and found.teacher_accuracy > 0.6
    aside = [(text, name) for name, texts in EXPERTS.items() for text in texts[60:]]

    def count_right(one: ir3de.Router) -> int:
        routed = one.route_batch([text for text, _ in aside])
        return sum(decision.best == name for decision, (_, name) in zip(routed, aside, strict=True))

    assert count_right(router) > count_right(router.without_teacher()) + 0.05 * len(aside)
