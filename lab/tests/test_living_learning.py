"""The streams of labels that learning is measured on, and both figures on a small set."""

from __future__ import annotations

import pytest

from ir3de.corpora import examples
from ir3de_lab.benchmarks.defaults import Material
from ir3de_lab.benchmarks.living import labelled_streams, labels, learning, poisoning
from ir3de_lab.benchmarks.living.labelled_streams import FEW, LabelledStream


@pytest.fixture
def material(monkeypatch: pytest.MonkeyPatch) -> Material:
    """Three experts of the examples; the stream is short, and half of it is labelled."""
    monkeypatch.setattr(labelled_streams, "REQUESTS", 120)
    monkeypatch.setattr(labelled_streams, "LABELLED_SHARE", 0.5)
    monkeypatch.setattr(poisoning, "NUMBERS", (2, 40))
    texts = dict(list(examples.prompts().items())[:3])
    train, test = ({name: own[part] for name, own in texts.items()} for part in (slice(0, 60), slice(60, 80)))
    return Material("examples", train, {"test": test}, by_expert=False)


def test_a_stream_follows_its_seed_and_repeats_no_prompt(material: Material) -> None:
    one, other = (LabelledStream.draw(material, 3) for _ in range(2))
    assert one == other != LabelledStream.draw(material, 4)
    known = {text for own in one.few.values() for text in own}
    assert all(len(own) == FEW for own in one.few.values()) and len(one.requests) == 120
    assert known.isdisjoint(request.text for request in one.requests)
    wrong = sum(request.label != request.expert for request in one.labelled)
    assert len(one.labelled) == 60 and 0 < wrong < 20


@pytest.mark.nightly
def test_the_figures_of_a_small_set(material: Material) -> None:
    learnt = learning.learn_stream(material, 0)
    assert learnt["suspicious"] == 0 and learnt["before"] - 5 <= learnt["learnt"] <= 100
    poisoned = poisoning.poison_stream(material, 0)
    assert poisoned["the same bits"]


@pytest.mark.slow
@pytest.mark.nightly
def test_labels_are_counted_until_the_target_is_reached(material: Material, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "BATCH", 20)
    monkeypatch.setattr(labels, "MOST_LABELS", 20)
    found = labels.label_stream(material, 0)
    for way in ("chosen", "random"):
        right = found[way]["right"]
        assert 0 <= found[way]["labels"] <= 20 and len(right) == 2
        assert found[way]["labels"] == 20 or right[-1] >= found["target"]
