"""The routers IR3DE is compared with: what holds for every one of them, and then one at a time."""

from __future__ import annotations

import json
import pkgutil
import random
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from ir3de import Embedding
from ir3de.errors import InputError, MissingExtraError
from ir3de_lab import rivals as baselines
from ir3de_lab.benchmarks.protocol import recalls
from ir3de_lab.benchmarks.rivals import Itself
from ir3de_lab.rivals import Baseline, Fitted, interface
from ir3de_lab.rivals.bag_of_words_mlp import BagOfWordsMLP
from ir3de_lab.rivals.balancing import balanced, capped, held_out, mean_recall
from ir3de_lab.rivals.encoder import Encoder
from ir3de_lab.rivals.encoder_heads import LinearProbe, NearestNeighbours
from ir3de_lab.rivals.fine_tuned import FineTuned
from ir3de_lab.rivals.hashed_ngrams import HashedNgrams
from ir3de_lab.rivals.modem import Modem
from ir3de_lab.rivals.naive_bayes import NaiveBayes
from ir3de_lab.rivals.tfidf_logistic import TfidfLogistic
from refused import refusal

pytestmark = pytest.mark.slow

OWN_WORDS = {  # not in the order of the alphabet
    "maths": "integer equation theorem algebra triangle",
    "law": "contract court landlord judge statute",
    "cooking": "flour oven recipe onion dough",
}
ODD = ["", " \n", "🙂", "naïve 字", "Что это? 这是什么", "half a pair \ud800", "word " * 2_000]

with_sklearn = pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed")
with_torch = with_encoders = pytest.mark.torch

FAMILIES = (
    pytest.param(lambda encoder: Itself(), id="ir3de"),
    pytest.param(lambda encoder: NaiveBayes(), id="naive Bayes"),
    pytest.param(lambda encoder: TfidfLogistic(), id="TF-IDF", marks=with_sklearn),
    pytest.param(lambda encoder: BagOfWordsMLP(), id="perceptron", marks=with_sklearn),
    pytest.param(
        lambda encoder: HashedNgrams(buckets=4_096, width=20, epochs=1, fewest=6_000), id="n-grams", marks=with_torch
    ),
    pytest.param(lambda encoder: NearestNeighbours(encoder(), 5), id="nearest", marks=with_encoders),
    pytest.param(lambda encoder: LinearProbe(encoder(), C=1_000), id="probe", marks=with_encoders),
    pytest.param(
        lambda encoder: FineTuned(encoder(), epochs=1, fewest_steps=40, rate=3e-3, batch=16),
        id="fine-tuned",
        marks=with_encoders,
    ),
    pytest.param(
        lambda encoder: FineTuned(encoder(), epochs=1, fewest_steps=40, rate=3e-3, batch=16, pooling="cls"),
        id="BERT-router",
        marks=with_encoders,
    ),
    pytest.param(lambda encoder: Modem(encoder(), pooling="mean"), id="MoDEM, frozen", marks=with_encoders),
    pytest.param(
        lambda encoder: Modem(encoder(), frozen=False, epochs=8, rate=1e-3, encoder_rate=1e-3),
        id="MoDEM",
        marks=with_encoders,
    ),
)

Family = Callable[[Callable[..., Encoder]], Baseline]
State = tuple[object, ...]


def sentences(number: int, seed: int) -> dict[str, list[str]]:
    """Domains without a word in common."""
    draw = random.Random(seed)
    return {
        name: [" ".join(draw.choices(words.split(), k=draw.randint(3, 12))) for _ in range(number)]
        for name, words in OWN_WORDS.items()
    }


TRAIN, TEST = sentences(40, seed=0), sentences(20, seed=1)
TEXTS = [text for texts in TEST.values() for text in texts]


def random_state() -> State:
    """Where the random numbers are that everybody shares."""
    torch = sys.modules.get("torch")
    shared = () if torch is None else tuple(torch.random.get_rng_state().tolist())
    return random.getstate(), str(np.random.get_state()), shared


def encoders_in(folder: Path) -> Callable[..., Encoder]:
    """Makes encoders: a small BERT that has learned nothing yet, in a folder, the same one every time."""

    def make(**options: object) -> Encoder:
        if not (folder / "config.json").exists():
            write_encoder(folder)
        return Encoder(folder, longest=64, device="cpu", **options)  # type: ignore[arg-type]

    return make


