"""The rivals IR3DE is compared with: one interface for all, and one protocol of comparing."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ir3de import Embedding, demo
from ir3de.bench.accuracy import suites
from ir3de.bench.baselines import Baseline, Fitted, interface
from ir3de.bench.baselines.balancing import balanced, capped
from ir3de.bench.baselines.encoder import Encoder
from ir3de.bench.baselines.encoder_heads import LinearProbe, NearestNeighbours
from ir3de.bench.baselines.fine_tuned import FineTuned
from ir3de.bench.baselines.hashed_ngrams import HashedNgrams
from ir3de.bench.baselines.naive_bayes import NaiveBayes
from ir3de.bench.baselines.tfidf_logistic import TfidfLogistic
from ir3de.bench.protocol import Prompts, Scores, few_shot, first_tokens, prompts_of, recalls, score
from ir3de.bench.rivals import Itself, Rival, RivalRow, compare, measure_few_shot, merged
from ir3de.cli import cli
from ir3de.errors import EmbeddingError, InputError, MissingExtraError
from refused import refusal

DOMAINS = {name: texts[:40] for name, texts in list(demo.prompts().items())[:3]}
HELD_OUT = {name: demo.held_out()[name] for name in DOMAINS}
ODD = ["", " \n", "🙂", "naïve 字", "half a pair \ud800", "word " * 2_000]

with_sklearn = pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed")
with_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
with_encoders = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "transformers", "sklearn")), reason="no packages for encoders"
)

FAMILIES = (
    pytest.param(lambda encoder: Itself(), id="ir3de"),
    pytest.param(lambda encoder: NaiveBayes(), id="naive Bayes"),
    pytest.param(lambda encoder: TfidfLogistic(), id="TF-IDF", marks=with_sklearn),
    pytest.param(
        lambda encoder: HashedNgrams(buckets=4_096, width=20, epochs=1, fewest=12_000), id="n-grams", marks=with_torch
    ),
    pytest.param(lambda encoder: NearestNeighbours(encoder(), 5), id="nearest", marks=with_encoders),
    pytest.param(lambda encoder: LinearProbe(encoder(), C=1_000), id="probe", marks=with_encoders),
    pytest.param(
        lambda encoder: FineTuned(encoder(), epochs=1, fewest_steps=40, rate=3e-3, batch=16),
        id="fine-tuned",
        marks=with_encoders,
    ),
)


@pytest.fixture(scope="session")
def tiny_encoder(
    tiny_definitions: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Encoder]:
    """Makes an encoder: a small BERT that has learned nothing yet, in a folder."""
    folder = tmp_path_factory.mktemp("encoder")

    def make(**options: object) -> Encoder:
        if not (folder / "config.json").exists():
            import torch
            import transformers

            (folder / "tokenizer.json").write_bytes(tiny_definitions["WordPiece"])
            special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
            settings = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
            (folder / "tokenizer_config.json").write_text(json.dumps(settings))
            shape = {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
            with torch.random.fork_rng():
                torch.manual_seed(0)
                config = transformers.BertConfig(vocab_size=800, max_position_embeddings=64, **shape)
                transformers.BertModel(config).save_pretrained(folder)
        return Encoder(folder, longest=64, device="cpu", **options)  # type: ignore[arg-type]

    return make


# every rival ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_rival_learns_and_answers_with_the_domains_it_was_given(
    family: Callable[..., Baseline], tiny_encoder: Callable[..., Encoder]
) -> None:
    rival = family(tiny_encoder)
    fitted = rival.fit(DOMAINS)
    assert set(fitted.route(ODD)) <= set(DOMAINS)
    assert fitted.route([]) == []
    learned = recalls(fitted.route, HELD_OUT)
    assert np.mean(list(learned.values())) > 100 / len(DOMAINS) + 10  # clearly better than guessing

    again = rival.fit(DOMAINS)
    texts = [text for texts in HELD_OUT.values() for text in texts]
    routed = fitted.route(texts)
    assert again.route(texts) == routed == fitted.route(texts)
    assert fitted.route(texts[::-1]) == routed[::-1]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_rival_refuses_what_it_cannot_use(
    family: Callable[..., Baseline], tiny_encoder: Callable[..., Encoder]
) -> None:
    rival = family(tiny_encoder)
    assert "two domains or more" in refusal(InputError, rival.fit, {"law": ["Is it void?"]})
    assert "two domains or more" in refusal(InputError, rival.fit, ["Is it void?"])
    assert "no text in the domain 'law'" in refusal(InputError, rival.fit, {"law": [], "maths": ["Add."]})
    assert "put it in a list" in refusal(InputError, rival.fit, {"law": "Is it void?", "maths": ["Add."]})
    assert "text 1 of the domain 'law' is int" in refusal(InputError, rival.fit, {"law": ["a", 3], "maths": ["b"]})


def test_a_fitted_rival_refuses_what_is_no_text() -> None:
    fitted = NaiveBayes().fit(DOMAINS)
    assert "text 1 to route is NoneType" in refusal(InputError, fitted.route, ["Add.", None])
    assert "put it in a list" in refusal(InputError, fitted.route, "Add.")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: NaiveBayes(0.0), "smoothing is 0.0"),
        (lambda: NaiveBayes(float("nan")), "smoothing is nan"),
        (lambda: HashedNgrams(buckets=0), "buckets is 0"),
        (lambda: NearestNeighbours(Encoder("nowhere"), k=0), "k is 0"),
        (lambda: FineTuned(Encoder("nowhere"), epochs=0), "epochs is 0"),
        (lambda: Encoder("nowhere", longest=0), "longest is 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Callable[[], object], said: str) -> None:
    assert said in refusal(InputError, make)


# one at a time --------------------------------------------------------------------------------------------------------


def test_naive_bayes_is_bayes_rule() -> None:
    domains = {"a": ["yes yes no"], "b": ["no no no maybe"]}
    encode = Embedding.default().encode
    size = Embedding.default().vocabulary_size
    fitted = NaiveBayes(0.5).fit(domains)
    for text in ("yes", "no", "yes no", "maybe maybe yes", "never seen"):
        scores = []
        for texts in domains.values():
            seen = [int(token) for given in texts for token in encode(given)]
            likely = [(seen.count(int(token)) + 0.5) / (len(seen) + 0.5 * size) for token in encode(text)]
            scores.append(np.prod(likely))
        assert fitted.route([text]) == [list(domains)[int(np.argmax(scores))]]


@with_sklearn
def test_tfidf_needs_words() -> None:
    assert "no words" in refusal(InputError, TfidfLogistic().fit, {"a": ["?"], "b": ["!"]})


def test_hashed_pairs_know_their_order_and_words_their_neighbours() -> None:
    features = HashedNgrams().features
    assert features("One two").tolist() == features("one  TWO").tolist()
    assert len(features("one two three")) == 3 + 2 and len(features("one")) == 1 and len(features("")) == 0
    there, back = features("one two"), features("two one")
    assert set(there[:2]) == set(back[:2]) and there[2] != back[2]


@with_encoders
def test_the_nearest_text_is_the_text_itself(tiny_encoder: Callable[..., Encoder]) -> None:
    fitted = NearestNeighbours(tiny_encoder(), 1).fit(DOMAINS)
    assert recalls(fitted.route, DOMAINS) == dict.fromkeys(DOMAINS, 100.0)


@with_encoders
def test_more_neighbours_than_texts_is_all_of_them(tiny_encoder: Callable[..., Encoder]) -> None:
    fitted = NearestNeighbours(tiny_encoder(), 50).fit({"few": ["Add."], "many": ["Is it void?", "Who won?"]})
    assert set(fitted.route(["Add.", "Who?"])) == {"many"}


@with_encoders
def test_an_encoder_with_a_memory_gives_the_same_vectors(tiny_encoder: Callable[..., Encoder]) -> None:
    texts = [*HELD_OUT["coding"], *ODD, HELD_OUT["coding"][0]]
    plain, remembering = tiny_encoder(batch=7), tiny_encoder(remember=True)
    for pooling in ("mean", "cls"):
        expected = plain.encode(texts, pooling)
        assert np.allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-5)
        assert np.allclose(remembering.encode(texts[:3], pooling), expected[:3], atol=1e-5)
        assert np.allclose(remembering.encode(texts, pooling), expected, atol=1e-5)
        with remembering.timed():
            assert np.allclose(remembering.encode(texts, pooling), expected, atol=1e-5)
    assert not np.allclose(plain.encode(texts, "mean"), plain.encode(texts, "cls"), atol=1e-2)


@with_encoders
def test_fine_tuning_leaves_the_encoder_and_the_random_numbers_alone(tiny_encoder: Callable[..., Encoder]) -> None:
    import torch

    encoder = tiny_encoder()
    before, state = encoder.encode(HELD_OUT["coding"]), torch.random.get_rng_state()
    FineTuned(encoder, epochs=1, fewest_steps=2, batch=4).fit({name: texts[:4] for name, texts in DOMAINS.items()})
    assert np.array_equal(encoder.encode(HELD_OUT["coding"]), before)
    assert torch.equal(torch.random.get_rng_state(), state)


@with_encoders
def test_rows_on_an_encoder_name_it(tiny_encoder: Callable[..., Encoder], data: Path) -> None:
    encoder = tiny_encoder(remember=True)
    rival = Rival("nearest", "encoders", NearestNeighbours(encoder, 1), few=False, encoder=encoder)
    (row,) = compare(prompts_of(suites(data)[0]), rival)
    assert isinstance(row, RivalRow) and row.circumstances["encoder"] == encoder.name


@with_encoders
def test_a_folder_without_an_encoder_is_refused(tmp_path: Path) -> None:
    assert str(tmp_path) in refusal(EmbeddingError, Encoder(tmp_path).encode, ["Add."])


def test_a_missing_package_is_named_with_its_extra() -> None:
    said = refusal(MissingExtraError, interface.needed, "sklearn_of_nowhere", extra="bench", purpose="Trying")
    assert "ir3de[bench]" in said and "sklearn_of_nowhere" in said


def test_balanced_takes_all_domains_alike_and_all_texts_before_one_again() -> None:
    labels = np.repeat([0, 1, 2], [2, 5, 9])
    order = balanced(labels, 15, np.random.default_rng(0))
    assert np.bincount(labels[order]).tolist() == [5, 5, 5]
    times = np.bincount(order, minlength=len(labels))
    assert set(times[:2]) == {2, 3} and set(times[2:7]) == {1} and set(times[7:]) == {0, 1}
    assert np.bincount(labels[capped(labels, 4, np.random.default_rng(0))]).tolist() == [2, 4, 4]


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
        return Fitted(tuple(domains), lambda texts: np.full(len(texts), place))


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


def test_the_command_prints_a_table_and_keeps_its_rows(data: Path, tmp_path: Path) -> None:
    saved = tmp_path / "rivals.json"
    other = {"suite": "elsewhere", "router": "r", "shots": None, "test": 1.0}
    saved.write_text(json.dumps({"rows": [other]}))
    arguments = ["bench", "rivals", "--data", str(data), "--only", "ir3de", "--save", str(saved)]
    shown = CliRunner().invoke(cli, arguments)
    assert shown.exit_code == 0, shown.output
    rows = json.loads(saved.read_bytes())["rows"]
    assert [(row["suite"], row["shots"]) for row in rows] == [("elsewhere", None)] + [("small", None)] * 3 + [
        ("small", 30)
    ] * 3
    assert rows[0] == other and rows[1]["circumstances"]["numpy"] == np.__version__
    assert f"{rows[1]['test']:.1f}" in shown.output and f"± {rows[4]['deviations']['ood']:.1f}" in shown.output
    told = json.loads(CliRunner().invoke(cli, [*arguments[:-2], "--json"]).output)
    assert sorted(row["test"] for row in told["rows"]) == sorted(row["test"] for row in rows[1:])


def test_the_command_refuses_a_file_of_something_else(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "speed.json"
    other.write_text('{"figures": []}')
    arguments = ["bench", "rivals", "--data", str(data), "--only", "ir3de", "--save", str(other)]
    refused = CliRunner().invoke(cli, arguments)
    assert refused.exit_code == 1 and "holds no rows of rivals" in refused.output
    assert other.read_text() == '{"figures": []}'
    assert CliRunner().invoke(cli, ["bench", "rivals", "--data", str(data), "--only", "encoders"]).exit_code == 2
