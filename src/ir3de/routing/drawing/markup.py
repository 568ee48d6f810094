"""HTML and SVG from Python. Every text is escaped on its way in, so no prompt and no name can become markup."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TypeAlias

VOID = frozenset(("br", "hr", "img", "input", "link", "meta"))  # elements of HTML without an end
SPECIAL = {point: 0x2400 + point for point in range(0x20) if chr(point) not in "\n\t"}  # their pictures
SPECIAL |= dict.fromkeys((0x7F, *range(0x80, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF), 0xFFFD)


class Markup(str):
    """Text that is markup already, and safe."""

    __slots__ = ()


Child: TypeAlias = "str | Markup | Iterable[Child] | None"
Attribute: TypeAlias = "str | int | float | bool | None"


def make(name: str, *children: Child, **attributes: Attribute) -> Markup:
    """An element. In the name of an attribute, `_` stands for `-`, and one at the end for nothing: `class_`.

    An attribute that is None or False is left out; True has no value.

    >>> make("p", "1 < 2 ", make("b", "&"), class_="sum", aria_label='"')
    '<p class="sum" aria-label="&quot;">1 &lt; 2 <b>&amp;</b></p>'
    """
    written = "".join(_write_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{name}{written}>" if name in VOID else f"<{name}{written}>{join(children)}</{name}>")


def join(children: Child) -> Markup:
    """Everything one after the other; texts are escaped."""
    if children is None:
        return Markup()
    if isinstance(children, str):
        return children if isinstance(children, Markup) else Markup(escape_text(children))
    return Markup("".join(map(join, children)))


def escape_text(text: str) -> str:
    """The text as HTML: it reads the same, and what a browser cannot show is shown as a symbol."""
    return escape(text.translate(SPECIAL))


def _write_attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{escape_text(write_number(value) if isinstance(value, float) else str(value))}"'


def write_number(value: float) -> str:
    """A number in a picture: two digits after the point are finer than any screen.

    >>> write_number(1 / 3), write_number(2.0)
    ('0.33', '2')
    """
    return f"{value:.2f}".rstrip("0").rstrip(".")