def write_encoder(folder: Path, *, framed: bool = True) -> None:
    """Its words are listed, as a trained tokenizer is another one each time; `framed` texts begin with [CLS]."""
    import torch
    import transformers

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    pieces = [start + letter for start in ("", "##") for letter in ascii_lowercase]
    words = [*special, *" ".join(OWN_WORDS.values()).split(), *pieces]
    tokenizer = Tokenizer(models.WordPiece({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if framed:
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), special, strict=True))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **roles}))
    shape = {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=64, **shape)
        transformers.BertModel(config).save_pretrained(folder)


@pytest.fixture(scope="module")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Encoder]:
    return encoders_in(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module", params=FAMILIES)
def baseline(request: pytest.FixtureRequest, tiny_encoder: Callable[..., Encoder]) -> Baseline:
    family: Family = request.param
    return family(tiny_encoder)


@pytest.fixture(scope="module")
def fitted(baseline: Baseline) -> Fitted:
    return baseline.fit(TRAIN)


# every one ------------------------------------------------------------------------------------------------------------


def test_every_baseline_is_in_this_test() -> None:
    modules = [
        import_module(f"{baselines.__name__}.{found.name}") for found in pkgutil.iter_modules(baselines.__path__)
    ]
    there = {
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__ and hasattr(kind, "fit")
    } - {Baseline}
    tested = {type(family.values[0](lambda **options: Encoder("nowhere"))) for family in FAMILIES}
    assert tested - {Itself} == there


def test_domains_without_a_word_in_common_are_learnt(fitted: Fitted) -> None:
    learnt = recalls(fitted.route, TEST)
    assert np.mean(list(learnt.values())) >= 90, learnt


def test_every_text_gets_a_domain_in_its_place(fitted: Fitted) -> None:
    assert fitted.names == tuple(TRAIN)
    assert fitted.route([]) == []
    routed = fitted.route(TEXTS)
    assert fitted.route(TEXTS[::-1]) == routed[::-1]
    assert fitted.route(TEXTS[:7] + TEXTS[30:]) == routed[:7] + routed[30:]
    for text in ODD:
        (domain,) = fitted.route([text])
        assert domain in TRAIN
    assert "put it in a list" in refusal(InputError, fitted.route, "Add.")
    assert "text 1 to route is NoneType" in refusal(InputError, fitted.route, ["Add.", None])


@pytest.mark.nightly
def test_odd_texts_can_be_learnt_from(baseline: Baseline) -> None:
    fitted = baseline.fit({"odd": ODD, **{name: texts[:4] for name, texts in TRAIN.items()}})
    assert len(fitted.route([*ODD, *TEXTS])) == len(ODD) + len(TEXTS)


@pytest.mark.nightly
def test_a_second_fit_is_the_same_and_nobodys_random_numbers_are_touched(baseline: Baseline, fitted: Fitted) -> None:
    before = random_state()
    again = baseline.fit(TRAIN)
    assert again.route(TEXTS) == fitted.route(TEXTS) == fitted.route(TEXTS)
    assert (again.parameters, again.size_bytes) == (fitted.parameters, fitted.size_bytes)
    assert random_state() == before


def test_what_is_kept_has_a_size(fitted: Fitted) -> None:
    assert 0 < fitted.parameters <= fitted.size_bytes  # no number takes less than a byte
    assert type(fitted.parameters) is type(fitted.size_bytes) is int


def test_what_cannot_be_used_is_refused(baseline: Baseline) -> None:
    assert "two domains or more" in refusal(InputError, baseline.fit, {"law": ["Is it void?"]})
    assert "two domains or more" in refusal(InputError, baseline.fit, {})
    assert "two domains or more" in refusal(InputError, baseline.fit, ["Is it void?"])
    assert "no text in the domain 'law'" in refusal(InputError, baseline.fit, {"law": [], "maths": ["Add."]})
    assert "put it in a list" in refusal(InputError, baseline.fit, {"law": "Is it void?", "maths": ["Add."]})
    assert "text 1 of the domain 'law' is int" in refusal(InputError, baseline.fit, {"law": ["a", 3], "maths": ["b"]})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: NaiveBayes(0.0), "smoothing is 0.0"),
        (lambda: NaiveBayes(float("nan")), "smoothing is nan"),
        (lambda: HashedNgrams(buckets=0), "buckets is 0"),
        (lambda: BagOfWordsMLP(hidden=0), "hidden is 0"),
        (lambda: NearestNeighbours(Encoder("nowhere"), k=0), "k is 0"),
        (lambda: FineTuned(Encoder("nowhere"), epochs=0), "epochs is 0"),
        (lambda: Modem(Encoder("nowhere"), epochs=0), "epochs is 0"),
        (lambda: Modem(Encoder("nowhere"), rate=0.0), "rate is 0.0"),
        (lambda: Modem(Encoder("nowhere"), encoder_rate=float("nan")), "encoder_rate is nan"),
        (lambda: Encoder("nowhere", longest=0), "longest is 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Callable[[], object], said: str) -> None:
    assert said in refusal(InputError, make)


def test_a_missing_package_is_named_with_its_extra() -> None:
    said = refusal(MissingExtraError, interface.needed, "sklearn_of_nowhere", extra="encoders", purpose="Trying")
    assert "lab[encoders]" in said and "sklearn_of_nowhere" in said


# words ----------------------------------------------------------------------------------------------------------------


def test_naive_bayes_is_bayes_rule() -> None:
    domains = {"a": ["yes yes no"], "b": ["no no no maybe"]}
    encode = Embedding.default().encode
    size = Embedding.default().vocabulary_size
    fitted = NaiveBayes(0.5).fit(domains)
    assert fitted.parameters == 2 * size
    for text in ("yes", "no", "yes no", "maybe maybe yes", "never seen"):
        scores = []
        for texts in domains.values():
            seen = [int(token) for given in texts for token in encode(given)]
            likely = [(seen.count(int(token)) + 0.5) / (len(seen) + 0.5 * size) for token in encode(text)]
            scores.append(np.prod(likely))
        assert fitted.route([text]) == [list(domains)[int(np.argmax(scores))]]


@with_sklearn
@pytest.mark.parametrize("kind", [TfidfLogistic, BagOfWordsMLP])
def test_counting_words_needs_words(kind: Callable[[], Baseline]) -> None:
    assert "no words" in refusal(InputError, kind().fit, {"a": ["?"], "b": ["!"]})


@with_sklearn
def test_pairs_of_words_are_counted_up_to_a_size() -> None:
    domains = {"a": ["yes no"], "b": ["no maybe"], "c": ["never"]}
    characters = sum(len(text) for texts in domains.values() for text in texts)
    words, pairs = 4, 2
    for most, features in ((characters, words + pairs), (characters - 1, words)):
        fitted = TfidfLogistic(most_for_pairs=most).fit(domains)
        assert fitted.parameters == features + 3 * features + 3  # a weight in general, one for each domain, and biases
    spelt = len("yesnomaybenever")
    assert (fitted.size_bytes - spelt) % 4 == 0 and fitted.size_bytes >= spelt + 4 * fitted.parameters


@with_sklearn
def test_the_perceptron_has_two_layers_of_the_most_frequent_words() -> None:
    fitted = BagOfWordsMLP(most_words=7, hidden=5).fit(TRAIN)
    assert fitted.parameters == (7 + 1) * 5 + (5 + 1) * 3


def test_hashed_pairs_know_their_order_and_words_their_neighbours() -> None:
    features = HashedNgrams().features
    assert features("One two").tolist() == features("one  TWO").tolist()
    assert len(features("one two three")) == 3 + 2 and len(features("one")) == 1 and len(features("")) == 0
    there, back = features("one two"), features("two one")
    assert set(there[:2]) == set(back[:2]) and there[2] != back[2]


# balancing ------------------------------------------------------------------------------------------------------------


def test_balanced_takes_all_domains_alike_and_all_texts_before_one_again() -> None:
    labels = np.repeat([0, 1, 2], [2, 5, 9])
    order = balanced(labels, 15, np.random.default_rng(0))
    assert np.bincount(labels[order]).tolist() == [5, 5, 5]
    times = np.bincount(order, minlength=len(labels))
    assert set(times[:2]) == {2, 3} and set(times[2:7]) == {1} and set(times[7:]) == {0, 1}
    assert np.bincount(labels[capped(labels, 4, np.random.default_rng(0))]).tolist() == [2, 4, 4]


def test_what_is_held_out_is_no_part_of_what_is_fitted_on() -> None:
    labels = np.repeat([0, 1, 2], [100, 50, 3])
    fitted, validated = held_out(labels, 0.7, 0.1, np.random.default_rng(0))
    assert np.bincount(labels[fitted]).tolist() == [70, 35, 2]
    assert np.bincount(labels[validated]).tolist() == [10, 5, 2]
    small = labels == 2  # too few to spare one
    assert set(fitted[~small[fitted]]).isdisjoint(validated) and set(fitted[small[fitted]]) <= set(validated)
    assert len(set(fitted)) == len(fitted) and len(set(validated)) == len(validated)


def test_the_mean_recall_weighs_domains_alike() -> None:
    assert mean_recall(np.array([0, 0, 0, 0, 1]), np.array([0, 0, 0, 1, 0])) == 37.5
