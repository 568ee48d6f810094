"""Whole tasks held out: small outcomes whose right answer is known."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ir3de.embedding import Embedding, Matrix
from ir3de.errors import InputError
from ir3de_lab.benchmarks.held_out_tasks import comparing, expecting, heads, measuring, sets, verdicts
from ir3de_lab.benchmarks.held_out_tasks.measuring import Row
from ir3de_lab.experiments.resampling import Difference

WORDS = {
    "law": "contract landlord deposit void clause court lease tenant",
    "coding": "loop python list sort function variable compile array",
    "maths": "prove integer prime sum equation root divide factor",
}


def make_part(rows: int, best: dict[str, int], seed: int, costs: bool = True) -> sets.Part:
    """Prompts of words of their task; one model of two is right on a task, nine times of ten."""
    rng = np.random.default_rng(seed)
    tasks = np.repeat(list(WORDS), rows)
    texts = tuple(" ".join(rng.choice(WORDS[task].split(), 6)) + f" {place}" for place, task in enumerate(tasks))
    right = np.array([best[task] for task in tasks])
    scores = (rng.random((len(tasks), 2)) < np.where(np.arange(2) == right[:, None], 0.9, 0.2)).astype(float)
    return sets.Part(texts, tasks, scores, np.tile([1.0, 2.0], (len(tasks), 1)) if costs else None)


def make_set(best: dict[str, int], rows: int = 40) -> sets.OutcomeSet:
    return sets.OutcomeSet("made", ("cheap", "dear"), make_part(rows, best, 1), make_part(rows, best, 2), "coins")


def encode(texts: tuple[str, ...]) -> heads.Vectors:
    """Counts of hashed words, of length one."""
    made = np.zeros((len(texts), 64), np.float32)
    for row, text in zip(made, texts, strict=True):
        for word in text.split()[:6]:
            row[zlib.crc32(word.encode()) % 64] += 1
    return made / np.linalg.norm(made, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def narrow() -> Embedding:
    """Sixteen columns of the bundled embedding: a fit takes a moment."""
    usual = Embedding.default()
    return Embedding(usual.tokenizer, Matrix.plain(np.ascontiguousarray(usual.matrix[:, :16])), name="narrow")


@pytest.fixture(scope="module")
def ways(narrow: Embedding) -> list[expecting.Way]:
    given = make_set({"law": 0, "coding": 1, "maths": 1})
    return list(expecting.expect_all(given, encode, embedding=narrow))


def reached(ways: list[expecting.Way], name: str, regime: str) -> float:
    (way,) = (way for way in ways if way.name == name and way.regime == regime)
    return float(np.nanmean(way.reached))


class TestExpecting:
    @pytest.mark.nightly
    def test_known_tasks_are_routed_to_their_best_model(self, ways: list[expecting.Way]) -> None:
        for name in (expecting.OURS, *heads.list_heads()):
            assert reached(ways, name, "known") == pytest.approx(reached(ways, expecting.OF_TASK, "known"), abs=0.06)
        assert reached(ways, expecting.SINGLE, "known") < reached(ways, expecting.OURS, "known") - 0.1

    @pytest.mark.nightly
    def test_the_best_single_model_of_held_out_tasks_is_that_of_the_others(self, ways: list[expecting.Way]) -> None:
        (way,) = (way for way in ways if way.name == expecting.SINGLE and way.regime == "held out")
        law = make_set({"law": 0, "coding": 1, "maths": 1}).test
        assert way.reached[law.tasks == "law"].tolist() == law.scores[law.tasks == "law", 1].tolist()

    @pytest.mark.nightly
    def test_bounds(self, ways: list[expecting.Way]) -> None:
        for regime in expecting.REGIMES:
            best = reached(ways, expecting.ORACLE, regime)
            assert all(np.nanmean(way.reached) <= best for way in ways if way.regime == regime)

    @pytest.mark.nightly
    def test_scores_of_a_held_out_task_change_nothing_there(self, ways: list[expecting.Way], narrow: Embedding) -> None:
        given = make_set({"law": 0, "coding": 1, "maths": 1})
        turned = given.train.scores.copy()
        own = given.train.tasks == "law"
        turned[own] = 1 - turned[own]
        other = replace(given, train=replace(given.train, scores=turned))
        asked = given.test.tasks == "law"
        for before, after in zip(ways, expecting.expect_all(other, encode, embedding=narrow), strict=True):
            if before.regime == "held out" and before.name != expecting.OF_TASK:
                assert before.reached[asked].tolist() == after.reached[asked].tolist(), before.name

    def test_two_tasks_are_too_few(self) -> None:
        given = make_set({"law": 0, "coding": 1, "maths": 1})
        two = replace(given, train=given.train.take(given.train.tasks != "law"))
        with pytest.raises(InputError, match="without 'coding' fewer than two tasks are left"):
            list(expecting._fold(two, "held out"))

    def test_tasks_without_training_rows_count_as_held_out_only(self) -> None:
        given = make_set({"law": 0, "coding": 1, "maths": 1})
        groups = dict.fromkeys(("coding", "maths"), "both") | {"law": "law"}
        poorer = replace(given, train=given.train.take(given.train.tasks != "law"))
        assert not expecting.asked_in(poorer, "known")[given.test.tasks == "law"].any()
        assert expecting.asked_in(poorer, "held out").all()
        with pytest.raises(InputError, match="made: without 'both'"):
            expecting._fold(replace(poorer, groups=groups), "held out")


class TestHeads:
    def test_neighbours(self) -> None:
        known = np.array([[1, 0], [0.9, 0.1], [0, 1]], np.float32)
        scores = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
        found = heads.expect_by_neighbours(2, known, scores, np.array([[1, 0]], np.float32))
        assert found.tolist() == [[0.5, 0.0]]

    @pytest.mark.parametrize("units", [0, 3])
    def test_gradient(self, units: int) -> None:
        rng = np.random.default_rng(0)
        given, targets = rng.normal(size=(7, 4)).astype(np.float32), rng.random((7, 2)).astype(np.float32)
        shapes = heads._list_shapes(4, units, 2)
        flat = rng.normal(size=sum(a * b for a, b in shapes))
        measure = partial(heads._measure_loss, shapes, 0.1, given, targets)
        _, gradient = measure(flat)
        for place in range(len(flat)):
            step = np.zeros_like(flat)
            step[place] = 1e-2
            slope = (measure(flat + step)[0] - measure(flat - step)[0]) / 2e-2
            assert gradient[place] == pytest.approx(slope, abs=2e-3)

    def test_a_setting_is_chosen_by_what_holds_on_other_tasks(self) -> None:
        part = make_part(20, {"law": 0, "coding": 0, "maths": 0}, 3)
        grid = {
            (0.0,): lambda known, scores, asked: np.tile([0.0, 1.0], (len(asked), 1)),
            (1.0,): lambda known, scores, asked: np.tile([1.0, 0.0], (len(asked), 1)),
        }
        assert expecting.choose_setting(grid, encode(part.texts), part, expecting._split_tasks(part)) == (1.0,)

    def test_each_task_is_held_out_once(self) -> None:
        part = make_part(5, dict.fromkeys(WORDS, 0), 3)
        places = expecting._split_tasks(part)
        assert sorted(dict(zip(part.tasks, places, strict=True)).values()) == [0, 1, 2]


class TestComparing:
    def part(self, texts: list[str], tasks: list[str]) -> sets.Part:
        return sets.Part(tuple(texts), np.array(tasks), np.zeros((len(texts), 2)))

    def test_every_task_keeps_its_weight(self) -> None:
        part = self.part([f"text {n}" for n in range(10)], ["a"] * 3 + ["b"] * 7)
        left = list(comparing.leave_out(part))
        assert [len(weights) for weights in left] == [3, 7]
        for weights in left:
            assert weights[:, part.tasks == "a"].sum(axis=1) == pytest.approx(0.5)
            assert weights.sum(axis=1) == pytest.approx(1.0)

    def test_prompts_with_the_same_text_are_left_out_together(self) -> None:
        part = self.part(["why", "Why ", "how", "who"], ["a"] * 4)
        (weights,) = comparing.leave_out(part)
        assert weights.tolist() == pytest.approx(np.array([[0, 0, 3, 3], [2, 2, 0, 2], [2, 2, 2, 0]]) / 6)

    def test_a_task_of_one_prompt_makes_nothing_sure(self) -> None:
        part = self.part(["one", "two", "three"], ["a", "b", "b"])
        _, (_, gap) = comparing.compare(part, 0, comparing.measure_means(np.array([[0.0, 1.0]] * 3)))
        assert (gap.value, gap.interval) == (100.0, (-np.inf, np.inf))

    def test_differences(self) -> None:
        rng = np.random.default_rng(0)
        part = self.part([str(n) for n in range(400)], ["a", "b"] * 200)
        columns = np.stack([np.zeros(400), np.zeros(400), np.full(400, 0.1), rng.normal(0.0, 1.0, 400)], axis=1)
        values, (_, none, sure, unsure) = comparing.compare(part, 0, comparing.measure_means(columns))
        assert values[2] == pytest.approx(10.0)
        assert (none.value, none.p_value) == (0.0, 1.0)
        assert (*sure.interval, sure.p_value) == pytest.approx((10.0, 10.0, 0.0))
        low, high = unsure.interval
        spread = [columns[part.tasks == task, 3].var(ddof=1) / 200 for task in "ab"]
        assert high - low == pytest.approx(100 * 2 * 1.966 * np.sqrt(sum(spread)) / 2, rel=0.001)  # t of 397 degrees

    def test_orders(self) -> None:
        gained = np.repeat([1.0, 0.0], 40)
        later = [comparing.order_calls(one) for one in (gained, -gained, np.zeros(80))]
        part = self.part([str(n) for n in range(80)], ["a", "b"] * 40)
        values, gaps = comparing.compare(part, 2, comparing.measure_orders(np.array(["s"] * 80), gained, later))
        assert values.tolist() == pytest.approx([75, 25, 50])
        assert gaps[0].interval == pytest.approx((25, 25))  # all that gain are equal, so are their places

    def test_a_router_that_knows_the_task_is_above_the_zero_router(self) -> None:
        test = make_set({"law": 0, "coding": 1, "maths": 1}).test
        expected = np.where((test.tasks == "law")[:, None], [0.9, 0.2], [0.2, 0.9])
        curves = [
            comparing.buy(test.scores, test.costs, expected, np.tile([1.0, 2.0], (len(test.tasks), 1))),
            comparing.buy_single(test.scores, test.costs),
        ]
        values, gaps = comparing.compare(test, 1, comparing.measure_curves(curves, (1.0, 2.0)))
        assert values[0] > values[1] + 10
        assert gaps[0].is_above


class TestVerdicts:
    def rows(self, value: float, p: float) -> list[Row]:
        gap = Difference(value, (value - 0.1, value + 0.1), p)
        return [Row(expecting.SINGLE, regime, 50.0, {}, gap) for regime in expecting.REGIMES]

    def test_a_gain_in_three_sets_is_enough(self) -> None:
        found = {str(n): self.rows(-2.0, 0.001) for n in range(3)} | {str(n): self.rows(0.0, 1.0) for n in (3, 4)}
        known, unseen, *_ = verdicts.judge(verdicts.list_signs(found), 5)
        assert (known.held, len(known.above), unseen.held) == (True, 3, True)

    def test_one_loss_is_too_many(self) -> None:
        found = {str(n): self.rows(-2.0, 0.001) for n in range(4)} | {"4": self.rows(1.0, 0.001)}
        known, *_ = verdicts.judge(verdicts.list_signs(found), 5)
        assert (known.held, known.below) == (False, ("4: best single model",))

    def test_signs_are_corrected(self) -> None:
        found = {str(n): self.rows(-2.0, 0.02) for n in range(5)}
        assert {sign.sign for sign in verdicts.list_signs(found)} == {""}  # 5 × 0.02 = 0.1

    @pytest.mark.nightly
    def test_the_whole_way(self, narrow: Embedding) -> None:
        rows = measuring.measure(make_set({"law": 0, "coding": 1, "maths": 1}, rows=20), encode, embedding=narrow)
        found = {(row.way, row.regime): row for row in rows}
        assert found[measuring.ZERO, "known"].worth_difference is not None
        assert found[expecting.OURS, "known"].difference is None
        assert [Row.read(row.to_dict()).way for row in rows] == [row.way for row in rows]
        assert json.loads(json.dumps(measuring.describe(make_set(dict.fromkeys(WORDS, 0)), rows)))["tasks"]["law"]


class TestSets:
    def write(self, folder: Path, name: str, rows: list[dict[str, object]]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def test_zeroeval_keeps_the_models_that_answered_everything(self, tmp_path: Path) -> None:
        rows = [
            {
                "task": task, "id": str(n), "prompt": f"{task} {n}",
                "correct": {"a": 1, "b": 0, sets.DAMAGED: 1, **({"part": 1} if n else {})},
                "output_chars": {"a": 500, "b": 20, sets.DAMAGED: 1, "part": 1},
            }
            for task in ("gsm", "crux", "numersense-v2") for n in range(8)
        ]  # fmt: skip
        self.write(tmp_path, "zeroeval", rows)
        made = sets.read_zeroeval(tmp_path, ("gsm", "crux"), "ZeroEval")
        assert made.models == ("a", "b")
        assert set(made.test.names) == {"gsm", "crux"}
        assert len(made.train.texts) + len(made.test.texts) == 16
        assert set(made.train.texts).isdisjoint(made.test.texts)
        assert made.test.costs is not None
        assert made.test.costs[0].tolist() == [0.5, 0.02]

    def test_routellm_holds_subjects_out_in_groups(self, tmp_path: Path) -> None:
        for split in ("train", "test"):
            subjects = [{"text": f"{split} {n}", "task": f"s{n:02}", "scores": {"x": 1, "y": 0}} for n in range(23)]
            self.write(tmp_path, f"mmlu_{split}", subjects)
            self.write(tmp_path, f"gsm8k_{split}", [{"text": split, "task": "gsm8k", "scores": {"x": 1, "y": 0}}])
        made = sets.read_routellm(tmp_path)
        groups = made.group_of(made.test.names).tolist()
        assert len(set(groups)) == 11
        assert groups.count("gsm8k") == 1
        assert made.thin(None, 1).test.texts == made.test.texts  # one of each task at least

    def test_thinning_takes_as_many_of_each_task_of_a_group(self) -> None:
        given = make_set(dict.fromkeys(WORDS, 0))
        grouped = replace(given, groups={"law": "law", "coding": "both", "maths": "both"})
        names, counts = np.unique(grouped.thin(10, None).train.tasks, return_counts=True)
        assert dict(zip(names.tolist(), counts.tolist(), strict=True)) == {"coding": 5, "law": 10, "maths": 5}

    def test_a_score_that_is_missing_is_named(self, tmp_path: Path) -> None:
        rows = [{"text": "t", "task": "gsm8k", "scores": {"x": 1, "y": None}}]
        for split in ("train", "test"):
            self.write(tmp_path, f"mmlu_{split}", rows)
            self.write(tmp_path, f"gsm8k_{split}", rows)
        with pytest.raises(InputError, match="RouteLLM: the prompt 't' lacks a score"):
            sets.read_routellm(tmp_path)

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"no zeroeval\.jsonl, plain or packed"):
            sets.read_sets(tmp_path)["ZeroEval"]()
