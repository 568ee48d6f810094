"""The rivals IR3DE is compared with: one interface for all, and one protocol of comparing."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ir3de import Embedding
from ir3de.cli import cli
from ir3de.corpora import examples as demo
from ir3de.errors import InputError, MissingExtraError
from ir3de_lab.benchmarks.accuracy import suites
from ir3de_lab.benchmarks.protocol import Prompts, Scores, few_shot, first_tokens, prompts_of, score
from ir3de_lab.benchmarks.rivals import Itself, Rival, RivalRow, compare, measure_few_shot, merged, rivals
from ir3de_lab.catalogue import MEASURES, benchmarks, describe
from ir3de_lab.rivals import Fitted
from ir3de_lab.rivals.naive_bayes import NaiveBayes
from refused import refusal

pytestmark = pytest.mark.slow

DOMAINS = {name: texts[:40] for name, texts in list(demo.prompts().items())[:3]}
HELD_OUT = {name: demo.held_out()[name] for name in DOMAINS}
ODD = ["", " \n", "🙂", "naïve 字", "half a pair \ud800", "word " * 2_000]


# the protocol ---------------------------------------------------------------------------------------------------------


def test_the_first_tokens_are_a_beginning_with_no_more_tokens() -> None:
    encode = Embedding.default().encode
    for text in [*HELD_OUT["law"], *(odd for odd in ODD if odd.isprintable())]:
        short = first_tokens(text, 5)
        assert text.startswith(short) and len(encode(short)) <= 5
        assert first_tokens(text, 10_000) == text
        if text.isascii():
            assert encode(short).tolist() == encode(text)[:5].tolist()


def test_a_score_is_the_mean_over_domains_not_over_prompts() -> None:
    prompts = Prompts("suite", {}, {"a": ["x"] * 9, "b": ["y"]}, ood={"a": ["x", "y"], "b": ["y"]})
    scores = score(lambda texts: ["a" if text == "x" else "b" for text in texts], prompts)
    assert scores == Scores({"test": {"a": 100.0, "b": 100.0}, "ood": {"a": 50.0, "b": 100.0}})
    assert (scores.mean("test"), scores.mean("ood"), scores.mean("first_32")) == (100.0, 75.0, None)
    assert score(lambda texts: ["a"] * len(texts), prompts).mean("test") == 50.0


def test_draws_are_the_same_every_time_and_differ_from_each_other() -> None:
    train = demo.prompts()
    draws = list(few_shot(train))
    assert draws == list(few_shot(dict(reversed(train.items())))) and len(draws) == 10
    assert all(
        len(set(texts)) == 30 and set(texts) <= set(train[name]) for draw in draws for name, texts in draw.items()
    )
    assert len({tuple(draw["law"]) for draw in draws}) == 10
    rng = np.random.default_rng(3)
    for name in sorted(train):
        assert draws[3][name] == [train[name][i] for i in rng.choice(len(train[name]), 30, replace=False)]


def test_a_draw_of_more_than_there_is_is_refused() -> None:
    assert "'law' has 1 training prompts, and 2" in refusal(
        InputError, lambda: list(few_shot({"maths": ["a", "b"], "law": ["c"]}, 2))
    )


# the runner -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A suite whose every domain has other sources, packed as data sets are."""
    for name, texts in DOMAINS.items():
        folder = tmp_path / "data" / "small" / name
        folder.mkdir(parents=True)
        for split, lines in (("train", texts), ("test", HELD_OUT[name]), ("ood", HELD_OUT[name][:9])):
            packed = lzma.compress("".join(json.dumps({"text": line}) + "\n" for line in lines).encode())
            (folder / f"{split}.jsonl.xz").write_bytes(packed)
    return tmp_path / "data"


class Fickle:
    """Routes everything to the first domain the first time it is fitted, and to the second from then on."""

    def __init__(self) -> None:
        self.fits = 0

    def fit(self, domains: Mapping[str, Sequence[str]]) -> Fitted:
        place, self.fits = min(self.fits, 1), self.fits + 1
        return Fitted(tuple(domains), lambda texts: np.full(len(texts), place), 1, 8)


def test_rows_hold_what_the_protocol_says(data: Path) -> None:
    prompts = prompts_of(suites(data)[0])
    whole, few = compare(prompts, Rival("bayes", "words", NaiveBayes()))
    assert isinstance(whole, RivalRow) and isinstance(few, RivalRow)
    fitted = NaiveBayes().fit(DOMAINS)
    expected = score(fitted.route, prompts)
    assert (whole.test, whole.first_32, whole.ood) == tuple(map(expected.mean, ("test", "first_32", "ood")))
    assert (whole.suite, whole.shots, few.shots, few.first_32) == ("small", None, 30, None)
    draws = [score(NaiveBayes().fit(draw).route, prompts).mean("test") for draw in few_shot(prompts.train)]
    assert few.test == pytest.approx(np.mean(draws)) and few.deviations["test"] == pytest.approx(np.std(draws, ddof=1))


