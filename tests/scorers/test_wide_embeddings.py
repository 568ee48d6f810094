"""Wide embeddings, where every expert's Gram matrix is remembered: what was changed is what was fitted so at once.

The laws hold for any width; here they are stated of the smallest embedding, told that it is wide.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tiny
from commands import LAW, complaint
from ir3de import Router, TokenRidge
from ir3de.errors import InputError, MissingExtraError
from ir3de.files.router_folder import inspect_router
from ir3de.scorers import Blend, Scorer, arithmetic, ridge
from ir3de.scorers.ridge import recall
from laws import counted

STATES = {"kept": (), "deleted": ("missing, rebuilt when needed",), "damaged": ("damaged, rebuilt when needed",)}
CASES = [(TokenRidge(), False), (TokenRidge.paper(), False), (TokenRidge.authors(), True), (Blend(), True)]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ridge, "MIN_REMEMBERED_WIDTH", 1)


class Watched(arithmetic.NumpyArithmetic):
    """Numpy's arithmetic, which says how many rows its products were over."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def product(self, rows: arithmetic.Rows, counts: np.ndarray, **options: bool) -> np.ndarray:
        self.rows.append(int(np.count_nonzero(counts.any(axis=1))))
        return super().product(rows, counts, **options)


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    with arithmetic.using(watched):
        yield watched


def fit(names: str, scorer: Scorer, *, keep_sample: bool = False) -> Router:
    texts = {"x": tiny.sentences("maths", 12), "y": tiny.sentences("law", 9), "z": tiny.sentences("cooking", 15)}
    fresh = {name: counted(texts[name], keep_sample=keep_sample) for name in names}
    return Router.fit(fresh, embedding=tiny.embedding(), scorer=scorer)


def of_third(**options: bool) -> object:
    return counted(tiny.sentences("cooking", 15), **options)


@pytest.mark.parametrize(("scorer", "keep_sample"), CASES)
def test_who_joins_or_leaves_leaves_no_trace(tmp_path: Path, scorer: Scorer, keep_sample: bool) -> None:
    """Also on disk, also where the Gram matrices are gone or damaged."""
    two, three = (
        tiny.contents(fit(names, scorer, keep_sample=keep_sample).save(tmp_path / names)) for names in ("xy", "xyz")
    )
    for fate in ("kept", "deleted", "damaged"):
        folder = fit("xy", scorer, keep_sample=keep_sample).save(tmp_path / fate)
        for change, expected in (
            (lambda router: router.add("z", of_third(keep_sample=keep_sample)), three),
            (lambda router: router.remove("z"), two),
        ):
            files = sorted(folder.glob("gram-*"))
            assert files
            if fate == "deleted":
                files[0].unlink()
            if fate == "damaged":
                content = files[0].read_bytes()
                files[0].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
            found = inspect_router(folder)
            assert {file.state for file in found.files} == {"ok", *STATES[fate]} and found.whole
            router = Router.load(folder)
            change(router)
            assert tiny.contents(router.save(folder)) == expected


def test_only_what_joined_is_computed(tmp_path: Path, watched: Watched) -> None:
    """In the same process and in another; when an expert leaves, nothing is."""
    router = fit("xy", TokenRidge())
    third = of_third()
    own = [int(np.count_nonzero(domain.histogram)) for domain in (*router.statistics.values(), third)]
    assert watched.rows == own[:2]
    watched.rows.clear()
    router.save(tmp_path / "router")
    for changed in (router, Router.load(tmp_path / "router")):
        changed.add("z", of_third())
        assert watched.rows == own[2:]
        watched.rows.clear()
        changed.remove("z")
        assert watched.rows == []


def test_prompts_held_out_are_taken_from_the_whole(watched: Watched) -> None:
    """Calibrating an old expert again costs the rows of its held-out prompts, not of all its prompts."""
    router = fit("xy", TokenRidge(), keep_sample=True)
    known = {name: recall(domain) for name, domain in router.statistics.items()}
    watched.rows.clear()
    router.add("z", of_third(keep_sample=True))
    assert all(recall(router.statistics[name]) is gram for name, gram in known.items())
    assert router.calibrated
    assert max(watched.rows) == np.count_nonzero(router.statistics["z"].histogram)


