"""Statistics and embeddings that do not fit together, or are none: each a clear error."""

import math

import numpy as np
import pytest

import tiny
from ir3de import Router, Statistics, TokenRidge, collect
from ir3de.embedding import Embedding, Matrix
from ir3de.errors import EmbeddingError, InputError, MismatchError
from ir3de.statistics.domain import BUCKETS, PromptSums
from refused import Unchanged, counted, refusal, tiny_fit

# statistics -----------------------------------------------------------------------------------------------------


def test_statistics_of_another_embedding_are_refused_everywhere() -> None:
    ours = counted(["prove"])
    theirs = collect(["prove"], embedding=tiny.other_embedding())
    for action in (lambda: ours + theirs, lambda: ours - theirs, lambda: sum([theirs, ours])):
        message = refusal(MismatchError, action)
        assert ours.fingerprint[:12] in message
        assert theirs.fingerprint[:12] in message
        assert "same embedding" in message
    with Unchanged() as router:
        for action in (
            lambda: tiny_fit({"maths": theirs}),
            lambda: router.add("new", theirs),
            lambda: router.merge("law", theirs),
        ):
            message = refusal(MismatchError, action)
            assert theirs.fingerprint[:12] in message
            assert "collect them again" in message


def test_a_histogram_alone_does_not_mix_with_prompt_sums() -> None:
    whole, histogram = counted(["prove"]), counted(["solve"], prompt_sums=False)
    for action in (lambda: whole + histogram, lambda: histogram + whole, lambda: whole - histogram):
        assert "histogram_only()" in refusal(MismatchError, action)
    assert (whole.histogram_only() + histogram).prompts == 2


def test_windows_of_different_lengths_do_not_mix() -> None:
    message = refusal(MismatchError, lambda: counted(["prove"], window=64) + counted(["solve"], window=32))
    assert "64" in message
    assert "32" in message


def test_prompt_ridge_needs_prompt_sums() -> None:
    histogram = counted(["prove"], prompt_sums=False)
    assert "prompt_sums=True" in refusal(InputError, tiny_fit, {"maths": histogram})
    with Unchanged() as router:
        assert "TokenRidge" in refusal(InputError, router.add, "new", histogram)
    assert tiny_fit({"maths": histogram}, scorer=TokenRidge()).route("prove").expert == "maths"


def test_statistics_add_only_to_statistics() -> None:
    for other in (1, None, "text", [1]):
        with pytest.raises(TypeError):
            counted(["a"]) + other
        assert counted(["a"]) != other


def test_statistics_below_zero_do_not_exist() -> None:
    fingerprint, none = tiny.embedding().fingerprint, np.zeros(330, np.int64)
    for prompts, histogram in [(-1, none), (1, none - 1)]:
        assert "below zero" in refusal(InputError, Statistics, fingerprint, prompts, histogram)
    vector, gram, pairs = np.zeros(2, np.int64), np.zeros(3, np.int64), np.zeros(BUCKETS, np.int64)
    for windows, diagonal, met in [(-1, 0, 0), (1, -1, 0), (1, 0, -1)]:
        wrong = gram + np.array([0, 0, diagonal])
        assert "below zero" in refusal(InputError, PromptSums, 128, 1.0, windows, vector, wrong, pairs + met)
    message = refusal(InputError, PromptSums, 128, 1.0, 1, vector, np.zeros(4, int), pairs)
    assert "need 3 Gram entries, found 4" in message
    message = refusal(InputError, PromptSums, 128, 1.0, 1, vector, gram, pairs[1:])
    assert "in 65,536 buckets, found 65,535" in message


def test_statistics_cannot_be_changed_in_place() -> None:
    statistics = counted(["prove"])
    for array in (statistics.histogram, statistics.sums.vector, statistics.sums.gram, statistics.sums.pairs):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


# embeddings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_embedding_must_be_finite(value: float) -> None:
    values = tiny.random_matrix(330).values.copy()
    values[[17, 40], 3] = value
    embedding = tiny.with_matrix(Matrix.plain(values))
    for action in (
        lambda: Router.fit({"a": ["prove"]}, embedding=embedding),
        lambda: collect(["a"], embedding=embedding),
    ):
        message = refusal(EmbeddingError, action)
        assert "2 of 330 rows" in message
        assert "row 17" in message


def test_an_embedding_must_not_be_empty() -> None:
    for shape in ((0, 12), (330, 0)):
        message = refusal(EmbeddingError, tiny.with_matrix, Matrix.plain(np.zeros(shape, np.float32)))
        assert f"{shape[0]} × {shape[1]}" in message


def test_tokenizer_and_matrix_must_belong_together() -> None:
    message = refusal(
        EmbeddingError, Embedding.from_definition, tiny.byte_definition(), tiny.random_matrix(329), name="tiny"
    )
    assert "ids up to 329" in message
    assert "329 rows" in message
    for wrong in (b"", b"{}", b"[]", b"nonsense", b"\xff"):
        assert "tokenizer.json" in refusal(
            EmbeddingError, Embedding.from_definition, wrong, tiny.random_matrix(9), name="tiny"
        )


@pytest.mark.parametrize("source", ["no/such/place", "nowhere", "a b"])
def test_an_embedding_must_be_somewhere(source: str) -> None:
    assert f"no embedding at '{source}'" in refusal(EmbeddingError, Embedding.load, source)
