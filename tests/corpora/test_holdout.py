"""What is kept aside depends on the text and the share alone."""

from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de.corpora import is_held_out, split_held_out
from ir3de.errors import InputError


@tiny.LAW
@given(st.lists(st.text(max_size=8)), st.floats(0.01, 0.99))
def test_every_prompt_is_on_one_side_and_copies_on_the_same(texts: list[str], share: float) -> None:
    train, aside = split_held_out({"a": texts, "b": texts[::-1]}, share)
    assert sorted(train["a"] + aside.get("a", [])) == sorted(texts)
    assert sorted(train["a"]) == sorted(train["b"]) and not set(train["a"]) & set(aside.get("b", []))
    assert all(aside.values())  # as `evaluate` needs it


@tiny.LAW
@given(st.text(), st.floats(0.01, 0.9), st.floats(0.0, 0.09))
def test_a_larger_share_keeps_the_smaller_one_aside(text: str, share: float, more: float) -> None:
    assert is_held_out(text, share + more) or not is_held_out(text, share)


def test_the_share_is_about_the_share() -> None:
    aside = sum(is_held_out(f"prompt {n}", 0.2) for n in range(10_000))
    assert 1_900 < aside < 2_100


@pytest.mark.parametrize("share", [0, 1, -0.5, 1.5, "0.2", None])
def test_other_shares_are_refused(share: float) -> None:
    with pytest.raises(InputError, match="lies between 0 and 1"):
        split_held_out({"law": ["Is it void?"]}, share)


def test_a_table_is_not_split_by_its_columns() -> None:
    texts, labels = [f"Solve x + {n} = 10." for n in range(50)], ["a", "b"] * 25
    table = pyarrow.table({"text": texts, "label": labels})
    with pytest.raises(InputError, match=r"column of the expert .* 'text', 'label'"):
        split_held_out(table, 0.2)
    by_expert = split_held_out({"a": texts[::2], "b": texts[1::2]}, 0.2)
    assert split_held_out(table, 0.2, label="label") == by_expert == split_held_out((texts, labels), 0.2)


@pytest.mark.parametrize(
    ("own", "found"),
    [
        (["Hi", float("nan")], "the prompts of 'a' must be str, found float at index 1: nan"),
        ("Is it void?", "found one string: put it in a list"),  # and not its letters
        (pyarrow.table({"text": ["Hi"]}), "found a Table: give the column that holds the texts"),
        (None, "found NoneType"),
    ],
)
def test_what_is_no_text_is_named(own: Any, found: str) -> None:
    with pytest.raises(InputError, match=found):
        split_held_out({"a": own}, 0.2)
