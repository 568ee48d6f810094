"""Encoders, what stands on them, and how they are trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ir3de.errors import EmbeddingError
from ir3de_lab.benchmarks.protocol import Prompts, recalls
from ir3de_lab.benchmarks.rivals import Rival, RivalRow, compare
from ir3de_lab.rivals.encoder import Encoder
from ir3de_lab.rivals.encoder_heads import NearestNeighbours
from ir3de_lab.rivals.fine_tuned import FineTuned
from ir3de_lab.rivals.modem import Modem
from ir3de_lab.rivals.training import Epoch, Trained, cosine, keep_best, linear, share_of_rate
from refused import refusal
from test_rivals import ODD, TEST, TEXTS, TRAIN, encoders_in, with_encoders, with_torch, write_encoder


@pytest.fixture(scope="module")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Encoder]:
    return encoders_in(tmp_path_factory.mktemp("encoder"))


# encoders -------------------------------------------------------------------------------------------------------------


@with_encoders
@pytest.mark.nightly
def test_the_nearest_text_is_the_text_itself(tiny_encoder: Callable[..., Encoder]) -> None:
    fitted = NearestNeighbours(tiny_encoder(), 1).fit(TRAIN)
    assert recalls(fitted.route, TRAIN) == dict.fromkeys(TRAIN, 100.0)


@with_encoders
def test_more_neighbours_than_texts_is_all_of_them(tiny_encoder: Callable[..., Encoder]) -> None:
    fitted = NearestNeighbours(tiny_encoder(), 50).fit({"few": ["Add."], "many": ["Is it void?", "Who won?"]})
    assert set(fitted.route(["Add.", "Who?"])) == {"many"}


@with_encoders
def test_encoders_are_counted_with_what_stands_on_them(tiny_encoder: Callable[..., Encoder]) -> None:
    encoder = tiny_encoder()
    own = sum(weights.numel() for weights in encoder.weights)
    head = (encoder.width + 1) * len(TRAIN)
    few = {name: texts[:6] for name, texts in TRAIN.items()}
    quick = {"epochs": 1, "encoder": encoder}
    for trained in (FineTuned(fewest_steps=1, **quick), Modem(**quick), Modem(frozen=False, **quick)):  # type: ignore[arg-type]
        fitted = trained.fit(few)
        assert fitted.parameters == own + head
        assert fitted.size_bytes == 4 * fitted.parameters + encoder.tokenizer_bytes
    nearest = [NearestNeighbours(encoder).fit(domains) for domains in (few, TRAIN)]
    more = len(TRAIN) * (40 - 6)
    assert nearest[1].parameters - nearest[0].parameters == more * (encoder.width + 1)  # a vector and its domain


@with_encoders
def test_an_encoder_with_a_memory_gives_the_same_vectors(tiny_encoder: Callable[..., Encoder]) -> None:
    texts = [*TEXTS[:9], *ODD, TEXTS[0]]
    plain, remembering = tiny_encoder(batch=7), tiny_encoder(remember=True)
    for pooling in ("mean", "cls"):
        expected = plain.encode(texts, pooling)
        assert np.allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-5)
        assert np.allclose(remembering.encode(texts[:3], pooling), expected[:3], atol=1e-5)
        assert np.allclose(remembering.encode(texts, pooling), expected, atol=1e-5)
        with remembering.timed():
            assert np.allclose(remembering.encode(texts, pooling), expected, atol=1e-5)
        as_they_come = plain.encode(texts, pooling, unit=False)
        lengths = np.linalg.norm(as_they_come, axis=1, keepdims=True)
        assert lengths.min() > 2 and np.allclose(as_they_come / lengths, expected, atol=1e-5)
        assert np.allclose(remembering.encode(texts, pooling, unit=False), as_they_come, atol=1e-4)
    assert not np.allclose(plain.encode(texts, "mean"), plain.encode(texts, "cls"), atol=1e-2)


@with_encoders
@pytest.mark.nightly
def test_the_usual_pooling_is_the_first_token_if_it_stands_for_the_text(
    tiny_encoder: Callable[..., Encoder], tmp_path: Path
) -> None:
    encoder = tiny_encoder()
    write_encoder(tmp_path, framed=False)  # it knows such a token, and does not put it there
    assert (encoder.usual_pooling, Encoder(tmp_path).usual_pooling) == ("cls", "mean")
    assert Modem(encoder).fit(TRAIN).history == Modem(encoder, pooling="cls").fit(TRAIN).history
    assert Modem(encoder).fit(TRAIN).history != Modem(encoder, pooling="mean").fit(TRAIN).history


@with_encoders
def test_training_leaves_the_encoder_as_it_was(tiny_encoder: Callable[..., Encoder]) -> None:
    encoder = tiny_encoder()
    before = encoder.encode(TEXTS)
    FineTuned(encoder, epochs=1, fewest_steps=2, batch=4, rate=0.1).fit(TRAIN)
    Modem(encoder, frozen=False, epochs=1, encoder_rate=0.1).fit(TRAIN)
    assert np.array_equal(encoder.encode(TEXTS), before)


@with_encoders
def test_rows_on_an_encoder_name_it(tiny_encoder: Callable[..., Encoder]) -> None:
    encoder = tiny_encoder(remember=True)
    rival = Rival("nearest", "encoders", NearestNeighbours(encoder, 1), few=False, encoder=encoder)
    (row,) = compare(Prompts("small", TRAIN, TEST), rival)
    assert isinstance(row, RivalRow) and row.circumstances["encoder"] == encoder.name


@with_encoders
def test_a_folder_without_an_encoder_is_refused(tmp_path: Path) -> None:
    assert str(tmp_path) in refusal(EmbeddingError, Encoder(tmp_path).encode, ["Add."])


# training -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 9, 10, 11, 1_000])
@pytest.mark.parametrize("fall", [linear, cosine])
def test_the_rate_rises_over_a_tenth_of_the_steps_and_then_falls_to_nothing(
    fall: Callable[[float], float], steps: int
) -> None:
    shares = [share_of_rate(step, steps, fall) for step in range(steps + 1)]
    top = math.ceil(steps / 10) - 1
    assert shares[top] == 1 and shares[-1] == pytest.approx(0, abs=1e-12) and min(shares[:-1]) > 0
    assert shares == sorted(shares[: top + 1]) + sorted(shares[top + 1 :], reverse=True)
    assert len(set(shares)) >= steps + 1 - top - 1  # no two steps of the fall are alike


@with_torch
@pytest.mark.parametrize(
    ("weights", "accuracies", "kept"),
    [
        ([1.0, 2.0, 3.0], [50, 90, 70], 2.0),
        ([1.0, 2.0, 3.0], [50, 90, 90], 2.0),  # the first of the best
        ([1.0, math.nan, 3.0], [50, 90, 99], 1.0),  # nothing after it diverged
        ([math.inf, 2.0], [99, 99], 0.5),  # then it stays as it was
    ],
)
def test_the_best_epoch_is_kept(weights: list[float], accuracies: list[float], kept: float) -> None:
    import torch

    layer = torch.nn.Linear(1, 1)
    measured = iter(accuracies)

    def losses() -> Iterator[float]:
        for number, weight in enumerate(weights):
            assert layer.training
            torch.nn.init.constant_(layer.weight, weight)
            yield float(number)

    torch.nn.init.constant_(layer.weight, 0.5)
    history = keep_best(torch, layer, losses(), lambda: next(measured)).history
    assert layer.weight.item() == kept and not layer.training
    assert history == tuple(Epoch(float(number), accuracies[number]) for number in range(len(history)))
    ends = [number for number, weight in enumerate(weights, 1) if not math.isfinite(weight)]
    assert len(history) == (ends[0] if ends else len(weights))


@with_torch
@pytest.mark.parametrize(
    ("patience", "run", "kept"),
    [(None, 5, 5), (1, 2, 1), (2, 3, 1), (3, 5, 5)],  # an epoch as good as the best is not better
)
def test_a_training_ends_after_epochs_that_are_not_better(patience: int | None, run: int, kept: int) -> None:
    import torch

    accuracies = iter([60.0, 60.0, 50.0, 70.0, 80.0])
    course = keep_best(torch, torch.nn.Linear(1, 1), iter([0.0] * 5), lambda: next(accuracies), patience=patience)
    assert (len(course.history), course.kept_epoch) == (run, kept)
    assert course.accuracy == (60.0 if kept == 1 else 80.0)


@with_encoders
def test_the_bert_router_keeps_its_best_epoch_on_texts_it_did_not_learn_from(
    tiny_encoder: Callable[..., Encoder],
) -> None:
    settings = {"epochs": 6, "fewest_steps": 1, "rate": 3e-3, "batch": 16, "pooling": "cls"}
    fitted = FineTuned(tiny_encoder(), validated=0.1, **settings).fit(TRAIN)  # type: ignore[arg-type]
    assert isinstance(fitted, Trained)
    assert set(fitted.trained_on) == {36} and set(fitted.validated_on) == {4}
    course = fitted.course
    assert course.accuracy == max(epoch.accuracy for epoch in course.history)
    assert len(course.history) in (course.kept_epoch + 1, 6)  # ended by an epoch that was not better, or by the last
    assert not isinstance(FineTuned(tiny_encoder(), **{**settings, "epochs": 1}).fit(TRAIN), Trained)  # type: ignore[arg-type]


@with_encoders
def test_modem_tells_how_its_training_went(tiny_encoder: Callable[..., Encoder]) -> None:
    encoder = tiny_encoder(remember=True)
    slow, quick = (Modem(encoder, rate=rate, epochs=12).fit(TRAIN) for rate in (1e-5, 1e-2))
    assert len(slow.history) == len(quick.history) == 12
    assert quick.history[-1].loss < quick.history[0].loss < slow.history[-1].loss + 0.5
    assert max(epoch.accuracy for epoch in quick.history) > max(epoch.accuracy for epoch in slow.history)


@with_encoders
@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("rate", [0.1, 1e30])
def test_modem_that_diverges_is_still_a_router(tiny_encoder: Callable[..., Encoder], frozen: bool, rate: float) -> None:
    fitted = Modem(tiny_encoder(), rate=rate, encoder_rate=rate, frozen=frozen, epochs=2).fit(TRAIN)
    assert set(fitted.route([*TEXTS, *ODD])) <= set(TRAIN)
    assert 1 <= len(fitted.history) <= 2 and all(0 <= epoch.accuracy <= 100 for epoch in fitted.history)
