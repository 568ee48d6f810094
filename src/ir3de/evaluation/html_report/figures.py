"""Numbers, names and prompts as a report writes them."""

from __future__ import annotations

from collections.abc import Iterable

from ir3de.routing.colours import colour_of
from ir3de.routing.drawing.markup import Child, Markup, make

NARROW = "\u202f"  # a narrow space that does not break
MAX_PROMPT_CHARS = 280


def percent(share: float | None) -> str:
    """A share with one digit after the point; a dash where there is none.

    >>> percent(0.9342).replace("\\u202f", " "), percent(None)
    ('93.4 %', '–')
    """
    return "–" if share is None else f"{100 * share:.1f}{NARROW}%"


def short_percent(share: float) -> str:
    """A share for an axis: digits after the point only where there are any.

    >>> short_percent(0.25).replace("\\u202f", " "), short_percent(0.925).replace("\\u202f", " ")
    ('25 %', '92.5 %')
    """
    return f"{round(100 * share, 1):g}{NARROW}%"


def points(difference: float, *, unit: bool = True) -> str:
    """A difference of shares, in points, with its sign.

    >>> points(0.021), points(-0.003)
    ('+2.1 points', '−0.3 points')
    """
    return f"{100 * difference:+.1f}{' points' * unit}".replace("-", "−")


def count(number: int, what: str) -> str:
    """How many there are of something.

    >>> count(1, "prompt"), count(1200, "prompt")
    ('1 prompt', '1,200 prompts')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def name_expert(name: str, place: int) -> Markup:
    """An expert's name behind its colour."""
    return make("span", make("i", class_="swatch", aria_hidden="true", style=f"--colour:{colour_of(place)}"),
                make("span", name), class_="name-of")  # fmt: skip


def list_prompts(prompts: Iterable[str | tuple[str, str]]) -> Child:
    """Prompts, each cut to what is read at a glance; a pair has a remark behind it."""
    rows = [(one, "") if isinstance(one, str) else one for one in prompts]
    items = [
        make("li", cut_prompt(text), make("span", " ", remark, class_="aside") if remark else None, dir="auto")
        for text, remark in rows
    ]
    return make("ul", items, class_="prompts") if items else None


def cut_prompt(text: str) -> str:
    """A prompt on one line, not too long."""
    text = " ".join(text[: 4 * MAX_PROMPT_CHARS].split())
    return text if len(text) <= MAX_PROMPT_CHARS else text[: MAX_PROMPT_CHARS - 1] + "…"
