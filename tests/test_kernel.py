"""The native kernel has the bits of numpy. tests/test_kernel_engines.py has where it cannot be used."""

import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de import AllTokens, Average, Embedding, EntropyTopK, Router, kernel
from ir3de.embedding.normalisation import is_random_case, lowercase_if_all_caps
from ir3de.errors import InputError
from ir3de.policies import Policy
from ir3de.routing.compiled import CompiledRouter, decide, decide_batch
from ir3de.routing.decision import require_content
from ir3de.routing.rules import DecisionRules
from ir3de.scorers.subjects import Subjects
from ir3de.scorers.table import Table
from ir3de.selectors import Ballots, Selector
from ir3de.statistics.counting import Recipe, _add_triangle, count, sum_rows
from ir3de.statistics.domain import BUCKETS, count_pairs

TOKENS, SUBJECTS = 97, 19
needs_kernel = pytest.mark.skipif(kernel.native is None, reason=kernel.engine.reason)
SELECTORS: list[Selector] = [Average(), AllTokens(), EntropyTopK(1), EntropyTopK(10), EntropyTopK(1_000)]


def make_table(experts: int, seed: int, *, familiar: bool = True, pairs: bool = True) -> Table:
    rng = np.random.default_rng(seed)
    made = Table.compile(
        rng.normal(size=(TOKENS, experts)).astype(np.float32),
        familiarity=np.rint(rng.normal(-500, 300, TOKENS)).astype(np.float32) if familiar else None,
        pairs=rng.normal(size=(BUCKETS, experts)).astype(np.float32) if pairs else None,
    )
    if familiar:
        object.__setattr__(made, "subjects", rng.integers(-128, 128, (TOKENS, SUBJECTS)).astype(np.int8))
    return made


def make_prompts(seed: int, longest: int = 300) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    lengths = [1, 2, *rng.integers(1, longest, 6).tolist(), 1_025]
    return [rng.integers(0, TOKENS, length).astype(np.uint32) for length in lengths]


# the same bits --------------------------------------------------------------------------------------------------------


@needs_kernel
@tiny.LAW
@given(
    st.sampled_from(SELECTORS),
    st.sampled_from([1, 2, 5, 8, 33, 100]),
    st.integers(0, 999),
    st.booleans(),
    st.booleans(),
)
def test_tallies_have_the_bits_of_numpy(
    selector: Selector, experts: int, seed: int, familiar: bool, pairs: bool
) -> None:
    ballots = selector.ballots(make_table(experts, seed, familiar=familiar, pairs=pairs))
    prompts = make_prompts(seed)
    expected = np.stack([ballots.tally_by_numpy(ids) for ids in prompts])
    assert ballots.native is not None
    assert np.stack([ballots.tally(ids) for ids in prompts]).tobytes() == expected.tobytes()
    flat, starts = np.concatenate(prompts), np.cumsum([0, *(len(ids) for ids in prompts[:-1])])
    assert ballots.tallies(flat, starts).tobytes() == expected.tobytes()
    assert ballots.tallies_by_numpy(flat, starts).tobytes() == expected.tobytes()
    wide = Ballots(
        ballots.values.astype(np.float64), ballots.rank, ballots.limit, ballots.familiarity,
        None if ballots.pairs is None else ballots.pairs.astype(np.float64),
        None if ballots.subjects is None else ballots.subjects.astype(np.float32),
    )  # fmt: skip
    assert wide.tallies(flat, starts).tobytes() == expected.tobytes()  # as they are kept without the kernel


