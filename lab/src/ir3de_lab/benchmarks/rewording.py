"""Prompts reworded by rules: other words, a formal register, long-winded phrases around them.

A rewording means the same as the prompt. It depends on the prompt alone, so neither order nor batches change it.
The rules are for English; most prompts in other languages only get the phrases around them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ir3de_lab.benchmarks.protocol import prompt_hash

SYNONYMS = {
    "answer": "response", "begin": "start", "big": "large", "bought": "purchased", "build": "construct",
    "buy": "purchase", "calculate": "compute", "called": "named", "change": "alter",
    "check": "verify", "choose": "select", "compute": "calculate", "correct": "right", "create": "produce",
    "describe": "outline", "different": "distinct", "entire": "whole", "error": "mistake", "evaluate": "assess",
    "every": "each", "example": "instance", "explain": "clarify", "fast": "quick", "find": "determine",
    "following": "subsequent", "get": "obtain", "give": "provide", "happen": "occur", "help": "assist",
    "hard": "difficult", "idea": "notion", "important": "significant", "job": "task", "keep": "retain",
    "large": "big", "make": "produce", "method": "approach",
    "money": "funds", "need": "require", "often": "frequently", "people": "persons",
    "problem": "issue", "question": "query", "quick": "fast", "reason": "cause", "send": "transmit",
    "show": "display", "shows": "displays", "small": "little", "solve": "resolve", "start": "begin",
    "story": "tale", "total": "overall", "try": "attempt", "use": "employ", "using": "employing", "want": "wish",
    "write": "compose", "wrong": "incorrect",
}  # fmt: skip

FORMAL = {
    "aren't": "are not", "can't": "cannot", "couldn't": "could not", "didn't": "did not", "doesn't": "does not",
    "don't": "do not", "hasn't": "has not", "haven't": "have not", "i'd": "I would", "i'll": "I will", "i'm": "I am",
    "i've": "I have", "isn't": "is not", "it's": "it is", "shouldn't": "should not", "that's": "that is",
    "there's": "there is", "wasn't": "was not", "we're": "we are", "what's": "what is", "where's": "where is",
    "who's": "who is", "won't": "will not", "wouldn't": "would not", "you're": "you are",
    "can i": "would it be possible for me to", "can you": "would you be able to", "could you": "might you",
    "how do i": "in what manner may I", "how to": "in what manner to", "i want": "I should like",
    "i need": "I am in need of", "let me know": "inform me", "tell me": "kindly inform me", "thanks": "thank you",
    "please": "kindly",
}  # fmt: skip
FORMAL_OPENING = "Dear Sir or Madam, I should be most obliged if you would attend to the following matter. "
FORMAL_CLOSING = " I remain, with kind regards, yours faithfully."

OPENINGS = (
    "So, I have been turning this over in my head for quite a while now, and before I go on about it any longer, "
    "here is what I would actually like to have from you: ",
    "Sorry to bother you with this, I am sure that you have heard such things a hundred times before, but it has been "
    "on my mind all day and I could not leave it alone. It goes like this: ",
    "Right, let me see if I can put this into words properly, because the last time I tried nobody understood what I "
    "meant, and that was probably my own fault. What I have in front of me is this: ",
    "A friend of mine suggested that I should simply come here with it, and since I had nothing better to do this "
    "afternoon, I thought that I might as well. In any case, here it is: ",
)
CLOSINGS = (
    " That is more or less all of it, and do take your time, there is no hurry at all on my side.",
    " I hope that this makes sense the way I put it; if it does not, just take it the way it was most likely meant.",
    " Anyway, whatever comes to your mind about it is welcome, as I said, I have been at it for a while.",
    " Well, there you have it, and I am already looking forward to whatever you come up with.",
)

Rewording = Callable[[str], str]


def replace_words(text: str) -> str:
    """Every word that has a synonym, in the same case.

    >>> replace_words("Find a BIG number.")
    'Determine a LARGE number.'
    """
    return _SYNONYM.sub(lambda found: _match_case(found.group(), SYNONYMS), text)


def make_formal(text: str) -> str:
    """A formal letter: no short forms, and polite phrases.

    >>> make_formal("What's 2 + 2?").removeprefix(FORMAL_OPENING).removesuffix(FORMAL_CLOSING)
    'What is 2 + 2?'
    """
    written = _FORMAL.sub(lambda found: _match_case(found.group().replace("’", "'"), FORMAL), text)
    return f"{FORMAL_OPENING}{written}{FORMAL_CLOSING}"


def make_long_winded(text: str) -> str:
    """Phrases without content before and after the prompt; the prompt itself chooses which."""
    first, last = divmod(prompt_hash(text) % (len(OPENINGS) * len(CLOSINGS)), len(CLOSINGS))
    return f"{OPENINGS[first]}{text}{CLOSINGS[last]}"


def reword_fully(text: str) -> str:
    """All of these, one after the other."""
    return make_long_winded(make_formal(replace_words(text)))


REWORDINGS: dict[str, Rewording] = {
    "synonyms": replace_words,
    "formal register": make_formal,
    "long-winded": make_long_winded,
    "all three": reword_fully,
}


def _match_case(word: str, table: Mapping[str, str]) -> str:
    other = table[word.lower()]
    if len(word) > 1 and word.isupper():
        return other.upper()
    return other[0].upper() + other[1:] if word[0].isupper() else other


def _match_any(table: Mapping[str, str]) -> re.Pattern[str]:
    """Any of the table's words as a whole word; longer ones first, so that a phrase is taken before its words."""
    longest = sorted(table, key=lambda word: (-len(word), word))
    either = "|".join(re.escape(word).replace("'", "['’]") for word in longest)
    return re.compile(rf"(?<!\w)(?:{either})(?!\w)", re.IGNORECASE)


_SYNONYM, _FORMAL = _match_any(SYNONYMS), _match_any(FORMAL)
