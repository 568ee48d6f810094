"""The estimate of a text's tokens is near what tokenizers count, and rather above it."""

import pytest

from ir3de import Embedding
from ir3de_gateway.requests.tokens import Beginning, estimate_all, estimate_tokens

ENGLISH = (
    "The tenant had paid the rent late twice, and the landlord wrote that the contract would end within a month. "
    "The court held that such a notice is void unless it names the reason, and that the tenant may stay until then. "
)
CODE = """def find_root(values: list[float], start: int = 0) -> float | None:
    for index, value in enumerate(values[start:], start):
        if value ** 2 == values[index - 1] and index % 2 == 0:
            return value / 3.25
    return None
"""


@pytest.mark.parametrize(
    "text",
    [
        ENGLISH,
        CODE,
        '{"id": 17, "name": "egg", "price": 0.25, "stock": [1, 2, 3], "open": true}',
        "2718281828459045 " * 9,
    ],
    ids=["English", "code", "JSON", "digits"],
)
def test_text_in_ascii_is_estimated_within_a_third_of_the_tokenizers_count(text: str) -> None:
    counted = len(Embedding.default().encode(text))
    assert 0.9 * counted <= estimate_tokens(text) <= 1.34 * counted


@pytest.mark.parametrize(
    ("text", "least", "most"),  # by the tokenizers of models that know these languages
    [
        ("法院认为，如果没有说明理由，该通知无效。", 12, 20),
        ("裁判所は、理由が示されていない限り通知は無効であると判断した。", 15, 31),
        ("Суд постановил, что уведомление недействительно, если в нём не указана причина.", 18, 45),
        ("Das Gericht entschied, dass die Kündigung ohne Angabe von Gründen unwirksam ist.", 15, 27),
        ("قضت المحكمة بأن الإشعار باطل ما لم يذكر السبب.", 12, 28),
    ],
    ids=["Chinese", "Japanese", "Russian", "German", "Arabic"],
)
def test_other_languages(text: str, least: int, most: int) -> None:
    assert least <= estimate_tokens(text) <= most


def test_nothing_counts_as_nothing() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens("法" * 8_000) == 8_000  # once taken for 2,000
    assert estimate_tokens("\ud800") == 1  # half a pair, which UTF-8 has not


def test_values_are_counted_with_their_names_and_all_of_a_text_of_which_the_beginning_was_kept() -> None:
    assert estimate_all([{"content": [ENGLISH, {"text": Beginning("The", 500)}]}, 7, None]) > 500 + len(ENGLISH) // 5