def test_the_spread_is_over_the_draws(data: Path) -> None:
    prompts = prompts_of(suites(data)[0])
    row = measure_few_shot(prompts, Rival("fickle", "words", Fickle()), shots=2, draws=2)
    assert row.test == pytest.approx(100 / 3) and row.deviations["test"] == pytest.approx(0)
    first, second = sorted(DOMAINS)[:2]
    assert row.by_domain["test"][first] == row.by_domain["test"][second] == 50.0


def test_without_other_sources_nothing_is_drawn(data: Path) -> None:
    (data / "small" / "coding" / "ood.jsonl.xz").unlink()
    (row,) = compare(prompts_of(suites(data)[0]), Rival("bayes", "words", NaiveBayes()))
    assert isinstance(row, RivalRow) and row.ood is None


def test_a_router_without_its_packages_gives_the_error(data: Path) -> None:
    class Lacking:
        def fit(self, domains: Mapping[str, Sequence[str]]) -> Fitted:
            raise MissingExtraError("torch", "encoders", "Learning")

    (error,) = compare(prompts_of(suites(data)[0]), Rival("lacking", "words", Lacking()))
    assert isinstance(error, MissingExtraError)


def test_merging_replaces_only_what_was_measured_again() -> None:
    def row(suite: str, router: str, shots: int | None, test: float) -> dict[str, object]:
        return {"suite": suite, "router": router, "shots": shots, "test": test}

    old = [row("b", "x", None, 1), row("a", "x", 30, 2), row("a", "x", None, 3), row("a", "y", None, 4)]
    new = [row("a", "x", None, 5), row("a", "z", None, 6)]
    assert [value["test"] for value in merged(old, new)] == [5, 4, 6, 2, 1]


@pytest.mark.nightly
def test_a_tuned_router_is_compared_like_any_other() -> None:
    known = {rival.name: rival for rival in rivals(None)}
    assert {rival.family for rival in known.values()} == {"ir3de", "words"}
    prompts = Prompts("small", DOMAINS, HELD_OUT)
    (row,) = compare(prompts, known["ir3de, tuned"])
    assert isinstance(row, RivalRow) and row.test > 100 / 3


def test_the_command_prints_a_table_and_keeps_its_rows(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # two stand for all: what is measured is fitted eleven times, and the command is run twice
    quick = [Rival("as it is", "ir3de", Itself()), Rival("bayes", "words", NaiveBayes())]
    monkeypatch.setattr("ir3de_lab.benchmarks.rivals.rivals", lambda encoder: iter(quick))
    saved = tmp_path / "rivals.json"
    other = {"suite": "elsewhere", "router": "r", "shots": None, "test": 1.0}
    saved.write_text(json.dumps({"rows": [other], MEASURES: describe(benchmarks()["rivals"])}))
    arguments = ["bench", "rivals", "--data", str(data), "--only", "words", "--save", str(saved)]
    shown = CliRunner().invoke(cli, arguments)
    assert shown.exit_code == 0, shown.output
    rows = json.loads(saved.read_bytes())["rows"]
    assert [(row["suite"], row["router"], row["shots"]) for row in rows] == [
        ("elsewhere", "r", None),
        ("small", "bayes", None),
        ("small", "bayes", 30),
    ]
    assert rows[0] == other and rows[1]["circumstances"]["numpy"] == np.__version__
    assert f"{rows[1]['test']:.1f}" in shown.output and f"± {rows[2]['deviations']['ood']:.1f}" in shown.output
    told = json.loads(CliRunner().invoke(cli, [*arguments[:-2], "--json"]).output)
    assert [row["test"] for row in told["rows"]] == [row["test"] for row in rows[1:]]
    saved.write_text(json.dumps({"rows": [other]}))  # of sources that nobody knows
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert [row["suite"] for row in json.loads(saved.read_bytes())["rows"]] == ["small", "small"]


def test_the_command_refuses_a_file_of_something_else(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "speed.json"
    other.write_text('{"figures": []}')
    arguments = ["bench", "rivals", "--data", str(data), "--only", "ir3de", "--save", str(other)]
    refused = CliRunner().invoke(cli, arguments)
    assert refused.exit_code == 1 and "holds no rows of rivals" in refused.output
    assert other.read_text() == '{"figures": []}'
    assert CliRunner().invoke(cli, ["bench", "rivals", "--data", str(data), "--only", "encoders"]).exit_code == 2
