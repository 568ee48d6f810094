"""HTML from templates, for notebooks and reports. Every text is escaped, so no prompt and no name becomes markup."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ir3de.routing.colours import find_colour, find_colours

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).with_name("templates")
MAX_ROWS = 10  # of a table of words
MAX_WORD_CHARACTERS = 20
NOTHING = "·"  # in place of a number that is rounded to zero
_BREAK = re.compile(r"\n\s*")
_TAG_BREAK = re.compile(r"(?:(?<=>)|(?<=%\})|(?<=#\}))\n\s*|\n\s*(?=<|\{%|\{#)")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def draw(part: str, **values: Any) -> str:
    """What a notebook shows of a "decision", an "explanation", a "turn", a "router", a "report" or a "proof"."""
    macros = load_templates(FOLDER).get_template("notebook.html").module
    return str(getattr(macros, f"draw_{part}")(**values))


@cache
def load_templates(*folders: Path) -> Environment:
    """The templates of the folders. Routing does not import Jinja2.

    Line breaks and indentation are removed next to tags and statements. Elsewhere they become one space.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    def read(name: str) -> str | None:
        file = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if file is None:
            return None
        text = file.read_text(encoding="utf-8")
        return _BREAK.sub(" ", _TAG_BREAK.sub("", text))

    made = Environment(autoescape=True, loader=FunctionLoader(read), undefined=StrictUndefined, finalize=_clean)
    made.filters |= {"count": count, "percent": write_percent, "signed": format_signed}
    made.filters |= {"shorten": shorten, "shorten_prompt": shorten_prompt}
    made.globals |= {"find_colour": find_colour, "find_colours": find_colours, "count_digits": count_digits}
    return made


def _clean(value: Any) -> Any:
    """Text without characters that HTML cannot hold: control characters and halves of surrogate pairs."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return _CONTROLS.sub("\ufffd", value) if is_text else "" if value is None else value


def count(number: int, what: str = "") -> str:
    """A number of things.

    >>> count(1, "prompt"), count(1200, "prompt"), count(1200)
    ('1 prompt', '1,200 prompts', '1,200')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}" if what else f"{number:,}"


def write_percent(share: float | None) -> str:
    """A share with one digit after the point; a dash for None.

    >>> write_percent(0.9342), write_percent(None)
    ('93.4 %', '–')
    """
    return "–" if share is None else f"{100 * share:.1f} %"


def shorten(text: str, longest: int = MAX_WORD_CHARACTERS) -> str:
    """The beginning of a long text."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def shorten_prompt(text: str, longest: int) -> str:
    """A prompt on one line, not too long."""
    return shorten(" ".join(text[: 4 * longest].split()), longest)


def count_digits(decision: Any) -> int:
    """How many digits contributions have after the point: expected scores are small."""
    return 2 if decision.expected_score is None else 3


def format_signed(value: float, digits: int) -> str:
    """The number with its sign. Halves are rounded away from zero, as browsers do: the page shows the same numbers.

    >>> format_signed(0.125, 2), format_signed(-1.5, 2), format_signed(0.001, 2)
    ('+0.13', '−1.50', '·')
    """
    rounded = Decimal(round(value, 6)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{rounded:+}".replace("-", "−") if rounded else NOTHING