def test_the_two_ways_to_a_gram_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    own = fit("xyz", TokenRidge()).compiled.table.scores
    monkeypatch.setattr(ridge, "MIN_REMEMBERED_WIDTH", 1 << 20)
    at_once = fit("xyz", TokenRidge())
    assert all(recall(domain) is None for domain in at_once.statistics.values())
    np.testing.assert_allclose(own, at_once.compiled.table.scores, rtol=0, atol=1e-6 * np.abs(own).max())


def test_what_another_arithmetic_made_is_made_anew(watched: Watched) -> None:
    """Scores are a function of the counts and of who computes, never of who computed before."""
    router = fit("xy", TokenRidge())
    watched.rows.clear()
    watched.name = "another"
    router.add("z", of_third())
    assert len(watched.rows) == 3


def test_progress_is_told_of_every_row() -> None:
    told: list[tuple[str, int, int]] = []
    with arithmetic.using(progress=lambda *step: told.append(step)):
        router = fit("xy", TokenRidge())
    rows = sum(int(np.count_nonzero(domain.histogram)) for domain in router.statistics.values())
    finished = {doing: (done, of) for doing, done, of in told}
    assert finished == {"product": (rows, rows), "solve": (13, 13), "scores": (330, 330)}
    told.clear()
    fit("x", TokenRidge())
    assert not told


@pytest.mark.torch
@pytest.mark.parametrize("width", [1, 1 << 20])
@pytest.mark.parametrize("scorer", [TokenRidge(), Blend()])
def test_torch_gives_the_same_scores_to_a_tolerance(
    monkeypatch: pytest.MonkeyPatch, scorer: Scorer, width: int
) -> None:
    from ir3de.scorers.arithmetic import TOLERANCE, TorchArithmetic

    monkeypatch.setattr(ridge, "MIN_REMEMBERED_WIDTH", width)
    domains = list(fit("xyz", scorer, keep_sample=True).statistics.values())
    expected = scorer.scores(domains, tiny.embedding().rows)
    with arithmetic.using(TorchArithmetic("cpu")):
        found = scorer.scores(domains, tiny.embedding().rows)
        assert np.array_equal(found, scorer.scores(domains, tiny.embedding().rows))
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


@pytest.mark.torch
def test_a_router_fitted_by_torch_changes_without_a_trace(tmp_path: Path) -> None:
    from ir3de.scorers.arithmetic import on_device

    texts = tiny.domain_texts()
    two = {name: texts[name] for name in ("maths", "law")}
    options = {"embedding": tiny.embedding(), "scorer": TokenRidge(), "device": "cpu"}
    expected = tiny.contents(Router.fit(two, **options).save(tmp_path / "two"))
    router = Router.fit(texts, **options)
    assert {recall(domain).made_by for domain in router.statistics.values()} == {"torch cpu"}
    with on_device("cpu"):
        router.remove("cooking")
    assert tiny.contents(router.save(tmp_path / "removed")) == expected


@pytest.mark.torch
@pytest.mark.parametrize("device", ["tpu", "cuda:77", "meta", ""])
def test_a_device_that_is_not_there_is_refused_before_anything_is_read(device: str) -> None:
    def texts() -> Iterator[str]:
        raise AssertionError("texts were read")
        yield

    with pytest.raises(InputError, match=f"no device '{device}'"):
        Router.fit({"x": texts()}, embedding=tiny.embedding(), device=device)


@pytest.mark.torch
def test_commands_refuse_it_too(tmp_path: Path) -> None:
    for command in (
        ["fit", tmp_path / "new", f"law={LAW}"],
        ["add", tmp_path, f"law={LAW}"],
        ["remove", tmp_path, "x"],
    ):
        assert "no device 'tpu'" in complaint(*command, "--device", "tpu")


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"needs the package 'torch'.*pip install .*\[torch\]"):
        Router.fit({"x": ["a"]}, embedding=tiny.embedding(), device="cuda")
