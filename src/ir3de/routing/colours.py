"""The colours of experts: the same for the same expert in terminal, page, report and notebook."""

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
        """Between light and dark: for grounds of which nothing is known, such as those of notebooks."""
        parts = (int(self.light[place : place + 2], 16) + int(self.dark[place : place + 2], 16) for place in (1, 3, 5))
        return "#" + "".join(f"{part // 2:02x}" for part in parts)


# Neighbours differ, also for people who do not tell red from green. The page has them in style.css: a test compares.
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
    """The colours of experts that are shown beside each other, no two alike.

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


LIGHT: Mapping[str, str] = {
    "paper": "#f6f5f2",
    "sheet": "#fffefc",
    "raised": "#fffefc",
    "sunk": "#f1efea",
    "line": "#e4e1d9",
    "ink": "#1d1c1a",
    "soft": "#65615a",
    "focus": "#1d5fa8",
    "accent": "#1d1c1a",
    "on-accent": "#fffefc",
    "bad": "#a8321f",
    "well": "#14774f",
    "trying": "#8a5a00",
    "column": "#9a9488",
    "full": "58%",  # how much of an expert's colour the strongest word has
    "shadow": "0 1px 2px rgb(40 34 20 / 5%), 0 6px 24px -12px rgb(40 34 20 / 12%)",
    **{f"e{place}": colour.light for place, colour in enumerate(COLOURS)},
}
DARK: Mapping[str, str] = {
    "paper": "#131417",
    "sheet": "#1b1c20",
    "raised": "#2c2e35",
    "sunk": "#16171b",
    "line": "#2d2f35",
    "ink": "#ececea",
    "soft": "#a3a5ab",
    "focus": "#7db8f5",
    "accent": "#ececea",
    "on-accent": "#17181b",
    "bad": "#ff8f78",
    "well": "#5ed1a2",
    "trying": "#eab75a",
    "column": "#73767f",
    "full": "46%",
    "shadow": "0 1px 2px rgb(0 0 0 / 30%)",
    **{f"e{place}": colour.dark for place, colour in enumerate(COLOURS)},
}


def colour_of(place: int) -> str:
    """The colour of the expert at that place, as a CSS value.

    >>> colour_of(0), colour_of(13)
    ('var(--e0)', 'var(--e1)')
    """
    return f"var(--e{place % len(COLOURS)})"


def write_variables(selector: str = ":root") -> str:
    """CSS that sets the colours: light ones, dark ones where the system asks for dark, or as `data-theme` says."""
    light, dark = (
        "".join(f" --{name}: {value};" for name, value in theme.items()) + f" color-scheme: {scheme};"
        for theme, scheme in ((LIGHT, "light"), (DARK, "dark"))
    )
    return (
        f"{selector} {{{light} }}\n"
        f'@media (prefers-color-scheme: dark) {{\n  {selector}:not([data-theme="light"]) {{{dark} }}\n}}\n'
        f'{selector}[data-theme="dark"] {{{dark} }}\n'
    )