@needs_kernel
@tiny.LAW
@given(st.integers(0, 999), st.integers(1, 6), st.integers(1, 30), st.integers(1, 3_000))
def test_subjects_have_the_bits_of_numpy(seed: int, experts: int, most: int, tokens: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most + 1, experts)
    rows = rng.normal(size=(sizes.sum() + most, SUBJECTS)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    centre = rng.normal(scale=5, size=SUBJECTS).astype(np.float32)
    parts = centre, rows[: sizes.sum()], sizes, rows[sizes.sum() :]
    subjects, plain = (Subjects(*parts, means=(0.3, 0.1), spreads=(0.2, 0.3)) for _ in range(2))
    vars(plain)["native"] = None
    assert subjects.native is not None
    for best in range(experts):
        sums = rng.integers(-127 * tokens, 127 * tokens + 1, SUBJECTS).astype(np.float64)
        assert subjects.measure(sums, tokens, best) == plain.measure(sums, tokens, best)


@needs_kernel
@pytest.mark.parametrize("selector", SELECTORS, ids=str)
def test_decisions_are_those_of_numpy(selector: Selector, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = DecisionRules(("a", "b", "c"), selector)
    natively, prompts = CompiledRouter.build(rules, make_table(3, 5)), make_prompts(5)
    lengths = np.array([len(ids) for ids in prompts], np.int64)
    found = [decide(natively, ids, 3) for ids in prompts], decide_batch(natively, np.concatenate(prompts), lengths, 3)
    monkeypatch.setattr(kernel, "native", None)
    plainly = CompiledRouter.build(rules, make_table(3, 5))
    assert plainly.ballots.native is None and natively.ballots.native is not None
    expected = [decide(plainly, ids, 3) for ids in prompts]
    assert found == (expected, expected)
    assert [one._tally.tobytes() for one in found[0]] == [one._tally.tobytes() for one in expected]


@needs_kernel
def test_a_fitted_router_decides_the_same_with_either_engine(tmp_path: Path) -> None:
    tiny.fit_router(60).save(tmp_path / "router")
    prompts = [*tiny.mixed(60), "zebra quark", "ok thanks", "", "x"]
    script = (
        "import json, sys; from ir3de import Router, kernel; "
        f"router = Router.load({str(tmp_path / 'router')!r}); prompts = json.load(sys.stdin); "
        "print(kernel.engine.name, [router.route(text).to_dict() for text in prompts] "
        "+ [made.to_dict() for made in router.route_batch(prompts)])"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-P", "-c", script], input=json.dumps(prompts), text=True, capture_output=True, check=True,
            env={**os.environ, kernel.VARIABLE: engine},
        ).stdout.split(maxsplit=1)
        for engine in ("native", "numpy")
    ]  # fmt: skip
    assert [engine for engine, _ in printed] == ["native", "numpy"]
    assert printed[0][1] == printed[1][1]


@needs_kernel
@tiny.LAW
@given(
    st.one_of(
        st.text(max_size=60), st.sampled_from(["", "ok thanks", "SOLVE THIS EQUATION NOW", "x " * 2_000, "a\x0bb"])
    )
)
def test_the_quick_route_is_the_long_one(text: str) -> None:
    router = default_router()
    quickly, (compiled, quick) = router.route(text), router._ready
    assert quick is not None
    slowly = require_content(compiled.decide_one(router.tokenizer.encode(text, compiled.cap), None, None), text)
    assert quickly == slowly and quickly._tally.tobytes() == slowly._tally.tobytes()
    assert router.route_batch([text, text]) == [slowly, slowly]


@cache
def default_router() -> Router:
    return Router.fit({name: tiny.sentences(name, 60) for name in tiny.DOMAINS})


@needs_kernel
def test_the_quick_route_follows_every_change() -> None:
    router = Router.fit({name: tiny.sentences(name, 20) for name in ("law", "maths")})
    text = tiny.sentences("cooking", 1, seed=9)[0] * 3
    before = router.route(text)
    router.add("cooking", tiny.sentences("cooking", 20))
    assert router.route(text).expert == "cooking" and before.expert != "cooking"
    assert router.with_policy(Policy(threshold=0.99)).route(text).abstained
    costs = Policy(weights={"price": 1.0}, costs={"cooking": {"price": 9.0}})
    assert router.with_policy(costs).route(text).expert != "cooking"
    assert router.with_policy(costs).route(text, weights={"price": 0.0}).expert == "cooking"
    for wrong in (None, 7, b"bytes", ["a list"]):
        with pytest.raises(InputError):
            router.route(wrong)  # type: ignore[arg-type]


@needs_kernel
def test_threads_change_no_bit() -> None:
    ballots, prompts = Average().ballots(make_table(4, 1)), make_prompts(1) * 40
    flat, starts = np.concatenate(prompts), np.cumsum([0, *(len(ids) for ids in prompts[:-1])])
    once = ballots.tallies(flat, starts).tobytes()
    with ThreadPoolExecutor(4) as pool:
        assert {found.tobytes() for found in pool.map(lambda _: ballots.tallies(flat, starts), range(16))} == {once}


@needs_kernel
@tiny.LAW
@given(
    st.integers(0, 999), st.sampled_from([1, 3, 8, 40]), st.lists(st.integers(0, 90), max_size=12), st.integers(1, 9)
)
def test_counts_have_the_bits_of_numpy(seed: int, width: int, sizes: list[int], times: int) -> None:
    rng = np.random.default_rng(seed)
    lengths, flat = np.array(sizes, np.int64), rng.integers(0, TOKENS, sum(sizes)).astype(np.uint32)
    starts, matrix = np.cumsum(lengths) - lengths, rng.integers(-(1 << 11), 1 << 11, (TOKENS, width)).astype(np.float32)
    square = rng.integers(-(1 << 50), 1 << 50, (width, width)).astype(np.float64)

    def count() -> list[bytes]:
        packed = np.arange(width * (width + 1) // 2)
        _add_triangle(square, times, packed)
        sums = sum_rows(flat.astype(np.intp), starts, lengths, matrix)
        return [count_pairs(flat, starts, lengths).tobytes(), (sums + 0.0).tobytes(), packed.tobytes()]

    found = count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "native", None)
        assert found == count()


@needs_kernel
def test_long_stretches_are_summed_exactly() -> None:
    matrix, flat = np.full((2, 3), 2_047, np.float32), np.zeros(20_000, np.intp)
    sums = sum_rows(flat, np.array([0, 7]), np.array([20_000, 19_993]), matrix)
    assert sums.tolist() == [[2_047.0 * 20_000] * 3, [2_047.0 * 19_993] * 3]


@needs_kernel
def test_statistics_do_not_depend_on_the_engine() -> None:
    texts = tiny.mixed(50)
    recipe = Recipe(subsample=2, keep_sample=True, window=16)
    found = count(texts, tiny.embedding(), recipe)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "native", None)
        assert found == count(texts, tiny.embedding(), recipe)


