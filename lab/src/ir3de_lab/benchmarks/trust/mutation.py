"""Small changes to valid examples. The same seed gives the same change on every machine."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

INTERESTING = (
    b"\x00",
    b"\xff",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"\r\n",
    b"\n\n",
    b"\r",
    b"\t",
    b" ",
    b'"',
    b"'",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"-",
    b"#",
    b"&a",
    b"*a",
    b"!!python/object:os.system",
    b"<<",
    b"|",
    b">",
    b"%",
    b"0",
    b"-1",
    b"1e309",
    b"NaN",
    b"Infinity",
    b"null",
    b"true",
    b"99999999999999999999",
    b"2147483648",
    b"4294967296",
    b"18446744073709551616",
    b"../../../etc/passwd",
    b"\\u0000",
    b"\\ud800",
    b"0x7f",
    b"\x7f",
    b"\x1b[2J",
    b"\xc2\x85",
    b"content-length: 5\r\n",
    b"transfer-encoding: chunked\r\n",
    b"0\r\n\r\n",
    b"data: ",
    b"data: [DONE]\n\n",
    b"event: error\n",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    0.5,
    -0.0,
    1e308,
    1e-320,
    10**18,
    10**30,
    2**63,
    "",
    " ",
    "0",
    "auto",
    "law",
    "\x00",
    "\ud800",
    "é" * 50,
    "a" * 5_000,
    "👩‍⚖️",
    "../..",
    "http://127.0.0.1:1/",
    "{{7*7}}",
    [],
    {},
    [[]],
    [None],
    [""],
    {"": None},
    {"type": "text"},
    {"type": "text", "text": None},
    {"role": "user"},
    [{"role": "user", "content": "Is it void?"}],
    [{"type": "image_url"}],
    [1, 2, 3],
)
MAX_BYTES = 200_000  # of an input
GROWN_BYTES = 20_000  # of a changed document, which is then not changed further
DEPTH = 70


def dice_for(seed: int, name: str, number: int) -> random.Random:
    """What decides about one input, and about nothing else."""
    return random.Random(f"{seed} {name} {number}")


def mutate_bytes(examples: Sequence[bytes], dice: random.Random) -> bytes:
    """One of the examples after one to eight changes."""
    data = bytearray(dice.choice(examples))
    for _ in range(1 + int(dice.expovariate(0.6))):
        dice.choice(BYTE_CHANGES)(data, examples, dice)
        del data[MAX_BYTES:]
    return bytes(data)


def _span(data: bytearray, dice: random.Random) -> tuple[int, int]:
    begin = dice.randrange(len(data) + 1)
    return begin, min(len(data), begin + int(2 ** (dice.random() * 8)))


def _flip(data: bytearray, examples: Sequence[bytes], dice: random.Random) -> None:
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _set(data: bytearray, examples: Sequence[bytes], dice: random.Random) -> None:
    if data:
        data[dice.randrange(len(data))] = dice.randrange(256)


def _delete(data: bytearray, examples: Sequence[bytes], dice: random.Random) -> None:
    begin, end = _span(data, dice)
    del data[begin:end]


def _repeat(data: bytearray, examples: Sequence[bytes], dice: random.Random) -> None:
    begin, end = _span(data, dice)
    data[begin:begin] = data[begin:end] * dice.choice((1, 2, 50))


def _insert(data: bytearray, examples: Sequence[bytes], dice: random.Random) -> None:
    place = dice.randrange(len(data) + 1)
    data[place:place] = dice.choice(INTERESTING)


def _truncate(data: bytearray, examples: Sequence[bytes], dice: random.Random) -> None:
    del data[dice.randrange(len(data) + 1) :]


def _splice(data: bytearray, examples: Sequence[bytes], dice: random.Random) -> None:
    other = dice.choice(examples)
    begin = dice.randrange(len(other) + 1)
    data[dice.randrange(len(data) + 1) :] = other[begin:]


def _swap(data: bytearray, examples: Sequence[bytes], dice: random.Random) -> None:
    (a, b), (c, d) = _span(data, dice), _span(data, dice)
    data[a:b], data[c:d] = data[c:d], data[a:b]


BYTE_CHANGES: tuple[Callable[[bytearray, Sequence[bytes], random.Random], None], ...] = (
    _flip,
    _flip,
    _set,
    _delete,
    _repeat,
    _insert,
    _insert,
    _truncate,
    _splice,
    _swap,
)


def mutate_json(document: Any, dice: random.Random) -> Any:
    """The document after one to five changes of single values, keys or shapes."""
    copied = json.loads(json.dumps(document))
    for _ in range(1 + int(dice.expovariate(0.8))):
        copied = _change_somewhere(copied, dice)
        if len(json.dumps(copied)) > GROWN_BYTES:
            break  # lists that are repeated again and again take seconds, in which no other input is sent or read
    return copied


def _change_somewhere(node: Any, dice: random.Random) -> Any:
    if isinstance(node, dict | list) and node and dice.random() < 0.75:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        key = dice.choice(keys)
        way = dice.random()
        if way < 0.15:
            del node[key]
        elif way < 0.25 and isinstance(node, dict):
            node[dice.choice(("", "ir3de", "model", "stream", "x" * 300, f"{key}x"))] = deepcopy(dice.choice(VALUES))
        elif way < 0.3 and isinstance(node, list):
            node.extend(deepcopy(node[key]) for _ in range(dice.choice((1, 3, 200))))
        else:
            node[key] = _change_somewhere(node[key], dice)
        return node
    return _another(node, dice)


def _another(node: Any, dice: random.Random) -> Any:
    way = dice.random()
    if way < 0.1:
        for _ in range(dice.choice((1, 5, DEPTH))):
            node = [node] if dice.random() < 0.5 else {"a": node}
        return node
    if way < 0.2 and isinstance(node, str):
        return mutate_bytes([node.encode("utf-8", "surrogatepass")], dice).decode("utf-8", "replace")
    return deepcopy(dice.choice(VALUES))


def to_json(document: Any, dice: random.Random) -> bytes:
    """The document as JSON, now and then damaged as text."""
    text = json.dumps(document, ensure_ascii=dice.random() < 0.7).encode("utf-8", "surrogatepass")
    return mutate_bytes([text], dice) if dice.random() < 0.3 else text
