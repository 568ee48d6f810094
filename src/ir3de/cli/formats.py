"""Texts for a terminal: lines with styles, bars, numbers for people, and characters that cannot control it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ir3de.routing.colours import find_colour

if TYPE_CHECKING:
    from rich.text import Text

FAINT = "bright_black"
BIDI_CONTROLS = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # change the text's direction


def json_text(document: object, encoding: str | None = "utf-8", *, indent: int | None = None) -> str:
    """The document as JSON; characters are escaped only where the encoding lacks them."""
    text = json.dumps(document, ensure_ascii=False, default=str, indent=indent)
    try:
        text.encode(encoding or "utf-8")
        return text
    except UnicodeEncodeError:  # half a surrogate pair, or a stream that is not UTF-8
        return json.dumps(document, default=str, indent=indent)


def line(*parts: tuple[str, str]) -> Text:
    """A line of (text, style) parts."""
    from rich.text import Text

    return Text.assemble(*parts)


def bar(share: float, width: int, style: str) -> Text:
    """A share between 0 and 1 as a bar of at most `width` characters, drawn in eighths of a character."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    blocks = "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
    return line((blocks.ljust(width), style))


def name_others(count: int) -> str:
    """How many experts are not shown."""
    return f"and {'1 other' if count == 1 else f'{count:,} others'}"


def colour_of(index: int) -> str:
    """The colour of the expert at that place among the router's experts."""
    return find_colour(index).terminal


def size(count: float) -> str:
    """Bytes for people: 512 B, 1.5 kB, 3.0 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def percent(share: float | None) -> str:
    """A share as a percentage, or a dash where there is none."""
    return "–" if share is None else f"{100 * share:.1f} %"


def printable(text: str) -> str:
    """Replace control characters by visible symbols, so that no text can control the terminal."""
    return text if text.isprintable() else "".join(map(_picture, text))


def one_line(text: str, width: int) -> str:
    """The text on one line of at most `width` characters."""
    text = printable(" ".join(text[: 4 * width].split()))
    return text if len(text) <= width else text[: width - 1] + "…"


def _picture(character: str) -> str:
    point = ord(character)
    if point < 0x20 and character != "\n":
        return chr(0x2400 + point)
    return "\ufffd" if 0x7F <= point <= 0x9F or 0xD800 <= point <= 0xDFFF or character in BIDI_CONTROLS else character
