"""The background prompts are many, different from each other and from the examples, and broad."""

import json
import re
import unicodedata
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from ir3de.corpora import background, examples

FILE = Path(background.__file__).with_suffix(".jsonl")
MAX_FILE_BYTES = 250_000


@pytest.fixture(scope="module")
def prompts() -> list[str]:
    return background.prompts()


def test_every_line_is_one_topic_and_one_text() -> None:
    rows = [json.loads(line) for line in FILE.read_text(encoding="utf-8").removesuffix("\n").split("\n")]
    assert all(row.keys() == {"topic", "text"} for row in rows)
    assert all(value and value == value.strip() for row in rows for value in row.values())
    assert background.prompts() == [row["text"] for row in rows]  # the rows of a topic stand together
    assert FILE.stat().st_size < MAX_FILE_BYTES


def test_topics_are_many_and_none_is_thin() -> None:
    topics = background.topics()
    assert len(topics) >= 75
    assert {name: len(texts) for name, texts in topics.items() if len(texts) < 10} == {}


def test_no_prompt_is_there_twice(prompts: list[str]) -> None:
    assert len(set(prompts)) == len(prompts)
    worded = [words for words in map(_words, prompts) if words]
    assert len(set(worded)) == len(worded)  # nor with other capitals or marks


def test_no_prompt_is_an_example_of_the_demo(prompts: list[str]) -> None:
    parts = [examples.prompts(), examples.held_out()]
    demo = [set(_words(text)) for part in parts for texts in part.values() for text in texts]
    holders: dict[str, list[int]] = defaultdict(list)
    for number, words in enumerate(demo):
        for word in words:
            holders[word].append(number)
    for prompt in prompts:
        words = set(_words(prompt))
        shared = Counter(number for word in words for number in holders.get(word, ()))
        near = [demo[number] for number, count in shared.items() if count > 0.6 * len(words | demo[number])]
        assert near == [], prompt


def test_lengths_go_from_a_word_to_a_document(prompts: list[str]) -> None:
    lengths = [len(text.split()) for text in prompts]
    assert min(lengths) == 1
    assert max(lengths) <= 300
    assert sum(length >= 150 for length in lengths) >= 10


def test_other_scripts_have_their_share(prompts: list[str]) -> None:
    scripts = [_script(text) for text in prompts]
    assert 0.06 < sum(script not in ("", "LATIN") for script in scripts) / len(prompts) < 0.15
    spoken = ["CYRILLIC", "GREEK", "ARABIC", "HEBREW", "DEVANAGARI", "BENGALI", "CJK", "HIRAGANA", "HANGUL", "THAI"]
    assert {script: scripts.count(script) for script in spoken if scripts.count(script) < 5} == {}


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text.casefold()))


def _script(text: str) -> str:
    """Name the script most letters of a text are of, or nothing where it has no letters."""
    found = [unicodedata.name(letter, "?").split()[0] for letter in text if letter.isalpha()]
    return max(sorted(set(found)), key=found.count, default="")
