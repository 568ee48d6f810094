"""Pasted documents in a turn: the user's own words are told from what was pasted beside them."""

from __future__ import annotations

import re

MIN_PASTE_CHARS = 400  # shorter turns are the user's own words
MAX_TURN_CHARS = 16_384  # of a longer turn, the beginning and the end are read
END_CHARS = 2_048

# A blank line, a fence of code, or a line that ends in a colon or a question mark. Every alternative begins with a
# character of its own, because `re` then skips all others, which halves the time.
_split_blocks = re.compile(
    r"\n[ \t\r]*\n\s*|```|\n(?<=[:?]\n)| (?<=[:?] )[ \t\r]*\n|\t(?<=[:?]\t)[ \t\r]*\n|\r(?<=[:?]\r)[ \t\r]*\n"
).split


def shorten_turn(text: str) -> str:
    """What is read of a turn: of a long one, its beginning and its end. Shortened again, it stays as it is."""
    if len(text) > MAX_TURN_CHARS:
        text = text.strip()
    if len(text) > MAX_TURN_CHARS:
        text = f"{text[: MAX_TURN_CHARS - END_CHARS - 2]}\n\n{text[-END_CHARS:]}"
    return text


def split_paste(text: str) -> tuple[str, str]:
    """A long turn as the user's own words and the paste. Words are a short block at the beginning or the end.

    A turn without such a block is all words.

    >>> words, paste = split_paste("Please summarise this:\\n" + "The court held otherwise. " * 30)
    >>> words
    'Please summarise this:'
    """
    text = shorten_turn(text)
    if len(text) < MIN_PASTE_CHARS or ("\n" not in text and "```" not in text):
        return text, ""
    blocks = [block for block in _split_blocks(text) if block.strip()]
    words = []
    if len(blocks) > 1 and len(blocks[0]) < MIN_PASTE_CHARS:
        words.append(blocks.pop(0))
    if len(blocks) > 1 and len(blocks[-1]) < MIN_PASTE_CHARS and (not words or blocks[-1].rstrip().endswith("?")):
        words.append(blocks.pop())
    return ("\n".join(words), "\n\n".join(blocks)) if words else (text, "")