# texts that the fast tokenizer gets as they are -----------------------------------------------------------------------


@needs_kernel
def test_every_character_is_examined_as_python_would() -> None:
    tokenizer = Embedding.default().tokenizer
    reader, doubts = tokenizer.quick[0], tokenizer.proof.doubts
    for point in (*range(0xD800), *range(0xE000, 0x11000)):
        character = chr(point)
        capitals, mixed = "SEVENTEEN LETTERS" + character, f"a{character} " * 3
        assert not (reader.is_plain(capitals) and lowercase_if_all_caps(capitals) != capitals), hex(point)
        assert not (reader.is_plain(mixed) and (doubts(mixed) or is_random_case(mixed, 1_000))), hex(point)
        assert not (reader.is_plain(f"a {character}'s") and doubts(f"a {character}'s")), hex(point)


awkward = st.text(st.sampled_from("aAzZ éÉßIıİ\t'\x0b\x04…ⅣΩ语한👍\ud83d9.\n"), max_size=40)


@needs_kernel
@tiny.LAW
@given(st.lists(st.one_of(awkward, st.text(max_size=20), st.just("HOW DO I BOIL AN EGG?")), max_size=8))
def test_ids_do_not_depend_on_the_kernel(texts: list[str]) -> None:
    tokenizer = Embedding.default().tokenizer
    plain = pickle.loads(pickle.dumps(tokenizer))
    vars(plain)["quick"] = None
    vars(plain)["_fast"] = tokenizer._fast
    flat, lengths = tokenizer.encode_batch(texts)
    expected, sizes = plain.encode_batch(texts)
    assert (flat.tolist(), lengths.tolist()) == (expected.tolist(), sizes.tolist())
    for text in texts:
        assert tokenizer.encode(text).tolist() == plain.encode(text).tolist()


