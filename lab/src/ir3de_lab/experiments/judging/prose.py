"""Sentences, words in capitals and the language of a text, as IFEval counts them.

The benchmark counts sentences and words with NLTK's Punkt model, which is downloaded at run time. Here both are small
rules of our own: words that end on a stop, less the abbreviations.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any

from ir3de.errors import MissingExtraError

_CLOSING = "\"'”’)]}*_»"
_ABBREVIATION = re.compile(
    r"mr|mrs|ms|dr|prof|st|rev|gen|col|lt|sgt|capt|gov|sen|rep|hon|jr|sr|vs|etc|inc|ltd|co|corp|bros|e\.g|i\.e|cf|al|no|vol"
    r"|fig|jan|feb|mar|apr|aug|sept|oct|nov|dec|mt|ft|u\.s|u\.k|u\.n|d\.c|a\.m|p\.m|ph\.d|approx|dept|est|[a-z]"
)
# what begins a sentence often enough that the abbreviation before it ends one
_STARTER = re.compile(r"the|it|this|that|these|he|she|we|they|in|on|at|but|and|if|for|there|as|when|however|i|you")
_CLITICS = re.compile(r"(N['’]T|['’](?:S|M|D|LL|RE|VE))$", re.IGNORECASE)
_SEPARATE = re.compile(r"--+|\.\.+|[][(){}<>;:@#$%&?!\"“”„`]|,(?!\d)")


def sentences(text: str) -> int:
    """How many sentences a text has; the end of a line ends none.

    >>> sentences("Dr. Who came at 5 p.m. yesterday. Really? Yes!")
    3
    """
    words = text.split()
    return sum(_ends(*pair) for pair in pairwise(words)) + bool(words)


def _ends(word: str, following: str) -> bool:
    """Whether a sentence ends between two words."""
    bare = word.rstrip(_CLOSING)
    if bare.endswith(("!", "?")):
        return True
    if not bare.endswith("."):
        return False
    first = following.lstrip("\"'“‘([{*_")
    if bare.endswith(".."):
        return first[:1].isupper()
    stem = bare[:-1].lstrip("\"'“‘([{*_").lower()
    if _ABBREVIATION.fullmatch(stem):
        return first[:1].isupper() and bool(_STARTER.fullmatch(first.lower().rstrip(".,")))
    return True


def capital_words(text: str) -> int:
    """How many words are all in capitals; a short form counts as two, a hyphenated word as one.

    >>> capital_words("NASA's A-TEAM said: DON'T!")
    4
    """
    words = _SEPARATE.sub(" ", text).split()
    return sum(part.isupper() for word in words for part in _CLITICS.split(word.rstrip("'’.")))


def language(text: str) -> str | None:
    """The ISO code of the language a text is in, None where it has nothing to tell it by."""
    detection = _detection()
    try:
        return str(detection.detect(text))
    except detection.LangDetectException:
        return None


@cache
def _detection() -> Any:
    try:
        package = import_module("langdetect")
    except ImportError as error:
        raise MissingExtraError("langdetect", "", "telling the language of an answer", "ir3de-lab") from error
    package.DetectorFactory.seed = 0  # it draws at random, and a verdict should not
    return package
