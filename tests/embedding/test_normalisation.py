"""Texts all in capitals or in random case are read in lower case; all others, code above all, keep their ids."""

import doctest
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir3de import Embedding
from ir3de.corpora import examples
from ir3de.embedding import Tokenizer, normalisation
from ir3de.embedding.normalisation import EXAMINED_CHARACTERS, is_random_case
from tiny import LAW

RANDOM = [
    "hOw Do I bOiL aN EgG?",
    "wHaT iS tHe cAPitAl oF fRAncE",
    "hOW dO i tURN oFF tHE cAPS lOCK kEY?",
    "пОчЕМу нЕБо гОЛуБОе И тРаВа зЕЛЁнаЯ?",
    "γΙαΤΊ εΊνΑι ο οΥρΑνΌς γΑλΆζΙος;",
    "wElcHeS tIEr iSt dAS GrÖSstE lANdTIer?",
]

ORDINARY = [
    "How do I boil an egg?",
    "Why does document.getElementById('myId').innerHTML return null?",
    "@OneToOne getting returned as ManyToOneType",
    "initWithFrame not called, but awakeFromNib is",
    "NSMutableURLRequest and UITableViewController in iOS",
    "public static HashMap<String, ArrayList<Integer>> groupByKey(List<MyEntry> myEntries) {",
    "NASA, the FBI and the IMF met McDonald's, eBay and LaTeX users in DC",
    "Die Katze des Nachbarn frisst im Garten der Großmutter gerne Erdbeeren",
    "PyTorch, NumPy, SciPy and TensorFlow: which one for MacBook Pro?",
    "const uint8_t table[] = {0xAB, 0xCD, 0x1F, 0xFE, 0xBA, 0xDC, 0xEF, 0x0A};",
    "eyJtZXNzYWdlIjoiSGVsbG8hIn0:bzb48DBkBbwLaCnUVB75r5VAPUEpzWJPrTb80JMI",
    "H2SO4 + 2 NaOH -> Na2SO4 + 2 H2O",
    "getMinKthByBFPRT",
    "İstanbul'da İyi Bir Lokanta Var Mı?",
    "",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Embedding.default().tokenizer


def raw_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer.reference.encode(text, add_special_tokens=False).ids)


def count_random_case(tokenizer: Tokenizer, texts: list[str]) -> int:
    return sum(is_random_case(text, len(raw_ids(tokenizer, text))) for text in texts)


def test_the_docstrings_run() -> None:
    assert doctest.testmod(normalisation).failed == 0


@pytest.mark.parametrize("text", RANDOM)
def test_random_case_has_the_ids_of_lower_case(text: str, tokenizer: Tokenizer) -> None:
    assert tokenizer.encode(text).tolist() == raw_ids(tokenizer, text.lower())


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_texts_keep_their_ids(text: str, tokenizer: Tokenizer) -> None:
    assert tokenizer.encode(text).tolist() == raw_ids(tokenizer, text)


def test_a_batch_and_pieces_have_the_same_ids(tokenizer: Tokenizer) -> None:
    texts = [*RANDOM, *ORDINARY, "\ud800" + RANDOM[0], "İ" + RANDOM[0], "iİi İiI " * 4]
    one_by_one = [tokenizer.encode(text).tolist() for text in texts]
    ids, lengths = tokenizer.encode_batch(texts)
    assert ids.tolist() == [token for one in one_by_one for token in one]
    assert lengths.tolist() == [len(one) for one in one_by_one]
    assert [[token for token, _ in tokenizer.pieces(text)] for text in texts] == one_by_one
    for text in RANDOM:
        assert "".join(piece for _, piece in tokenizer.pieces(text)) == text


def test_example_prompts_keep_their_case_and_are_found_in_random_case(tokenizer: Tokenizer) -> None:
    prompts = [text for texts in examples.prompts().values() for text in texts]
    assert count_random_case(tokenizer, prompts) == 0
    draw = Random(0)
    shuffled = ["".join(draw.choice((letter.upper(), letter.lower())) for letter in text) for text in prompts]
    assert count_random_case(tokenizer, shuffled) >= 0.95 * len(prompts)


def test_the_beginning_of_a_text_decides(tokenizer: Tokenizer) -> None:
    ordinary = "The first lines of this text are as people write them. " * 5
    assert len(ordinary) > EXAMINED_CHARACTERS
    assert not is_random_case(ordinary + RANDOM[0] * 50, tokens=10**6)
    assert is_random_case(RANDOM[0] * 20 + ordinary, tokens=10**6)


def test_a_text_of_few_tokens_is_not_in_random_case() -> None:
    text = RANDOM[0]
    assert is_random_case(text, tokens=len(text) // 3 + 1)
    assert not is_random_case(text, tokens=len(text) // 3)


PARTS = ["get", "Element", "By", "user", "Name", "find", "Http", "Request", "index"]
CAMEL = st.lists(st.sampled_from(PARTS), min_size=2)


@LAW
@given(words=st.lists(CAMEL.map(lambda parts: parts[0] + "".join(map(str.capitalize, parts[1:])))))
def test_camel_case_is_left_alone(words: list[str]) -> None:
    assert not is_random_case(" ".join(words), tokens=10**6)


@LAW
@given(text=st.text(max_size=100), tokens=st.integers(0, 200))
def test_capitals_only_at_the_beginning_of_words_are_left_alone(text: str, tokens: int) -> None:
    assert not is_random_case(" ".join(word[:1] + word[1:].lower() for word in text.split(" ")), tokens)


@LAW
@given(text=st.text(max_size=100), seed=st.integers(0, 100))
def test_reading_in_lower_case_is_idempotent(text: str, seed: int) -> None:
    draw = Random(seed)
    mixed = "".join(draw.choice((letter.lower(), letter.upper())) for letter in text)
    assert not is_random_case(mixed.lower(), tokens=10**6)
