"""A request goes on byte for byte, whatever way its JSON is written; what is no JSON object is refused."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.requests.json_body import READ_FIELDS, JsonBody
from ir3de_gateway.requests.model_texts import PART_NAMES

_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "/": "\\/"}


def _character(char: str, way: int) -> str:
    """A character as JSON may write it: itself, its short escape, or its code units."""
    if way == 0 and char >= " " and char not in '"\\' and not "\ud800" <= char <= "\udfff":
        return char
    if way == 1 and char in _SHORT:
        return _SHORT[char]
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n] << 8 | units[n + 1]:04{'xX'[way % 2]}}" for n in range(0, len(units), 2))


spaces = st.text(" \t\n\r", max_size=2)
characters = st.characters() | st.sampled_from('"\\\n/é€😀{}[],:\ud83d\udc00\x00')
strings = st.builds(
    lambda text, way: f'"{"".join(_character(char, (way + place) % 3) for place, char in enumerate(text))}"',
    st.text(characters, max_size=6),
    st.integers(0, 2),
)
numbers = st.sampled_from(["0", "-0", "1.0", "1.50e-07", "1E400", "-2e+5"]) | st.integers(-(10**40), 10**40).map(str)
plain = strings | numbers | st.sampled_from(["true", "false", "null"])


def _is_clear(name: str) -> bool:
    """Whether the name does not differ from one that the gateway reads in case alone, as `N` from `n`."""
    read, known = json.loads(name), READ_FIELDS | PART_NAMES
    return read in known or read.casefold() not in known


names = strings.filter(_is_clear)


def _listed(items: list[str], space: str) -> str:
    return f"[{space}{f'{space},{space}'.join(items)}{space}]"


def _object(items: list[tuple[str, str]], space: str) -> str:
    return f"{{{space}{f'{space},'.join(f'{key}{space}:{value}' for key, value in items)}}}"


def _read_name(member: tuple[str, str]) -> str:
    return str(json.loads(member[0]))


values = st.recursive(
    plain,
    lambda inner: (
        st.builds(_listed, st.lists(inner, max_size=3), spaces)
        | st.builds(_object, st.lists(st.tuples(names, inner), max_size=3, unique_by=_read_name), spaces)
    ),
    max_leaves=4,
)


plain_keys = st.sampled_from(['"model"', '"mod\\u0065l"', '"ir3de"', '"\\u0069r3de"', '"messages"'])
keys = plain_keys | names
members = st.lists(
    st.tuples(keys, spaces, spaces, values), max_size=4, unique_by=lambda member: json.loads(member[0])
).map(lambda found: [(key, f"{key}{before}:{after}", value) for key, before, after, value in found])


@given(members, spaces, spaces, spaces, st.sampled_from(["law", 'with "quotes"', "Küche 🍞"]))
@tiny.law_settings(times=2)
def test_every_byte_but_the_model_stays(
    written: list[tuple[str, str, str]], outside: str, before: str, after: str, model: str
) -> None:
    inside = f"{before},{after}".join(head + value for _, head, value in written)
    text = f"{outside}{{{before}{inside}{after}}}{outside}"
    body = JsonBody.parse(text.encode(), depth=64)
    result = body.rewrite({"model": model}, drop="ir3de").decode()

    said = json.dumps(model, ensure_ascii=False)
    names = [json.loads(key) for key, _, _ in written]
    kept = [
        head + (said if name == "model" else value)
        for (_, head, value), name in zip(written, names, strict=True)
        if name != "ir3de"
    ]
    if "model" not in names:
        kept.insert(0, f'"model":{said}')
    assert re.fullmatch(r"\s*\{\s*" + r"\s*,\s*".join(map(re.escape, kept)) + r"\s*\}\s*", result)
    if "ir3de" not in names and "model" in names:  # then not even white space
        inside = f"{before},{after}".join(kept)
        assert result == f"{outside}{{{before}{inside}{after}}}{outside}"
    expected = {key: value for key, value in json.loads(text).items() if key != "ir3de"} | {"model": model}
    assert json.loads(result) == expected
    assert body.values == json.loads(text)


@given(members, st.lists(st.sampled_from(["temperature", "top_p", "seed"]), unique=True))
@tiny.LAW
def test_fields_may_be_added_and_a_message_put_first(written: list[tuple[str, str, str]], more: list[str]) -> None:
    others = [head + value for key, head, value in written if json.loads(key) != "messages"]
    text = "{" + ",".join([*others, '"messages" : [ {} ]']) + "}"
    first = {"role": "system", "content": 'Say "é".'}
    changes = {"model": "law", **dict.fromkeys(more, 0.5)}
    found = json.loads(JsonBody.parse(text.encode(), 64).rewrite(changes, drop="ir3de", first_message=first))
    expected = {key: value for key, value in json.loads(text).items() if key != "ir3de"} | changes
    assert found == expected | {"messages": [first, {}]}


@given(st.binary(max_size=40) | members.map(lambda m: ("{" + ",".join(h + v for _, h, v in m)).encode()[:-1]))
@tiny.law_settings(times=2)
def test_whatever_comes_is_an_object_or_a_problem(content: bytes) -> None:
    try:
        body = JsonBody.parse(content, 64)
    except ApiError as problem:
        assert problem.status == 400
        assert problem.code in ("invalid_json", "ambiguous_field")
    else:
        assert body.values == json.loads(content)


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (b"", "line 1, column 1"),
        (b"[1]", "line 1, column 1"),
        (b'{"a": 1,\n "a": 2}', '"a" occurs twice (line 2, column 2)'),
        (b'{"a": 1,\n "\\u0061": 2}', "line 2, column 2"),
        (b'{"a": }', "line 1, column 7"),
        (b'{"a": 1,}', "line 1, column 9"),
        (b'{"a": 1} {', "line 1, column 10"),
        (b'{"a" 1}', "line 1, column 6"),
        (b'{"s": "NaN",\n"a": [NaN]}', "line 2, column 7"),
        (b'{"a": -Infinity}', "line 1, column 7"),
        (b'{"a": ' + b"7" * 5000 + b"}", "line 1, column 7"),
        (b'{"a": "\n"}', "line 1, column 8"),
        (b'{"a": "\xff"}', "byte 7"),
        (b'{"a": "\xed\xa0\x80"}', "byte 7"),  # half a pair, which UTF-8 has not
    ],
)
def test_what_is_no_object_is_refused_with_its_place(content: bytes, where: str) -> None:
    with pytest.raises(ApiError) as found:
        JsonBody.parse(content, 64)
    assert where in found.value.message


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_depth_has_a_limit(opening: str, closing: str) -> None:
    def deep(levels: int) -> bytes:
        return f'{{"a":{opening * (levels - 1)}1{closing * (levels - 1)}}}'.encode()

    JsonBody.parse(deep(64), 64)
    for levels in (65, 500, 5_000, 100_000):  # also beyond what the interpreter itself can nest
        with pytest.raises(ApiError, match="deeper than 64"):
            JsonBody.parse(deep(levels), 64)
    JsonBody.parse(b'{"a": "' + b"[{" * 1000 + b'"}', 64)  # brackets in strings nest nothing
