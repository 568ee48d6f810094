"""The words of the field: comments, docstrings and messages name things as the glossary and other libraries do."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from surface import ROOT

# what stands in quotes or behind a dot is a name: `told` and `said` are fields of documents that programs read
AVOIDED = {
    r"\bnobod(y|ies)\b": "None, or 'no client'",
    r"\bwhoever\b": "the one who, or the caller",
    r"(?<![`'\".])\b(told|tells?|telling)\b": "report, log, return",
    r"\bcomplain": "report, warn",
    r"\bhangs? up\b": "close, cancel",
    r"\b(left|leave|leaves) alone\b": "skip, cool down",
    r"(?<!there )\bis no\b(?! (longer|more))": "is not a",
    r"\bforget(?=[a-z])(?!ting learn|ting\b)": "drop, expire",  # `forget` itself is a command
    r"(?<![`'\".])\b(says|said|saying)\b": "reports, names",
    r"\bwish(es)?\b": "option, request",
    r"\bkeeper\b": "owner, replica",
}
TEXTS = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1))  # the last from Python 3.12 on
FILES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "gateway" / "src").rglob("*.py")])


def find_avoided(path: Path) -> Iterator[str]:
    """Yield each place where a comment or a string has a word that the project avoids."""
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(io.StringIO(file.read()).readline):
            if token.type in TEXTS:
                for pattern, better in AVOIDED.items():
                    for found in re.finditer(pattern, token.string, re.IGNORECASE):
                        number = token.start[0] + token.string[: found.start()].count("\n")
                        yield f"{path.relative_to(ROOT)}:{number}: {found[0]!r}: better {better}"


@pytest.mark.parametrize("folder", ["src", "gateway/src"])
def test_comments_and_messages_use_the_words_of_the_field(folder: str) -> None:
    found = [line for path in FILES if path.is_relative_to(ROOT / folder) for line in find_avoided(path)]
    assert not found, "\n".join(found)


def test_the_search_finds_comments_strings_and_f_strings() -> None:
    path = ROOT / "tests" / "test_words.py"  # the example below
    number = 3
    example = f"{number} requests, and nobody is told"  # whoever reads it
    assert example and len([line for line in find_avoided(path) if "nobody" in line or "told" in line]) >= 2
    assert any("whoever" in line for line in find_avoided(path))
