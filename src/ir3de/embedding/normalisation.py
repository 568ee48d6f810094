"""What is done to a text before it is tokenised."""

from __future__ import annotations

MIN_ALL_CAPS_CHARACTERS = 16  # shorter texts may be acronyms, whose capitals matter


def lowercase_if_all_caps(text: str) -> str:
    """Lowercase a text that is all in capitals: its meaning stays, and its tokens become the common ones.

    >>> lowercase_if_all_caps("HOW DO I BOIL AN EGG?")
    'how do i boil an egg?'
    >>> lowercase_if_all_caps("NASA")
    'NASA'
    """
    return text.lower() if len(text) >= MIN_ALL_CAPS_CHARACTERS and text.isupper() else text


def replace_lone_surrogates(text: str) -> str:
    """Put U+FFFD for each half of a surrogate pair: JSON can write one, but it has no UTF-8 form.

    >>> replace_lone_surrogates("a \\ud83d b") == "a \\ufffd b"
    True
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
