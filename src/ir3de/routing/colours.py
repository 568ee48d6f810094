"""The colours of experts and of pages: the same for the same expert in terminal, page, report and notebook.

Pages have them as CSS variables, so that one picture suits light and dark. `--e0` is the colour of the first expert.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Colour(NamedTuple):
    """A colour on a light ground, on a dark one, and the terminal's own of nearly the same hue."""

    light: str
    dark: str
    terminal: str  # a terminal's own colours suit its theme

    @property
    def middle(self) -> str:
        """Between light and dark: for unknown grounds, such as those of notebooks."""
        parts = (int(self.light[place : place + 2], 16) + int(self.dark[place : place + 2], 16) for place in (1, 3, 5))
        return "#" + "".join(f"{part // 2:02x}" for part in parts)


# Neighbours differ, also without red and green. A test compares them with style.css of the page.
COLOURS = (
    Colour("#1f74b8", "#4d9fe6", "bright_blue"),  # a terminal's plain blue is hardly legible on black
    Colour("#dc8a00", "#f0a530", "yellow"),
    Colour("#0b9270", "#2fbf97", "green"),
    Colour("#c8609b", "#e58abd", "magenta"),
    Colour("#46a5dd", "#7cc8f3", "cyan"),
    Colour("#cc4b12", "#f0743c", "red"),
    Colour("#7d4bb3", "#a97fe0", "bright_magenta"),
    Colour("#8d8c1f", "#b9b84a", "bright_green"),
    Colour("#8c2357", "#d05a92", "bright_red"),
    Colour("#35a79b", "#5fd0c3", "bright_cyan"),
    Colour("#c9a800", "#ecd04a", "bright_yellow"),
    Colour("#44569e", "#8192e0", "blue"),
)


def find_colour(place: int) -> Colour:
    """The colour of the expert at that place among the router's experts; after twelve they come again.

    >>> find_colour(0).light
    '#1f74b8'
    """
    return COLOURS[place % len(COLOURS)]


def find_colours(compared: Sequence[str], experts: Sequence[str]) -> dict[str, Colour]:
    """The colours of experts that are shown together, no two alike.

    Beyond twelve experts two of them may have the same one. Then the later one takes the next that is free.

    >>> experts = [f"expert {place}" for place in range(13)]
    >>> [colour.light for colour in find_colours(["expert 12", "expert 0"], experts).values()]
    ['#1f74b8', '#dc8a00']
    """
    taken: dict[str, int] = {}
    for name in compared:
        slot = experts.index(name) % len(COLOURS)
        while slot in taken.values() and len(taken) < len(COLOURS):
            slot = (slot + 1) % len(COLOURS)
        taken[name] = slot
    return {name: COLOURS[slot] for name, slot in taken.items()}


PALETTE: Mapping[str, tuple[str, str]] = {  # on a light ground, and on a dark one
    "paper": ("#f6f5f2", "#131417"),
    "sheet": ("#fffefc", "#1b1c20"),
    "raised": ("#fffefc", "#2c2e35"),
    "sunk": ("#f1efea", "#16171b"),
    "line": ("#e4e1d9", "#2d2f35"),
    "ink": ("#1d1c1a", "#ececea"),
    "soft": ("#65615a", "#a3a5ab"),
    "focus": ("#1d5fa8", "#7db8f5"),
    "accent": ("#1d1c1a", "#ececea"),
    "on-accent": ("#fffefc", "#17181b"),
    "bad": ("#a8321f", "#ff8f78"),
    "well": ("#14774f", "#5ed1a2"),
    "trying": ("#8a5a00", "#eab75a"),
    "column": ("#9a9488", "#73767f"),
    "full": ("58%", "46%"),  # how much of an expert's colour the strongest word has
    "shadow": ("0 1px 2px rgb(40 34 20 / 5%), 0 6px 24px -12px rgb(40 34 20 / 12%)", "0 1px 2px rgb(0 0 0 / 30%)"),
    **{f"e{place}": (colour.light, colour.dark) for place, colour in enumerate(COLOURS)},
}


def write_variables(selector: str = ":root") -> str:
    """CSS that sets the colours: light ones, dark ones where the system prefers dark, or as `data-theme` sets."""
    light, dark = (
        "".join(f" --{name}: {values[ground]};" for name, values in PALETTE.items()) + f" color-scheme: {scheme};"
        for ground, scheme in enumerate(("light", "dark"))
    )
    return (
        f"{selector} {{{light} }}\n"
        f'@media (prefers-color-scheme: dark) {{\n  {selector}:not([data-theme="light"]) {{{dark} }}\n}}\n'
        f'{selector}[data-theme="dark"] {{{dark} }}\n'
    )