# bad input ------------------------------------------------------------------------------------------------------------


@needs_kernel
def test_ids_beyond_the_table_are_an_error_and_odd_arrays_are_not() -> None:
    ballots, ids = Average().ballots(make_table(3, 0)), np.array([5, 0, 5, 96, 2], np.uint32)
    for bad in ([TOKENS], [0, 1 << 31]):
        with pytest.raises(IndexError):
            ballots.tally(np.array(bad, np.uint32))
        with pytest.raises(IndexError):
            ballots.tallies(np.array([1, 2, *bad], np.uint32), np.array([0, 2]))
    assert not ballots.tally(np.zeros(0, np.uint32)).any()
    for odd in (ids.astype(np.int64), np.repeat(ids, 2)[::2], ids[::-1][::-1]):
        assert ballots.tally(odd).tobytes() == ballots.tally(ids).tobytes()
    strange = Ballots(np.ones((4, 2), np.float16))
    assert strange.native is None and strange.tally(np.array([1, 2], np.uint32)).tolist() == [2.0, 2.0]


@needs_kernel
def test_arguments_that_do_not_fit_are_errors() -> None:
    tables = kernel.native.Tables(np.ones((4, 2)), None, 9, None, None, None)
    ids, tally = np.zeros(1, np.uint32), np.empty(2)
    for wrong in (
        (ids, np.empty(3), 1, None), (ids, tally, 3, None), (ids, tally, 0, None), (ids, tally, 1, 7), (ids, tally, 1),
        (ids.astype(np.int64), tally, 1, None), (ids, tally.astype(np.float32), 1, None), (None, tally, 1, None),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, BufferError)):
            tables.decide(*wrong)
    frozen = np.empty(2)
    frozen.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        tables.decide(ids, frozen, 1, None)
    for start, length in ((3, 0), (0, 2), (1, 1), (-1, 1), (0, -1)):
        with pytest.raises(ValueError, match="within the ids"):
            places = np.array([start]), np.array([length])
            tables.decide_many(ids, *places, np.empty((1, 2)), np.empty(1, np.int64), 1, None)
    one = np.array([1])
    for wrong in (
        (np.ones((4, 2), np.float32), one, one, one, np.empty((1, 2))),
        (np.ones((4, 2), np.float32), one, -one, one, np.empty((1, 2))),
        (np.ones((4, 2), np.float32), one, one - 1, one, np.empty((2, 2))),
        (np.ones((4, 2)), one, one - 1, one, np.empty((1, 2))),
    ):
        with pytest.raises((TypeError, ValueError)):
            kernel.native.sum_rows(*wrong)
    with pytest.raises(IndexError):
        kernel.native.sum_rows(np.ones((4, 2), np.float32), one * 4, one - 1, one, np.empty((1, 2)))
    for wrong in ((ids, one, one, np.zeros(BUCKETS, np.int64)), (ids, one - 1, one, np.zeros(9, np.int64))):
        with pytest.raises(ValueError, match=r"ids|fit"):
            kernel.native.count_pairs(*wrong)
    with pytest.raises(ValueError, match="fit"):
        kernel.native.add_triangle(np.ones((2, 3)), 1, np.zeros(3, np.int64))
    for parts in (
        (np.ones((4, 2)), np.array([0, 1, 2, 4], np.uint32), 9, None, None, None),  # a rank without a row
        (np.ones((4, 2)), np.zeros(3, np.uint32), 9, None, None, None),
        (np.ones((4, 2)), None, 9, None, np.ones((9, 2)), None),
        (np.ones((4, 2)), None, 0, None, None, None),
        (np.ones(4), None, 9, None, None, None),
    ):
        with pytest.raises((TypeError, ValueError)):
            kernel.native.Tables(*parts)
